"""Extracts one file: detects its type, chooses a reader, and goes on with the files inside it."""

import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from itertools import islice

from archiver.extract import limits
from archiver.extract.archives import ARCHIVES, PACKAGES, File, UnpackBudget, embedded_files, open_mail, unpack
from archiver.extract.documents import READERS, pages_with_pictures
from archiver.extract.extraction import Extraction, ExtractionRefused, ExtractionState, TextPage
from archiver.extract.kinds import detect_kind
from archiver.extract.ocr import Ocr

_REASONS = {
    "rar": "RAR archives are not read",
    "zstd": "Zstandard archives are not read",
    "program": "a program",
    "audio": "sound",
    "media": "sound or video",
    "font": "a font",
    "pst": "an Outlook data file",
    "ole": "an Office file of an unknown kind",
    "binary": "no known kind of file",
}


_CONTROLS = dict.fromkeys([*range(9), 11, 12, *range(14, 32)])


class _Collected:
    """Pages up to the limit on text."""

    def __init__(self) -> None:
        self.pages: list[TextPage] = []
        self.is_cut = False
        self._chars_left = limits.TEXT_CHARS

    def add(self, page: TextPage) -> None:
        text = page.text.translate(_CONTROLS).strip()
        if not text:
            return
        if len(text) > self._chars_left:
            text, self.is_cut = text[: self._chars_left], True
        self._chars_left -= len(text)
        if text:
            self.pages.append(TextPage(page.number, text, page.file))


@dataclass(slots=True)
class _Reading:
    """One file with everything inside it: the remaining unpack budget, and whether images are read."""

    ocr: Ocr | None
    budget: UnpackBudget = field(default_factory=UnpackBudget)
    has_unread_pictures: bool = False

    def pages(self, kind: str, data: bytes, name: str, *, depth: int) -> Iterator[TextPage]:
        if kind == "encrypted":
            raise ExtractionRefused(ExtractionState.ENCRYPTED, "needs a password")
        if kind == "image":
            yield from self._image(data)
        elif kind in ARCHIVES:
            yield from self._inside(unpack(kind, data, name, self.budget), depth=depth)
        elif kind == "mail":
            message, files = open_mail(data, self.budget)
            yield TextPage(0, "\n".join((message.headers.subject, *map(str, message.headers.from_), message.text)))
            yield from self._inside(files, depth=depth)
        elif kind == "pdf":
            yield from self._pdf(data)
        elif kind in READERS:
            yield from READERS[kind](data)
            if kind in PACKAGES:
                yield from self._inside(embedded_files(data, self.budget), depth=depth)
        else:
            raise ExtractionRefused(ExtractionState.UNSUPPORTED, _REASONS.get(kind, kind))

    def _image(self, data: bytes) -> Iterator[TextPage]:
        if len(data) < limits.OCR_IMAGE_BYTES:
            return
        if self.ocr is None:
            self.has_unread_pictures = True
        else:
            yield from self.ocr.read_image(data)

    def _pdf(self, data: bytes) -> Iterator[TextPage]:
        """Pages that consist of an image are read by OCR and keep their numbers."""
        blank: list[int] = []
        pages = 0
        for page in READERS["pdf"](data):
            pages += 1
            if page.text.strip():
                yield page
            else:
                blank.append(page.number)
        scanned = list(pages_with_pictures(data, blank)) if blank else []
        if not scanned:
            return
        if self.ocr is not None:
            yield from self.ocr.read_pages(data, scanned)
        else:
            self.has_unread_pictures = True
            if len(scanned) < pages:
                reason = f"{len(scanned)} of {pages} pages have no text but pictures, which are read only with OCR"
                raise ExtractionRefused(ExtractionState.OK, reason)

    def _inside(self, files: Iterable[File], *, depth: int) -> Iterator[TextPage]:
        """Names and texts of the files in an archive or mail. One that can't be read does not stop the others."""
        for name, content in files:
            yield TextPage(0, name, name)
            kind = detect_kind(content, name)
            if depth >= limits.ARCHIVE_DEPTH and (kind in ARCHIVES or kind == "mail"):
                continue
            try:
                for page in self.pages(kind, content, name, depth=depth + 1):
                    yield TextPage(page.number, page.text, f"{name}/{page.file}" if page.file else name)
            except ExtractionRefused as refused:
                if refused.state is ExtractionState.TOO_LARGE:
                    raise


def extract_file(
    data: bytes, name: str, declared_type: str, *, ocr_languages: str = "", ocr_seconds: float = limits.OCR_SECONDS
) -> Extraction:
    """The text of a file. Raises only what its reader did not expect."""
    kind = detect_kind(data, name, declared_type)
    collected = _Collected()
    reading = _Reading(Ocr(ocr_languages, time.monotonic() + ocr_seconds) if ocr_languages else None)
    state, reason = ExtractionState.OK, ""
    try:
        for page in islice(reading.pages(kind, data, name, depth=0), 1_000_000):
            collected.add(page)
            if collected.is_cut:
                reason = "more text than the limit; the rest is left out"
                break
    except ExtractionRefused as refused:
        state, reason = refused.state, refused.reason
    if state is ExtractionState.OK and not collected.pages:
        state, reason = ExtractionState.EMPTY, reason or _why_empty(kind, reading)
    return Extraction(state, reason[:500], tuple(collected.pages), kind, reading.has_unread_pictures)


def _why_empty(kind: str, reading: _Reading) -> str:
    if kind in ("pdf", "image") and reading.ocr is None:
        return "no text; it may be in pictures, which are read only with OCR"
    return "no text in it"
