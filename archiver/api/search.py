"""Searching: hits, facets and suggestions, among what one may see."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Literal
from zoneinfo import ZoneInfo

from fastapi import APIRouter, Query, Response
from pydantic import BaseModel, Field, TypeAdapter

from archiver.api.auth import Context, Searcher
from archiver.api.context import ApiContext
from archiver.api.page import Page
from archiver.errors import UsageError
from archiver.services import audit, suggestions
from archiver.services.access import scope_of
from archiver.services.principal import Principal
from archiver.services.search import Hit, NotSearchable, Results
from archiver.services.search_facets import FacetValue
from archiver.services.suggestions import Suggestion

router = APIRouter(tags=["search"])

QueryText = Annotated[
    str, Query(max_length=2000, description="docs/search.md has the language.", examples=['from:alice "annual report"'])
]
Facet = Literal["sender", "domain", "year", "folder", "label", "type", "mailbox"]
Zone = Annotated[
    str, Query(max_length=64, description="Days and years are meant in this time zone.", examples=["Europe/Berlin"])
]


class ResultsShape(BaseModel):
    hits: list[Hit]
    total: int
    total_is_lower_bound: bool
    facets: dict[str, list[FacetValue]]
    not_searchable: NotSearchable
    next_offset: Annotated[int | None, Field(description="`offset` of the next page; null on the last one.")]


class FacetsShape(BaseModel):
    facets: dict[str, list[FacetValue]]


@router.get("/search", response_model=ResultsShape)
def search(
    who: Searcher,
    context: Context,
    q: QueryText = "",
    sort: Literal["newest", "oldest", "best"] = "newest",
    offset: Annotated[int, Query(ge=0, le=1_000_000)] = 0,
    limit: Annotated[int, Query(ge=1, le=200)] = 20,
    facet: Annotated[list[Facet] | None, Query(description="Count these, too.")] = None,
    zone: Zone = "UTC",
) -> Response:
    """`400 bad_query` says what is wrong with a query, and where.

    Variants of one mail are one hit, which names the others: a page may have fewer hits than `limit`. Go on at `next_offset`.
    """
    found = _search(context, who, q, sort, offset, limit, facet or [], zone)
    audit.record_look(context.engine, who, "search.done", "search", None, query=q, offset=offset, total=found.total)
    return Response(_RESULTS.dump_json(found), media_type="application/json")


@router.get("/facets")
def count_facets(
    who: Searcher, context: Context, facet: Annotated[list[Facet], Query(min_length=1)], q: QueryText = "", zone: Zone = "UTC"
) -> FacetsShape:
    """How many of the hits each sender, year, folder … has."""
    found = _search(context, who, q, "newest", 0, 0, facet, zone)
    audit.record_look(context.engine, who, "search.done", "search", None, query=q, facets=facet)
    return FacetsShape(facets=_plain(found.facets))


@router.get("/suggestions")
def suggest(who: Searcher, context: Context, prefix: Annotated[str, Query(max_length=200)]) -> Page[Suggestion]:
    """Addresses, mailboxes and folders that begin like this."""
    with context.reading() as connection:
        return Page(items=suggestions.suggest(connection, scope_of(connection, who), prefix))


_RESULTS = TypeAdapter(Results)


def _search(
    context: ApiContext, who: Principal, query: str, sort: str, offset: int, limit: int, facets: list[Facet], zone: str
) -> Results:
    try:
        where = ZoneInfo(zone)
    except (ValueError, OSError, KeyError):
        raise UsageError(f"zone: there is no time zone {zone!r}") from None
    with context.reading() as connection:
        scope = scope_of(connection, who)
    return context.search.search(query, scope, sort=sort, offset=offset, limit=limit, facets=facets, zone=where)


def _plain(facets: Mapping[str, list[FacetValue]]) -> dict[str, list[FacetValue]]:
    return {name: list(values) for name, values in facets.items()}
