"""Splits long text into pieces that an engine indexes completely.

Meilisearch numbers the words of an attribute up to 65,535 and silently drops the rest. The end of a sentence counts as seven
more words, so positions are counted rather than words.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from archiver.search.words import count_words

POSITIONS: Final = 60_000
_GAP: Final = 7
_ASCII_SIGNS: Final = b".;,!?()[]{}|\n"
_WIDE_SIGNS: Final = "。、，！？；：「」『』（）"
_CHARS_PER_POSITION: Final = 6
_OVERLAP_CHARS: Final = 400  # a phrase across a cut is found in the next piece
_SHORT: Final = POSITIONS // (_GAP + 1)


def positions(text: str) -> int:
    """An upper bound of the positions that an engine counts for this text."""
    if len(text) <= _SHORT // 4:
        return len(text) * (_GAP + 1)
    is_ascii = text.isascii()
    data = text.encode("utf-8", "replace")
    signs = len(data) - len(data.translate(None, _ASCII_SIGNS))
    if not is_ascii:
        signs += sum(map(text.count, _WIDE_SIGNS))
    gaps = _GAP * signs + _GAP + 1
    rough = gaps + (len(text) // 2 + 1 if is_ascii else len(text))  # in ASCII, at least one character separates two words
    return rough if rough <= POSITIONS // 2 else gaps + count_words(text)


class Pieces:
    """Collects passages into texts of at most POSITIONS: each a list of passages, or `joined` by newlines, with marks."""

    def __init__(self, *, joined: bool = False) -> None:
        self._joined = joined
        self._texts: list[list[tuple[str, Any]]] = []
        self._room = 0

    def add(self, passage: str, mark: Any = None) -> None:
        for part, cost in split_long(passage):
            if cost > self._room:
                self._texts.append([])
                self._room = POSITIONS
            self._texts[-1].append((part, mark))
            self._room -= cost

    def texts(self) -> list[str | list[str]]:
        return [text[0][0] if len(text) == 1 else [passage for passage, _ in text] for text in self._texts]

    def joined_texts(self) -> Iterator[tuple[str, list[tuple[int, Any]]]]:
        """Each text with the byte offset (UTF-8, as engines count) of each passage, and its mark."""
        for text in self._texts:
            starts: list[tuple[int, Any]] = []
            place = 0
            for passage, mark in text:
                starts.append((place, mark))
                place += len(passage.encode("utf-8", "replace")) + 1
            yield "\n".join(passage for passage, _ in text), starts


def split_long(text: str) -> Iterator[tuple[str, int]]:
    """The text in one part, or in overlapping parts that are cut between words; each with its number of positions."""
    start = 0
    while True:
        size = min(len(text) - start, POSITIONS * _CHARS_PER_POSITION)
        while (cost := positions(text[start : start + size])) > POSITIONS:
            size = size * 3 // 4
        if start + size == len(text):
            yield text[start:], cost
            return
        end = _between_words(text, start + size)
        yield text[start:end], cost
        start = _between_words(text, end - _OVERLAP_CHARS)


def _between_words(text: str, place: int) -> int:
    """The last white space before this offset, or the offset itself if there is none nearby."""
    begin = max(0, place - _OVERLAP_CHARS)
    return next((at for at in range(place, begin, -1) if text[at : at + 1].isspace()), place)
