"""From a file to an extraction: what it is, which reader reads it, what is inside it."""

from collections.abc import Iterable, Iterator
from itertools import islice

from archiver.extract import limits, ocr
from archiver.extract.archives import ARCHIVES, Budget, File, open_mail, unpack
from archiver.extract.documents import READERS
from archiver.extract.extraction import Extraction, Page, Refused, State
from archiver.extract.kinds import detect_kind

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
        self.pages: list[Page] = []
        self.is_cut = False
        self._chars_left = limits.TEXT_CHARS

    def add(self, page: Page) -> None:
        text = page.text.translate(_CONTROLS).strip()
        if not text:
            return
        if len(text) > self._chars_left:
            text, self.is_cut = text[: self._chars_left], True
        self._chars_left -= len(text)
        if text:
            self.pages.append(Page(page.number, text, page.file))


def extract_file(data: bytes, name: str, declared_type: str, *, with_ocr: bool) -> Extraction:
    """The text of a file. Raises only what its reader did not foresee."""
    kind = detect_kind(data, name, declared_type)
    collected = _Collected()
    state, reason = State.OK, ""
    try:
        for page in islice(_pages(kind, data, name, declared_type, Budget(), with_ocr, depth=0), 1_000_000):
            collected.add(page)
            if collected.is_cut:
                reason = "more text than the limit; the rest is left out"
                break
    except Refused as refused:
        state, reason = refused.state, refused.reason
    if state is State.OK and not collected.pages:
        state, reason = State.EMPTY, _why_empty(kind, with_ocr)
    return Extraction(state, reason[:500], tuple(collected.pages), kind)


def _why_empty(kind: str, with_ocr: bool) -> str:
    if kind in ("pdf", "image") and not with_ocr:
        return "no text; it may be in pictures, which are read only with OCR"
    return "no text in it"


def _pages(
    kind: str, data: bytes, name: str, declared_type: str, budget: Budget, with_ocr: bool, *, depth: int
) -> Iterator[Page]:
    if kind == "encrypted":
        raise Refused(State.ENCRYPTED, "needs a password")
    if kind == "image":
        if with_ocr:
            yield from ocr.read_image(data)
    elif kind in ARCHIVES:
        yield from _inside(unpack(kind, data, name, budget), budget, with_ocr, depth=depth)
    elif kind == "mail":
        message, files = open_mail(data, budget)
        yield Page(0, "\n".join((message.headers.subject, *map(str, message.headers.from_), message.text)))
        yield from _inside(files, budget, with_ocr, depth=depth)
    elif kind == "pdf":
        yield from _pdf_pages(data, with_ocr)
    elif kind in READERS:
        yield from READERS[kind](data)
    else:
        raise Refused(State.UNSUPPORTED, _REASONS.get(kind, kind))


def _pdf_pages(data: bytes, with_ocr: bool) -> Iterator[Page]:
    has_text = False
    for page in READERS["pdf"](data):
        has_text = has_text or bool(page.text.strip())
        yield page
    if with_ocr and not has_text:
        yield from ocr.read_scanned_pdf(data)


def _inside(files: Iterable[File], budget: Budget, with_ocr: bool, *, depth: int) -> Iterator[Page]:
    """Names and texts of the files in an archive or mail. One that can't be read does not stop the others."""
    for name, content in files:
        yield Page(0, name, name)
        kind = detect_kind(content, name)
        if depth >= limits.ARCHIVE_DEPTH and (kind in ARCHIVES or kind == "mail"):
            continue
        try:
            for page in _pages(kind, content, name, "", budget, with_ocr, depth=depth + 1):
                yield Page(page.number, page.text, f"{name}/{page.file}" if page.file else name)
        except Refused as refused:
            if refused.state is State.TOO_LARGE:
                raise
