"""Recognises text in images with `tesseract`, if it is installed. Slow, so it runs last and only if it is switched on."""

import os
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache, lru_cache
from pathlib import Path

import pypdfium2

from archiver.extract import limits
from archiver.extract.extraction import ExtractionRefused, ExtractionState, TextPage

_DPI = 200
_POINTS_PER_INCH = 72


@cache
def is_available() -> bool:
    return shutil.which("tesseract") is not None


@lru_cache(maxsize=1)
def installed_languages() -> tuple[str, ...]:
    """As listed by `tesseract --list-langs`; empty if it is not installed."""
    if not is_available():
        return ()
    listed = subprocess.run(["tesseract", "--list-langs"], capture_output=True, check=False, timeout=10)
    _, *names = (listed.stdout or listed.stderr).decode("utf-8", "replace").splitlines() or [""]
    return tuple(name.strip() for name in names if name.strip())


@dataclass(frozen=True, slots=True)
class Ocr:
    """Reads images until `deadline` (monotonic clock) and returns what was recognised by then."""

    languages: str
    deadline: float

    def read_image(self, data: bytes) -> Iterator[TextPage]:
        with tempfile.TemporaryDirectory(prefix="archiver-ocr-") as folder:
            path = Path(folder) / "image"
            path.write_bytes(data)
            yield TextPage(0, self._recognise(path))

    def read_pages(self, data: bytes, numbers: Sequence[int]) -> Iterator[TextPage]:
        """Pages of a PDF, counted from 1."""
        with tempfile.TemporaryDirectory(prefix="archiver-ocr-") as folder, pypdfium2.PdfDocument(data) as document:
            for done, number in enumerate(numbers):
                if done >= limits.OCR_PAGES or time.monotonic() > self.deadline:
                    reason = f"{len(numbers) - done} of {len(numbers)} pages that are pictures were not read: too many"
                    raise ExtractionRefused(ExtractionState.OK, reason)
                path = Path(folder) / "page.ppm"
                _draw(document[number - 1], path)
                yield TextPage(number, self._recognise(path))

    def _recognise(self, path: Path) -> str:
        # One thread per image: with more, tesseract is several times slower.
        try:
            result = subprocess.run(
                ["tesseract", str(path), "-", "-l", self.languages],
                capture_output=True,
                check=False,
                env={**os.environ, "OMP_THREAD_LIMIT": "1"},
                timeout=max(1.0, self.deadline - time.monotonic()),
            )
        except subprocess.TimeoutExpired as late:
            raise ExtractionRefused(ExtractionState.TIMEOUT, "OCR took too long") from late
        if result.returncode != 0:
            message = result.stderr.decode("utf-8", "replace").strip().splitlines()
            raise ExtractionRefused(ExtractionState.BROKEN, f"tesseract: {message[-1] if message else result.returncode}")
        return result.stdout.decode("utf-8", "replace").strip()


def _draw(page: pypdfium2.PdfPage, path: Path) -> None:
    width, height = page.get_size()
    scale = _DPI / _POINTS_PER_INCH
    if width * height * scale * scale > limits.OCR_PIXELS:
        scale = (limits.OCR_PIXELS / (width * height)) ** 0.5
    _write_ppm(page.render(scale=scale, rev_byteorder=True), path)
    page.close()


def _write_ppm(bitmap: pypdfium2.PdfBitmap, path: Path) -> None:
    """The simplest image format; it needs no library."""
    channels, stride, width = bitmap.n_channels, bitmap.stride, bitmap.width
    pixels = bytes(bitmap.buffer)
    with path.open("wb") as file:
        file.write(b"P6 %d %d 255\n" % (width, bitmap.height))
        for row in range(bitmap.height):
            line = pixels[row * stride : row * stride + width * channels]
            file.write(line if channels == 3 else _rgb(line, channels))


def _rgb(line: bytes, channels: int) -> bytes:
    rgb = bytearray(len(line) // channels * 3)
    for colour in range(3):
        rgb[colour::3] = line[min(colour, channels - 1) :: channels]
    return bytes(rgb)
