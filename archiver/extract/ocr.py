"""Text in pictures, by `tesseract` where it is installed. Slow, so only when asked for."""

import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pypdfium2

from archiver.extract import limits
from archiver.extract.extraction import Page, Refused, State

_DPI = 200
_POINTS_PER_INCH = 72


@cache
def is_available() -> bool:
    return shutil.which("tesseract") is not None


def read_image(data: bytes) -> Iterator[Page]:
    with tempfile.TemporaryDirectory(prefix="archiver-ocr-") as folder:
        path = Path(folder) / "image"
        path.write_bytes(data)
        yield Page(0, _recognise(path))


def read_scanned_pdf(data: bytes) -> Iterator[Page]:
    with tempfile.TemporaryDirectory(prefix="archiver-ocr-") as folder, pypdfium2.PdfDocument(data) as document:
        for number in range(min(len(document), limits.OCR_PAGES)):
            page = document[number]
            width, height = page.get_size()
            scale = _DPI / _POINTS_PER_INCH
            if width * height * scale * scale > limits.OCR_PIXELS:
                scale = (limits.OCR_PIXELS / (width * height)) ** 0.5
            path = Path(folder) / "page.ppm"
            _write_ppm(page.render(scale=scale, rev_byteorder=True), path)
            page.close()
            yield Page(number + 1, _recognise(path))


def _write_ppm(bitmap: pypdfium2.PdfBitmap, path: Path) -> None:
    """The simplest of all picture formats, which spares us a library for pictures."""
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


def _recognise(path: Path) -> str:
    # One thread each: with more, tesseract is several times slower.
    result = subprocess.run(
        ["tesseract", str(path), "-"],
        capture_output=True,
        check=False,
        env={**os.environ, "OMP_THREAD_LIMIT": "1"},
    )
    if result.returncode != 0:
        message = result.stderr.decode("utf-8", "replace").strip().splitlines()
        raise Refused(State.BROKEN, f"tesseract: {message[-1] if message else result.returncode}")
    return result.stdout.decode("utf-8", "replace").strip()
