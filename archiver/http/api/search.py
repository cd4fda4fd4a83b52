"""Search: hits, facets and suggestions, limited to what the caller may read."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import replace
from typing import Annotated, Literal
from zoneinfo import ZoneInfo

from fastapi import APIRouter, Query, Response
from pydantic import BaseModel, Field, TypeAdapter

from archiver.access.scope import scope_of
from archiver.errors import UsageError
from archiver.http.api.page import Page
from archiver.http.auth import Context, Searcher
from archiver.http.public_text import without_paths
from archiver.search import suggestions
from archiver.search.facets import FacetValue
from archiver.search.service import MessageHit, NotSearchable, Results
from archiver.search.suggestions import Suggestion

router = APIRouter(tags=["search"])

QueryText = Annotated[
    str,
    Query(max_length=2000, description="docs/search.md describes the query language.", examples=['from:alice "annual report"']),
]
Facet = Literal["sender", "domain", "year", "folder", "label", "type", "mailbox"]
Zone = Annotated[
    str, Query(max_length=64, description="Dates in the query are interpreted in this time zone.", examples=["Europe/Berlin"])
]


Similar = Annotated[
    bool,
    Query(description="By date, words match exactly if any message has them; this includes typos and longer forms as well."),
]


class ResultsShape(BaseModel):
    hits: list[MessageHit]
    total: int
    total_is_lower_bound: bool
    facets: dict[str, list[FacetValue]]
    not_searchable: NotSearchable
    next_offset: Annotated[int | None, Field(description="`offset` of the next page; null on the last page.")]
    similar: Annotated[
        int, Field(description="Messages beyond these with typos or longer forms of the words; `similar=true` shows them.")
    ]
    has_similar: Annotated[
        bool, Field(description="Whether messages with typos or longer forms of the words are among the hits.")
    ]


class FacetsShape(BaseModel):
    facets: dict[str, list[FacetValue]]


@router.get("/search", response_model=ResultsShape)
def search(
    principal: Searcher,
    context: Context,
    q: QueryText = "",
    sort: Literal["newest", "oldest", "best"] = "newest",
    offset: Annotated[int, Query(ge=0, le=1_000_000)] = 0,
    limit: Annotated[int, Query(ge=1, le=200)] = 20,
    facet: Annotated[list[Facet] | None, Query(description="Facets to count as well.")] = None,
    zone: Zone = "UTC",
    similar: Similar = False,
    conversations: Annotated[
        bool,
        Query(description="One hit for each conversation on the page, with its size and people; `also` has its other hits."),
    ] = False,
) -> Response:
    """`400 bad_query`: `errors` says what is wrong with the query, and where.

    Variants of a message are one hit, which lists the others, so a page may have fewer hits than `limit`. Continue at
    `next_offset`.
    """
    found = context.search.search_as(
        principal,
        q,
        sort=sort,
        offset=offset,
        limit=limit,
        facets=facet or [],
        zone=_zone(zone),
        similar=similar,
        grouped=conversations,
    )
    shown = replace(found, not_searchable=_public(found.not_searchable))
    return Response(_RESULTS.dump_json(shown), media_type="application/json")


@router.get("/facets")
def count_facets(
    principal: Searcher,
    context: Context,
    facet: Annotated[list[Facet], Query(min_length=1)],
    q: QueryText = "",
    zone: Zone = "UTC",
    similar: Similar = False,
) -> FacetsShape:
    """The number of hits for each sender, year, folder …"""
    found = context.search.search_as(principal, q, limit=0, facets=facet, zone=_zone(zone), similar=similar)
    return FacetsShape(facets=_plain(found.facets))


@router.get("/suggestions")
def suggest(principal: Searcher, context: Context, prefix: Annotated[str, Query(max_length=200)]) -> Page[Suggestion]:
    """Addresses, mailboxes and folders that start with `prefix`."""
    with context.reading() as connection:
        return Page(items=suggestions.suggest(connection, scope_of(connection, principal), prefix))


_RESULTS = TypeAdapter(Results)


def _zone(name: str) -> ZoneInfo:
    try:
        return ZoneInfo(name)
    except (ValueError, OSError, KeyError):
        raise UsageError(f"zone: unknown time zone {name!r}; use a name such as Europe/Berlin") from None


def _public(found: NotSearchable) -> NotSearchable:
    reasons: Counter[str] = Counter()
    for reason, messages in found.reasons.items():
        reasons[without_paths(reason)] += messages
    return replace(found, reasons=dict(reasons))


def _plain(facets: Mapping[str, list[FacetValue]]) -> dict[str, list[FacetValue]]:
    return {name: list(values) for name, values in facets.items()}
