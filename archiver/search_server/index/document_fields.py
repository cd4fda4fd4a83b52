"""Converts a JSON document to the fields of a Tantivy document.

Fields of every index (an attribute is called by its short id in them, see `Attributes`):

id      the primary key, whole              seq   the order of first arrival, a column
t       JSON: words of each searchable attribute, with positions
w       the words of the searchable attributes together, without positions: prefixes and typos are looked up here, and not in
        each attribute; the words of long attributes (`Attributes.long`, two at most) are in `t` only, and looked up there
p       the first words of each searchable attribute, with how near to its beginning they are (`word_positions`)
f       JSON: values of filterable attributes, `s` + folded text or a number, also as columns (facets)
m       marks, separated by spaces: `t:` top-level attribute, and of filterable ones `e:` exists, `n:` null, `y:` empty
raw     the document itself, stored once
c<i>na, c<i>nd, c<i>ta, c<i>td   columns for sorting: the smallest and the greatest number and text
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import tantivy

from archiver.search_server.index.plan import FieldPlan
from archiver.search_server.index.text import fold_value
from archiver.search_server.index.word_positions import position_terms

_COLUMN_TEXT = 256
_LONG_TEXT = 1_000
_MAX_LONG = 2
_PLAIN = frozenset({str, int, float, bool})
_NULL, _EMPTY = 1, 2


class Attributes:
    """Short ids of attribute paths, assigned on first use and never reused."""

    def __init__(self, names: list[str], folded: set[str], long: list[str]) -> None:
        self.names = names
        self.long = long  # short ids of attributes with long texts
        self.ids = {name: f"a{place}" for place, name in enumerate(names)}
        self.folded = folded  # attributes whose values are compared in another form than written
        self.originals: dict[tuple[str, str], str] = {}  # the original spelling of folded values, as far as requested
        self.changed = False

    def id_of(self, name: str) -> str:
        found = self.ids.get(name)
        if found is None:
            found = self.ids[name] = f"a{len(self.names)}"
            self.names.append(name)
            self.changed = True
        return found

    def note_long(self, name: str) -> None:
        if name not in self.long and len(self.long) < _MAX_LONG:
            self.long.append(name)
            self.changed = True

    def note_folded(self, name: str) -> None:
        if name not in self.folded:
            self.folded.add(name)
            self.changed = True


@dataclass(slots=True)
class _Route:
    """How an attribute path is indexed, decided once."""

    name: str
    top: str
    marks: tuple[str, str, str, str]
    searchable: bool
    filterable: bool
    column: int | None


def schema_for(plan: FieldPlan) -> tantivy.Schema:
    builder = tantivy.SchemaBuilder()
    builder.add_text_field("id", tokenizer_name="raw", index_option="basic")
    builder.add_unsigned_field("seq", fast=True)
    builder.add_json_field("t", tokenizer_name="words", index_option="position")
    builder.add_text_field("w", tokenizer_name="words", index_option="basic")
    if plan.has_positions:
        builder.add_text_field("p", tokenizer_name="whitespace", index_option="basic")
    builder.add_json_field("f", fast=True, tokenizer_name="raw", index_option="basic")
    builder.add_text_field("m", tokenizer_name="whitespace", index_option="basic")
    builder.add_bytes_field("raw", stored=True)
    for place in range(len(plan.columns)):
        for order in "ad":
            builder.add_float_field(f"c{place}n{order}", fast=True)
            builder.add_text_field(f"c{place}t{order}", fast=True, tokenizer_name="raw", index_option="basic")
    return builder.build()


class RowBuilder:
    """Builds Tantivy documents by one plan."""

    def __init__(self, plan: FieldPlan, attributes: Attributes) -> None:
        self._plan = plan
        self._attributes = attributes
        self._routes: dict[str, _Route] = {}

    def build(self, document_id: str, sequence: int, document: dict[str, Any], raw: bytes) -> tantivy.Document:
        row = tantivy.Document()
        row.add_text("id", document_id)
        row.add_unsigned("seq", sequence)
        row.add_bytes("raw", raw)
        words: dict[str, list[str]] = {}
        values: dict[str, list[Any]] = {}
        marks = [(self._routes.get(name) or self._route(name)).top for name in document]
        found, missing = _collect_all(document)
        for path, leaves in found.items():
            route = self._routes.get(path) or self._route(path)
            if route.searchable:
                texts = self._texts(leaves)
                if texts:
                    words[route.name] = texts
                    if len(texts[0]) > _LONG_TEXT:
                        self._attributes.note_long(route.name)
            if route.filterable:
                marks.append(route.marks[missing.get(path, 0)])
                kept = self._filter_values(route.name, leaves)
                if kept:
                    values[route.name] = kept
            if route.column is not None:
                _add_columns(row, route.column, leaves)
        row.add_text("m", " ".join(marks))
        if words:
            row.add_json("t", words)
            long = self._attributes.long
            if self._plan.has_positions:
                row.add_text("p", " ".join([term for name, texts in words.items() for term in position_terms(name, texts)]))
            row.add_text("w", "\n".join(["\n".join(texts) for name, texts in words.items() if name not in long]))
        if values:
            row.add_json("f", values)
        return row

    def _route(self, path: str) -> _Route:
        name = self._attributes.id_of(path)
        exists, null, empty = f"e:{name}", f"n:{name}", f"y:{name}"
        route = self._routes[path] = _Route(
            name=name,
            top=f"t:{name}",
            marks=(exists, f"{exists} {null}", f"{exists} {empty}", f"{exists} {null} {empty}"),
            searchable=self._plan.is_searchable(path),
            filterable=self._plan.is_filterable(path),
            column=self._plan.columns.index(path) if path in self._plan.columns else None,
        )
        return route

    def _texts(self, values: list[Any]) -> list[str]:
        prepare = self._plan.segmenter.prepare
        texts: list[str] = []
        for value in values:
            text = prepare(value if isinstance(value, str) else _as_text(value))
            # a text that reads as an RFC 3339 date would become a date inside a JSON field
            if 20 <= len(text) <= 40 and text[4] == "-":
                text += " "
            if text:
                texts.append(text)
        return texts

    def _filter_values(self, name: str, values: list[Any]) -> list[Any]:
        found: dict[Any, None] = {}
        for value in values:
            if isinstance(value, str):
                folded = fold_value(value)
                found["s" + folded] = None
                if folded != value:
                    self._attributes.note_folded(name)
            else:
                found[canonical_number(value) if is_number(value) else "s" + _as_text(value)] = None
        return list(found)


def _collect_all(document: dict[str, Any]) -> tuple[dict[str, list[Any]], dict[str, int]]:
    """All attribute paths of a document with their values, and what is absent: _NULL, _EMPTY, or both."""
    found: dict[str, list[Any]] = {}
    missing: dict[str, int] = {}
    for name, value in document.items():
        kind = type(value)
        if kind is list and value and _PLAIN.issuperset(map(type, value)):
            found[name] = value
        elif kind in _PLAIN and value != "":
            found[name] = [value]
        else:
            _collect(name, value, found, missing)
    return found, missing


def _collect(path: str, value: Any, found: dict[str, list[Any]], missing: dict[str, int]) -> None:
    leaves: list[Any] = []
    if value is None:
        missing[path] = missing.get(path, 0) | _NULL
    elif value in ("", [], {}):
        missing[path] = missing.get(path, 0) | _EMPTY
    if isinstance(value, dict):
        for key, inner in value.items():
            _collect(f"{path}.{key}", inner, found, missing)
    elif isinstance(value, list):
        for item in _flat(value):
            if isinstance(item, dict):
                for key, inner in item.items():
                    _collect(f"{path}.{key}", inner, found, missing)
            elif item is not None:
                leaves.append(item)
    elif value is not None:
        leaves.append(value)
    found[path] = [*found.get(path, ()), *leaves]


def _flat(items: list[Any]) -> Iterator[Any]:
    for item in items:
        if isinstance(item, list):
            yield from _flat(item)
        else:
            yield item


def _as_text(value: Any) -> str:
    if isinstance(value, str):
        return value
    if isinstance(value, bool):
        return "true" if value else "false"
    return number_text(value)


def is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def number_text(value: float) -> str:
    """A number in facets: without an unnecessary fraction."""
    return str(int(value)) if value == int(value) and abs(value) < 1e15 else str(value)


def canonical_number(value: int | float) -> int | float:
    """Equal numbers become equal terms: integers if they fit into 64 bits, all others floats."""
    if isinstance(value, float):
        return int(value) if value.is_integer() and abs(value) < 2**63 else value
    return value if -(2**63) <= value < 2**63 else float(value)


def _add_columns(row: tantivy.Document, place: int, values: list[Any]) -> None:
    numbers = [float(value) for value in values if is_number(value)]
    if numbers:
        row.add_float(f"c{place}na", min(numbers))
        row.add_float(f"c{place}nd", max(numbers))
    texts = [fold_value(_as_text(value))[:_COLUMN_TEXT] for value in values if not is_number(value)]
    if texts:
        row.add_text(f"c{place}ta", min(texts))
        row.add_text(f"c{place}td", max(texts))
