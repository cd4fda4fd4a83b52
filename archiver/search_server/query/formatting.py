"""Formats hits: selected attributes, highlights, crops and the positions of matches."""

from __future__ import annotations

import fnmatch
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import islice
from typing import Any

from archiver.search.words import WORD, count_words
from archiver.search_server.index.document_fields import number_text
from archiver.search_server.query.matching import Match, Matcher
from archiver.search_server.query.search_request import SearchRequest

_CROP_STARTS = 16
"""In a text with more matches, the passage is chosen among the first ones."""
_LONG_WORD = 40
"""Characters per word, including the space: `length` times this is more than a window."""
_USUAL_WORD = 10
"""`length` times this is usually enough, and tried first."""
_ASCII_WORD = re.compile("[0-9A-Za-z]+")


def select(document: dict[str, Any], names: list[str] | None) -> dict[str, Any]:
    """The document with only these attributes (`a.b` reaches into objects)."""
    if names is None or "*" in names:
        return document
    whole = set(names)
    nested = [name.split(".") for name in names if "." in name and name not in document]
    found = {name: value for name, value in document.items() if name in whole}
    patterns = [name for name in names if "*" in name]
    if patterns:
        fitting = {name for name in document if any(fnmatch.fnmatchcase(name, one) for one in patterns)}
        found = {name: value for name, value in document.items() if name in whole or name in fitting}
    for path in nested:
        _copy_path(document, path, found)
    return found


def _copy_path(source: Any, path: list[str], target: dict[str, Any]) -> None:
    if not isinstance(source, dict) or path[0] not in source:
        return
    value = source[path[0]]
    if len(path) == 1:
        target[path[0]] = value
    elif isinstance(value, dict):
        inner = target.setdefault(path[0], {})
        if isinstance(inner, dict):
            _copy_path(value, path[1:], inner)
    elif isinstance(value, list):
        parts: list[dict[str, Any]] = [{} for _ in value]
        for item, part in zip(value, parts, strict=True):
            _copy_path(item, path[1:], part)
        target[path[0]] = [part for part in parts if part]


@dataclass(frozen=True, slots=True)
class Formatter:
    """Formats the hits of one search."""

    request: SearchRequest
    matcher: Matcher
    displayed: list[str]
    _ways: dict[str, tuple[int | None, bool]] = field(default_factory=dict)

    def show(self, document: dict[str, Any]) -> dict[str, Any]:
        """A hit, without its score."""
        visible = select(document, self.displayed)
        retrieved = select(visible, self.request.attributes_to_retrieve)
        hit = dict(retrieved)
        crops = _crop_lengths(self.request)
        highlights = self.request.attributes_to_highlight or []
        if self.request.attributes_to_crop is not None or self.request.attributes_to_highlight is not None:
            wanted = [*highlights, *crops]
            both = {**retrieved, **(visible if "*" in wanted else select(visible, wanted))}
            hit["_formatted"] = {name: self._format(name, value, highlights, crops) for name, value in both.items()}
        if self.request.show_matches_position:
            hit["_matchesPosition"] = self._positions(visible)
        return hit

    def _format(self, path: str, value: Any, highlights: list[str], crops: dict[str, int]) -> Any:
        if isinstance(value, dict):
            return {key: self._format(f"{path}.{key}", inner, highlights, crops) for key, inner in value.items()}
        if isinstance(value, list):
            return [self._format(path, item, highlights, crops) for item in value]
        if value is None or isinstance(value, bool):
            return value
        text = value if isinstance(value, str) else number_text(value)
        crop, mark = self._ways.get(path) or self._way(path, highlights, crops)
        if not mark and crop is None:
            return text
        matches = self.matcher.find(text)
        if crop is None:
            return self._mark(text, matches, 0, len(text)) if matches else text
        start, end = crop_window(text, matches, crop)
        shown = self._mark(text, matches, start, end) if mark else text[start:end]
        marker = self.request.crop_marker
        return f"{marker if start > 0 else ''}{shown}{marker if end < len(text) else ''}"

    def _way(self, path: str, highlights: list[str], crops: dict[str, int]) -> tuple[int | None, bool]:
        """The crop length of an attribute in words, and whether it is highlighted; decided once."""
        crop = next((length for name, length in crops.items() if _names(name, path)), None)
        way = self._ways[path] = crop, any(_names(name, path) for name in highlights)
        return way

    def _mark(self, text: str, matches: list[Match], start: int, end: int) -> str:
        parts: list[str] = []
        place = start
        for match in matches:
            if match.start < start or match.end > end:
                continue
            parts.extend(
                (
                    text[place : match.start],
                    self.request.highlight_pre_tag,
                    text[match.start : match.end],
                    self.request.highlight_post_tag,
                )
            )
            place = match.end
        parts.append(text[place:end])
        return "".join(parts)

    def _positions(self, document: dict[str, Any]) -> dict[str, list[dict[str, Any]]]:
        """Starts and lengths in bytes of UTF-8, as Meilisearch counts them."""
        found: dict[str, list[dict[str, Any]]] = {}
        for path, indices, text in _texts("", document, []):
            for match in self.matcher.find(text):
                spot: dict[str, Any] = {
                    "start": len(text[: match.start].encode()),
                    "length": len(text[match.start : match.end].encode()),
                }
                if indices:
                    spot["indices"] = indices
                found.setdefault(path, []).append(spot)
        return found


def _names(name: str, path: str) -> bool:
    return name == "*" or name == path or path.startswith(f"{name}.") or ("*" in name and fnmatch.fnmatchcase(path, name))


def _crop_lengths(request: SearchRequest) -> dict[str, int]:
    lengths: dict[str, int] = {}
    for item in request.attributes_to_crop or []:
        name, _, length = item.rpartition(":")
        if name and length.isdigit():
            lengths[name] = int(length)
        else:
            lengths[item] = request.crop_length
    return lengths


def crop_window(text: str, matches: list[Match], length: int) -> tuple[int, int]:
    """The window of `length` words with the most different units, then with the most matches, then the first."""
    if length == 0:
        return 0, len(text)
    best: tuple[int, int] | None = None
    best_value = (0, 0)
    considered = matches[: _CROP_STARTS + length]
    spans = _word_spans(text, considered, length)
    behind = 0
    for place, match in enumerate(considered[:_CROP_STARTS]):
        beyond = spans[place][0] + length
        while behind < len(spans) and spans[behind][1] <= beyond:
            behind += 1
        inside = considered[place:behind]
        value = (len({other.unit for other in inside}), len(inside))
        if value > best_value:
            best, best_value = (match.start, inside[-1].end), value
    start, end = best or (0, 0)
    missing = length - count_words(text[start:end])
    if missing > 0 and start > 0:
        start = _words_back(text, start, missing // 2)
    end = max(end, _words_on(text, start, length))
    if end == len(text):
        start = _words_back(text, start, length - count_words(text[start:]))
    return start, end


def _word_spans(text: str, matches: list[Match], length: int) -> list[tuple[int, int]]:
    """For each match, the numbers of its first word and of the word after it, counted from the first match.

    Between two matches at most `length` words are counted, because no window spans more.
    """
    spans: list[tuple[int, int]] = []
    number = place = 0
    for match in matches:
        if spans:
            near = min(match.start, place + _LONG_WORD * length)
            number += min(length, count_words(text[place:near])) if near == match.start else length
        place = match.start
        spans.append((number, number + count_words(text[place : match.end])))
    return spans


def _words(text: str) -> re.Pattern[str]:
    return _ASCII_WORD if text.isascii() else WORD


def _words_on(text: str, start: int, count: int) -> int:
    """The position after `count` more words; the end of the text if it has fewer."""
    for stretch in (text[start : start + _LONG_WORD * count], text[start:]):
        words = list(islice(_words(stretch).finditer(stretch), count + 1))
        if len(words) > count:
            return start + words[-2].end()
    return len(text)


def _words_back(text: str, end: int, count: int) -> int:
    """The start of the `count` words before this position."""
    if count <= 0:
        return end
    for size in (_USUAL_WORD, _LONG_WORD):
        begin = max(0, end - size * count)
        stretch = text[begin:end]
        words = [begin + match.start() for match in _words(stretch).finditer(stretch)]
        if len(words) > count:  # (the first one may be half a word)
            return words[-count]
    return begin if begin == 0 else (words[1] if len(words) > 1 else end)


def _texts(path: str, value: Any, indices: list[int]) -> Iterator[tuple[str, list[int], str]]:
    if isinstance(value, dict):
        for key, inner in value.items():
            yield from _texts(f"{path}.{key}" if path else key, inner, indices)
    elif isinstance(value, list):
        for place, item in enumerate(value):
            yield from _texts(path, item, [*indices, place])
    elif isinstance(value, str):
        yield path, indices, value
    elif value is not None and not isinstance(value, bool):
        yield path, indices, number_text(value)
