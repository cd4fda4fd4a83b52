"""The passage of a message that matches a query, with its highlights, and where it was found. Pure.

Two requests are enough: most hits have a match in the text of the mail, its subject, its people or file names; for the others
the texts of attachments are requested, with the positions of all matches.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from archiver.search.document import PEOPLE, TEXTS, place_of
from archiver.search.searcher import CLOSE_MARK, OPEN_MARK

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

BEGINNING: Final[dict[str, Any]] = {"attributesToRetrieve": ["id"], "attributesToCrop": [TEXTS[0]], "cropLength": 40}


@dataclass(frozen=True, slots=True)
class MatchedText:
    """A text, and the ranges (start, end) that the query matches."""

    text: str = ""
    marks: tuple[tuple[int, int], ...] = ()


@dataclass(frozen=True, slots=True)
class Snippet:
    """`found_in` names the file, and the page if it has pages, of a passage from an attachment."""

    passage: MatchedText = MatchedText()
    subject: MatchedText = MatchedText()
    found_in: str | None = None
    is_sure: bool = True
    """False if nothing that was inspected has a match; the second request may find it."""


def first_snippet(hit: Mapping[str, Any], *, has_text: bool) -> Snippet:
    formatted = hit.get("_formatted", {})
    subject = remove_marks(formatted.get("subject", ""))
    passages = [remove_marks(one) for name in TEXTS[:2] for one in _strings(formatted.get(name))]
    best = max(passages, key=lambda one: len({one.text[start:end].lower() for start, end in one.marks}), default=MatchedText())
    if best.marks or not has_text:
        return Snippet(best, subject)
    file = next((one for one in map(remove_marks, _strings(formatted.get("filenames"))) if one.marks), None)
    if file is not None:
        return Snippet(best, subject, file.text)
    near = any(OPEN_MARK in one for name in _NEAR for one in _strings(formatted.get(name)))
    return Snippet(best, subject, is_sure=near)


def second_snippet(first: Snippet, hit: Mapping[str, Any]) -> Snippet:
    formatted, positions = hit.get("_formatted", {}), hit.get("_matchesPosition", {})
    for name in TEXTS[2:]:
        for text in _strings(formatted.get(name)):
            passage = remove_marks(text)
            if passage.marks:
                place = place_of(hit, name, _start(passage, positions.get(name, ())))
                return Snippet(passage, first.subject, format_place(place))
    return first


def beginning_of(hit: Mapping[str, Any]) -> str:
    return " ".join(" ".join(_strings(hit.get("_formatted", {}).get(TEXTS[0]))).split())


def format_place(place: tuple[str, int] | None) -> str | None:
    if place is None:
        return None
    file, page = place
    return f"{file or 'an attachment'}, page {page}" if page else file or "an attachment"


def remove_marks(text: str) -> MatchedText:
    """Removes the marks from a text and returns their positions."""
    pieces: list[str] = []
    marks: list[tuple[int, int]] = []
    length = 0
    for place, piece in enumerate(text.split(OPEN_MARK)):
        inside, _, after = piece.partition(CLOSE_MARK) if place else ("", "", piece)
        if place:
            marks.append((length, length + len(inside)))
        pieces += [inside, after]
        length += len(inside) + len(after)
    return MatchedText("".join(pieces), tuple(marks))


def _start(passage: MatchedText, matches: Iterable[Mapping[str, Any]]) -> int:
    """The passage's offset in the attribute: where matches have the same spacing as its marks, in bytes as engines count."""
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
