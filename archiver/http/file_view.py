"""How attachments are laid out: what a reader looks for in a file, its place among others, names that can't lie. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from archiver.extract.extraction import TextPage
from archiver.search.snippets import MatchedText

_BEFORE, _AFTER = 60, 120
_HITS = 200
_DIRECTION_SIGNS = re.compile("[\u200e\u200f\u202a-\u202e\u2066-\u2069]")
_OPEN_XML = "application/vnd.openxmlformats-officedocument"
_TYPES = (
    ("pdf", ("application/pdf",), (".pdf",)),
    ("image", ("image/",), (".png", ".jpg", ".jpeg", ".gif", ".webp", ".tif", ".tiff", ".heic", ".bmp", ".svg")),
    ("sheet", ("application/vnd.ms-excel", f"{_OPEN_XML}.sp", "text/csv"), (".xlsx", ".xls", ".ods", ".csv")),
    ("slides", ("application/vnd.ms-powerpoint", f"{_OPEN_XML}.pr"), (".pptx", ".ppt", ".odp")),
    ("archive", ("application/zip", "application/x-7z", "application/gzip"), (".zip", ".7z", ".gz", ".tar", ".rar")),
    ("calendar", ("text/calendar",), (".ics",)),
    ("mail", ("message/",), (".eml", ".msg")),
    ("sound", ("audio/",), (".mp3", ".wav", ".m4a", ".ogg")),
    ("film", ("video/",), (".mp4", ".mov", ".avi", ".mkv")),
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class PageHits:
    """The places in one page of a file that have what the reader looks for."""

    number: int
    inside: str
    """The path within an archive."""
    count: int
    first: MatchedText


def find_in_pages(pages: Iterable[TextPage], wanted: str) -> list[PageHits]:
    """The pages that have `wanted`, in any case. Spaces match any white space."""
    pattern = _pattern(wanted)
    found = []
    for page in pages if pattern else ():
        hits = list(pattern.finditer(page.text)) if pattern else []
        if hits:
            found.append(PageHits(page.number, page.file, len(hits), _around(page.text, hits[0])))
        if len(found) >= _HITS:
            break
    return found


def mark(text: str, wanted: str) -> MatchedText:
    pattern = _pattern(wanted)
    return MatchedText(text, tuple(hit.span() for hit in pattern.finditer(text)) if pattern else ())


def _pattern(wanted: str) -> re.Pattern[str] | None:
    words = wanted.split()
    return re.compile(r"\s{1,100}+".join(map(re.escape, words)), re.IGNORECASE) if words else None


def _around(text: str, hit: re.Match[str]) -> MatchedText:
    start, end = max(0, hit.start() - _BEFORE), min(len(text), hit.end() + _AFTER)
    return MatchedText(text[start:end], ((hit.start() - start, hit.end() - start),))


def neighbours(numbers: Sequence[int], number: int) -> tuple[int | None, int | None]:
    """The files before and after this one."""
    if number not in numbers:
        return None, None
    at = numbers.index(number)
    return (numbers[at - 1] if at else None), (numbers[at + 1] if at + 1 < len(numbers) else None)


def kind_of(content_type: str, name: str) -> str:
    """For the icon of a file without a picture; `file` if nothing is known about it."""
    lower = name.lower()
    for kind, types, endings in _TYPES:
        if content_type.startswith(types) or lower.endswith(endings):
            return kind
    return "file"


def is_pdf(content_type: str, name: str) -> bool:
    return kind_of(content_type, name) == "pdf"


def honest_name(name: str) -> str:
    """Without the signs that turn the direction of writing: `gnp.exe` must not look like `exe.png`."""
    return _DIRECTION_SIGNS.sub("", name)
