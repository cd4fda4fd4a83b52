"""Parses what a user typed into words, phrases and negations."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from archiver.search_server.index.text import Segmenter, is_unspaced

_PIECE = re.compile(r'(?P<minus>(?<!\S)-)?(?:"(?P<quoted>[^"]*)(?:"|$)|(?P<plain>[^\s"]+))')
MAX_UNITS = 64


@dataclass(frozen=True, slots=True)
class Unit:
    """A unit of a query: a word, or several adjacent words.

    `quoted` came in quotation marks: exact, and never left out. `prefix` may go on after its last word. `typos` is how many
    a single word may have. `others` are its synonyms, each a run of words.
    """

    words: tuple[str, ...]
    quoted: bool = False
    prefix: bool = False
    typos: int = 0
    others: tuple[tuple[str, ...], ...] = ()

    @property
    def word(self) -> str | None:
        return self.words[0] if len(self.words) == 1 else None


@dataclass(frozen=True, slots=True)
class ParsedQuery:
    """The units that must match, and those that must not."""

    units: tuple[Unit, ...] = ()
    negatives: tuple[Unit, ...] = ()

    @property
    def is_placeholder(self) -> bool:
        return not self.units


def parse_query(text: str, settings: Mapping[str, Any], segmenter: Segmenter) -> ParsedQuery:
    units: list[Unit] = []
    negatives: list[Unit] = []
    end_of_last = 0
    for match in _PIECE.finditer(text):
        quoted = match["quoted"] is not None
        words = tuple(segmenter.words(match["quoted"] if quoted else match["plain"]))
        if not words:
            continue
        if match["minus"] is not None:
            negatives.append(Unit(words, quoted=quoted))
            continue
        end_of_last = match.end()
        units.append(Unit(words, quoted=quoted))
    units = _without_stop_words(units, settings["stopWords"], segmenter)[:MAX_UNITS]
    if units and end_of_last == len(text) and settings["prefixSearch"] != "disabled":
        last = units[-1]
        units[-1] = replace(last, prefix=not last.quoted and not is_unspaced(last.words[-1]))
    synonyms = _fold_synonyms(settings["synonyms"], segmenter)
    with_typos = [replace(unit, typos=typos_for(unit, settings["typoTolerance"])) for unit in units]
    return ParsedQuery(tuple(_with_synonyms(with_typos, synonyms)), tuple(negatives))


def typos_for(unit: Unit, tolerance: Mapping[str, Any]) -> int:
    word = unit.word
    if word is None or unit.quoted or not tolerance["enabled"] or word in (one.lower() for one in tolerance["disableOnWords"]):
        return 0
    if tolerance["disableOnNumbers"] and word.isdigit():
        return 0
    sizes = tolerance["minWordSizeForTypos"]
    if len(word) >= sizes["twoTypos"]:
        return 2
    return 1 if len(word) >= sizes["oneTypo"] else 0


def _without_stop_words(units: list[Unit], stop_words: list[str], segmenter: Segmenter) -> list[Unit]:
    if not stop_words:
        return units
    stopped = {word for entry in stop_words for word in segmenter.words(entry)}
    return [unit for unit in units if unit.quoted or unit.word is None or unit.word not in stopped]


def _fold_synonyms(synonyms: Mapping[str, list[str]], segmenter: Segmenter) -> dict[tuple[str, ...], list[tuple[str, ...]]]:
    found: dict[tuple[str, ...], list[tuple[str, ...]]] = {}
    for key, others in synonyms.items():
        runs = [run for run in (tuple(segmenter.words(other)) for other in others) if run]
        found.setdefault(tuple(segmenter.words(key)), []).extend(runs)
    return found


def _with_synonyms(units: list[Unit], synonyms: Mapping[tuple[str, ...], list[tuple[str, ...]]]) -> list[Unit]:
    """Longest entry first: `san francisco` before `san`."""
    if not synonyms:
        return units
    longest = max(map(len, synonyms))
    result: list[Unit] = []
    place = 0
    while place < len(units):
        taken = 1
        unit = units[place]
        for size in range(min(longest, len(units) - place), 0, -1):
            run = tuple(word for one in units[place : place + size] for word in one.words)
            if run in synonyms and not any(one.quoted for one in units[place : place + size]):
                last = units[place + size - 1]
                unit = Unit(run, prefix=last.prefix, typos=unit.typos if size == 1 else 0, others=tuple(synonyms[run]))
                taken = size
                break
        result.append(unit)
        place += taken
    return result
