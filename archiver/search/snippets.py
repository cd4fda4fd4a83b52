"""The passage of a message that answers a query, with its marks, and where it was found. Pure.

Two looks are enough: most hits show a mark in the text of the mail, its subject, its people or file names; for the others the
texts of attachments are asked for, with the places of all matches.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from archiver.search.asking import CLOSE_MARK, OPEN_MARK
from archiver.search.document import PEOPLE, TEXTS, place_of

_WORDS: Final = 32
_MARKS: Final = {"highlightPreTag": OPEN_MARK, "highlightPostTag": CLOSE_MARK, "cropLength": _WORDS, "cropMarker": "…"}
_NEAR: Final = ("subject", "filenames", *PEOPLE)
FIRST_LOOK: Final[dict[str, Any]] = {
    "attributesToRetrieve": ["id"],
    "attributesToCrop": [TEXTS[0], TEXTS[1]],
    "attributesToHighlight": [TEXTS[0], TEXTS[1], *_NEAR],
    **_MARKS,
}
SECOND_LOOK: Final[dict[str, Any]] = {
    "attributesToRetrieve": ["id", "pages"],
    "attributesToCrop": list(TEXTS[2:]),
    "attributesToHighlight": list(TEXTS[2:]),
    "showMatchesPosition": True,
    **_MARKS,
}


@dataclass(frozen=True, slots=True)
class Marked:
    """A text, and the stretches of it (start, end) that the query matches."""

    text: str = ""
    marks: tuple[tuple[int, int], ...] = ()


@dataclass(frozen=True, slots=True)
class Snippet:
    """`found_in` names the file, and the page where it has pages, if the passage is from an attachment."""

    passage: Marked = Marked()
    subject: Marked = Marked()
    found_in: str | None = None
    is_sure: bool = True
    """False: nothing of what was looked at has a match; a second look may find it."""


def first_snippet(hit: Mapping[str, Any], *, has_text: bool) -> Snippet:
    formatted = hit.get("_formatted", {})
    subject = unmarked(formatted.get("subject", ""))
    passages = [unmarked(one) for name in TEXTS[:2] for one in _strings(formatted.get(name))]
    best = max(passages, key=lambda one: len({one.text[start:end].lower() for start, end in one.marks}), default=Marked())
    if best.marks or not has_text:
        return Snippet(best, subject)
    file = next((one for one in map(unmarked, _strings(formatted.get("filenames"))) if one.marks), None)
    if file is not None:
        return Snippet(best, subject, file.text)
    near = any(OPEN_MARK in one for name in _NEAR for one in _strings(formatted.get(name)))
    return Snippet(best, subject, is_sure=near)


def second_snippet(first: Snippet, hit: Mapping[str, Any]) -> Snippet:
    formatted, positions = hit.get("_formatted", {}), hit.get("_matchesPosition", {})
    for name in TEXTS[2:]:
        for text in _strings(formatted.get(name)):
            passage = unmarked(text)
            if passage.marks:
                place = place_of(hit, name, _start(passage, positions.get(name, ())))
                return Snippet(passage, first.subject, shown_place(place))
    return first


def shown_place(place: tuple[str, int] | None) -> str | None:
    if place is None:
        return None
    file, page = place
    return f"{file or 'an attachment'}, page {page}" if page else file or "an attachment"


def unmarked(text: str) -> Marked:
    """Takes the marks out of a text and keeps their places."""
    pieces: list[str] = []
    marks: list[tuple[int, int]] = []
    length = 0
    for place, piece in enumerate(text.split(OPEN_MARK)):
        inside, _, after = piece.partition(CLOSE_MARK) if place else ("", "", piece)
        if place:
            marks.append((length, length + len(inside)))
        pieces += [inside, after]
        length += len(inside) + len(after)
    return Marked("".join(pieces), tuple(marks))


def _start(passage: Marked, matches: Iterable[Mapping[str, Any]]) -> int:
    """Where in the attribute the passage comes from: the first matches that lie as its marks do, in bytes as engines count."""
    (first, _), *_ = passage.marks
    wanted = [(len(passage.text[first:start].encode()), len(passage.text[start:end].encode())) for start, end in passage.marks]
    known = [(int(match["start"]), int(match["length"])) for match in matches]
    for place, (begin, _) in enumerate(known):
        if [(start - begin, length) for start, length in known[place : place + len(wanted)]] == wanted:
            return begin
    return known[0][0] if known else 0


def _strings(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, list):
        yield from (one for one in value if isinstance(one, str))
