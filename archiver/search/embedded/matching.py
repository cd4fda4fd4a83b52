"""Where the words of a query stand in a text: for marks, crops and positions."""

from __future__ import annotations

from dataclasses import dataclass, field

from archiver.search.embedded.query_terms import ParsedQuery, Unit
from archiver.search.embedded.text import Segmenter, Token


@dataclass(frozen=True, slots=True)
class Match:
    """A stretch of a text that a unit of the query matches; `first` and `last` count words."""

    start: int
    end: int
    first: int
    last: int
    unit: int


@dataclass(slots=True)
class Matcher:
    """Finds the units of one query. Words that were looked at are remembered."""

    parsed: ParsedQuery
    segmenter: Segmenter
    _known: dict[tuple[str, int], int] = field(default_factory=dict)

    def find(self, text: str) -> tuple[list[Token], list[Match]]:
        """The words of the text and the matches in it, in order and without overlaps."""
        tokens = self.segmenter.tokens(text)
        found: list[Match] = []
        for number, unit in enumerate(self.parsed.units):
            for run in (unit.words, *unit.others):
                if len(run) == 1:
                    found.extend(self._single(text, tokens, number, unit, run[0]))
                else:
                    found.extend(self._run(tokens, number, unit, run))
        found.sort(key=lambda match: (match.start, -match.end))
        clean: list[Match] = []
        for match in found:
            if not clean or match.start >= clean[-1].end:
                clean.append(match)
        return tokens, clean

    def _single(self, text: str, tokens: list[Token], number: int, unit: Unit, word: str) -> list[Match]:
        known = self._known
        found: list[Match] = []
        for place, token in enumerate(tokens):
            key = (token.word, number)
            size = known.get(key)
            if size is None:
                size = known[key] = _matched(token.word, word, unit)
            if size:
                plain = token.end - token.start == len(token.word)
                end = token.start + size if plain and size < len(token.word) else token.end
                found.append(Match(token.start, end, place, place, number))
        return found

    def _run(self, tokens: list[Token], number: int, unit: Unit, words: tuple[str, ...]) -> list[Match]:
        found: list[Match] = []
        last = len(words) - 1
        for place, token in enumerate(tokens):
            if token.word != words[0] or place + last >= len(tokens):
                continue
            fits = all(tokens[place + step].word == words[step] for step in range(1, last))
            final = tokens[place + last]
            if fits and (final.word == words[last] or (unit.prefix and final.word.startswith(words[last]))):
                found.append(Match(token.start, final.end, place, place + last, number))
        return found


def _matched(token: str, word: str, unit: Unit) -> int:
    """How many characters of the token the word accounts for; 0 when they do not match."""
    if token == word:
        return len(token)
    if unit.prefix and token.startswith(word):
        return len(word)
    if unit.typos and abs(len(token) - len(word)) <= unit.typos and distance(token, word, unit.typos) <= unit.typos:
        return len(token)
    if unit.typos and unit.prefix and len(token) > len(word):
        for size in range(max(1, len(word) - unit.typos), len(word) + unit.typos + 1):
            if distance(token[:size], word, unit.typos) <= unit.typos:
                return min(size, len(token))
    return 0


def distance(left: str, right: str, limit: int) -> int:
    """Edits between two words, a swap of neighbours counting as one; `limit + 1` when there are more."""
    if abs(len(left) - len(right)) > limit:
        return limit + 1
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
    return before[-1]
