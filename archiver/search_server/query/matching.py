"""Finds the words of a query in a text, for highlights, crops and positions.

The words are searched for in the folded text, which maps its characters to the original. If settings of the index say
what separates words, the text is cut into words that are folded one by one. Words with typos are looked for where the word as
it was typed is not found, among the different words of a text, and remembered for the next one.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import pairwise
from typing import NamedTuple

from archiver.search_server.index.text import Segmenter, folded_text, joins
from archiver.search_server.query.query_terms import ParsedQuery, Unit

_WORDS = re.compile(r"[^\W_]+")
_ASCII_SIGNS = {code: " " for code in range(128) if not chr(code).isalnum()}


class Match(NamedTuple):
    """A range of a text that a unit of the query matches."""

    start: int
    end: int
    unit: int


@dataclass(slots=True)
class Matcher:
    """Finds the units of one query."""

    parsed: ParsedQuery
    segmenter: Segmenter
    _seen: dict[int, set[str]] = field(default_factory=dict)
    _variants: dict[int, dict[str, int]] = field(default_factory=dict)

    def find(self, text: str) -> list[Match]:
        """The matches, in order and without overlaps."""
        if not self.parsed.units:
            return []
        found = self._in_plain(text) if self.segmenter.plain else list(self._in_words(text))
        if len(found) < 2:
            return found
        found.sort(key=lambda match: (match.start, -match.end))
        clean: list[Match] = []
        for match in found:
            if not clean or match.start >= clean[-1].end:
                clean.append(match)
        return clean

    def _in_plain(self, text: str) -> list[Match]:
        folded = folded_text(text)
        found = self._in_folded(folded.text)
        if not folded.starts:
            return found
        return [Match(folded.origin(match.start), folded.origin(match.end), match.unit) for match in found]

    def _in_folded(self, text: str) -> list[Match]:
        everything: list[Match] = []
        different: set[str] | None = None
        for number, unit in enumerate(self.parsed.units):
            found: list[Match] = []
            for run in (unit.words, *unit.others):
                if run[0] in text:
                    found += (
                        _plain_word(text, number, run[0], prefix=unit.prefix)
                        if len(run) == 1
                        else _plain_run(text, number, run, prefix=unit.prefix)
                    )
            everything += found
            if unit.typos and not found:
                if different is None:
                    different = _different_words(text)
                variants = self._misspelt(different, number, unit)
                for variant in different & variants.keys():
                    everything += _plain_variant(text, number, variant, variants[variant])
        return everything

    def _in_words(self, text: str) -> Iterator[Match]:
        tokens = self.segmenter.tokens(text)
        for number, unit in enumerate(self.parsed.units):
            found = [
                match for run in (unit.words, *unit.others) for match in _token_run(tokens, number, run, prefix=unit.prefix)
            ]
            yield from found
            if unit.typos and not found:
                variants = self._misspelt({word for _, _, word in tokens}, number, unit)
                for start, end, word in tokens:
                    if word in variants:
                        yield Match(start, _end(start, end, word, variants[word]), number)

    def _misspelt(self, words: set[str], number: int, unit: Unit) -> dict[str, int]:
        """All words so far that match the unit's word with typos, and the matched length; each word is checked once."""
        seen = self._seen.setdefault(number, set())
        variants = self._variants.setdefault(number, {})
        shortest = len(unit.words[0]) - unit.typos
        longest = 1000 if unit.prefix else len(unit.words[0]) + unit.typos
        letters, reach = set(unit.words[0]), len(unit.words[0]) + unit.typos
        kept = _pieces(unit.words[0], unit.typos)
        for word in [word for word in words - seen if shortest <= len(word) <= longest and kept(word) is not None]:
            if len(letters.difference(word[:reach])) <= unit.typos:
                size = matched_size(word, unit)
                if size:
                    variants[word] = size
        seen |= words
        return variants


def _different_words(text: str) -> set[str]:
    return set(text.translate(_ASCII_SIGNS).split() if text.isascii() else _WORDS.findall(text))


@lru_cache(maxsize=256)
def _pieces(word: str, typos: int) -> Callable[[str], object]:
    """Searches for any piece of a word: a typo damages at most two pieces (a swap), so one piece stays intact."""
    count = 2 * typos + 1
    cuts = [len(word) * place // count for place in range(count + 1)]
    pieces = {word[start:end] for start, end in pairwise(cuts)}
    return re.compile("|".join(map(re.escape, sorted(pieces)))).search


def _plain_word(text: str, number: int, word: str, *, prefix: bool) -> list[Match]:
    """A special case for a single word, the most frequent one."""
    found: list[Match] = []
    first, last, size, length = joins(word[0]), joins(word[-1]), len(word), len(text)
    place = text.find(word)
    while place >= 0:
        end = place + size
        if (place == 0 or not first or not joins(text[place - 1])) and (
            prefix or end == length or not last or not joins(text[end])
        ):
            found.append(Match(place, end, number))
        place = text.find(word, place + 1)
    return found


def _plain_run(text: str, number: int, words: tuple[str, ...], *, prefix: bool) -> Iterator[Match]:
    """Adjacent words; if the last one continues, only its beginning is highlighted."""
    first, last = words[0], len(words) - 1
    place = text.find(first)
    while place >= 0:
        end = place + len(first)
        if place == 0 or not _inside(text, place):
            for step in range(1, last + 1):
                if _inside(text, end):
                    break
                end = _skip_signs(text, end)
                if not text.startswith(words[step], end):
                    break
                end += len(words[step])
            else:
                if prefix or not _inside(text, end):
                    yield Match(place, end, number)
        place = text.find(first, place + 1)


def _inside(text: str, place: int) -> bool:
    """Whether a word spans this position."""
    return place < len(text) and joins(text[place - 1]) and joins(text[place])


def _skip_signs(text: str, place: int) -> int:
    while place < len(text) and not text[place].isalnum():
        place += 1
    return place


def _plain_variant(text: str, number: int, word: str, size: int) -> Iterator[Match]:
    for match in _plain_word(text, number, word, prefix=False):
        yield Match(match.start, match.start + size, number)


def _token_run(tokens: list[tuple[int, int, str]], number: int, words: tuple[str, ...], *, prefix: bool) -> Iterator[Match]:
    last = len(words) - 1
    final = words[last]
    for place in range(len(tokens) - last):
        word = tokens[place + last][2]
        if word != final and not (prefix and word.startswith(final)):
            continue
        if all(tokens[place + step][2] == words[step] for step in range(last)):
            start, end, _ = tokens[place + last]
            yield Match(tokens[place][0], _end(start, end, word, len(final)), number)


def _end(start: int, end: int, word: str, size: int) -> int:
    """The end of the highlight: after `size` letters, if the folded word has as many letters as the original."""
    return end if size >= len(word) or end - start != len(word) else start + size


def matched_size(token: str, unit: Unit) -> int:
    """How many characters of a word in the text the unit's word covers; 0 if they do not match."""
    word = unit.word
    assert word is not None
    if token == word:
        return len(token)
    if unit.prefix and token.startswith(word):
        return len(word)
    if not unit.typos:
        return 0
    if distance(token, word, unit.typos) <= unit.typos:
        return len(token)
    if unit.prefix and len(token) > len(word):
        for size in range(len(word) - unit.typos, len(word) + unit.typos + 1):
            if distance(token[:size], word, unit.typos) <= unit.typos:
                return min(size, len(token))
    return 0


def distance(left: str, right: str, limit: int) -> int:
    """The number of edits between two words, where swapping neighbours is one edit; `limit + 1` if there are more."""
    if abs(len(left) - len(right)) > limit:
        return limit + 1
    start = 0
    shorter = min(len(left), len(right))
    while start < shorter and left[start] == right[start]:
        start += 1
    end = 0
    while end < shorter - start and left[-1 - end] == right[-1 - end]:
        end += 1
    left, right = left[start : len(left) - end], right[start : len(right) - end]
    if not left or not right:
        return min(limit + 1, max(len(left), len(right)))
    return _edits(left, right, limit)


def _edits(left: str, right: str, limit: int) -> int:
    two_ago: list[int] = []
    before = list(range(len(right) + 1))
    for row, one in enumerate(left, start=1):
        current = [row]
        for column, other in enumerate(right, start=1):
            cost = min(before[column] + 1, current[-1] + 1, before[column - 1] + (one != other))
            if row > 1 and column > 1 and one == right[column - 2] and left[row - 2] == other:
                cost = min(cost, two_ago[column - 2] + 1)
            current.append(cost)
        if min(current) > limit:
            return limit + 1
        two_ago, before = before, current
    return min(limit + 1, before[-1])
