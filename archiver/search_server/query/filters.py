"""Compiles the filters of requests, checked against the settings of an index."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tantivy import Query

from archiver.search_server.errors import ApiError
from archiver.search_server.index.catalog import CatalogEntry
from archiver.search_server.index.engine import Snapshot
from archiver.search_server.query.filter_grammar import FilterError, parse_filter
from archiver.search_server.query.filter_query import FilterCompiler


def compile_filter(entry: CatalogEntry, snapshot: Snapshot, value: Any, code: str) -> Query | None:
    """The query of a filter; None for an empty filter. Raises ApiError with `code`."""
    try:
        tree = parse_filter(value)
    except FilterError as error:
        raise ApiError(code, str(error)) from error
    if tree is None:
        return None
    compiler = FilterCompiler(snapshot.index, snapshot.searcher, snapshot.schema, _attribute_of(snapshot, code))
    try:
        return compiler.compile(tree)
    except ValueError as error:
        raise ApiError(code, f"The filter can't be used: {error}") from error


def _attribute_of(snapshot: Snapshot, code: str) -> Callable[[str], str | None]:
    def find(name: str) -> str | None:
        if not snapshot.plan.is_filterable(name):
            raise ApiError(code, f"Attribute `{name}` is not filterable. {available(snapshot.plan.filterable, 'filterable')}")
        return snapshot.attributes.ids.get(name)

    return find


def available(names: tuple[str, ...] | list[str], what: str) -> str:
    if not names:
        return f"This index does not have configured {what} attributes."
    return f"Available {what} attributes are: {', '.join(f'`{name}`' for name in sorted(names))}."
