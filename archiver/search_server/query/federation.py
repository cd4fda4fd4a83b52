"""Several searches in one request: side by side, or merged into one list of hits."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from tantivy import Query

from archiver.search_server.errors import ApiError, not_supported
from archiver.search_server.index.settings import kind
from archiver.search_server.query.facets import distribution, facet_attributes
from archiver.search_server.query.ordering import DocumentHit, sort_tuple, stages
from archiver.search_server.query.ranking import any_of
from archiver.search_server.query.search_request import SearchRequest, parse_body
from archiver.search_server.query.searching import PreparedSearch, find, format_hits, ranking_score

_QUERY_EXTRA = ("indexUid", "federationOptions")
_FEDERATION = ("limit", "offset", "page", "hitsPerPage", "facetsByIndex", "mergeFacets", "distinct", "showPerformanceDetails")
Prepare = Callable[[str, SearchRequest], PreparedSearch]


@dataclass(frozen=True, slots=True)
class _Candidate:
    prepared: PreparedSearch
    position: int
    hit: DocumentHit
    score: float
    order: tuple[Any, ...]


def parse_queries(body: Any) -> list[tuple[str, SearchRequest, dict[str, Any]]]:
    if not isinstance(body, dict) or not isinstance(body.get("queries"), list):
        raise ApiError("bad_request", "Missing field `queries`")
    found: list[tuple[str, SearchRequest, dict[str, Any]]] = []
    for place, query in enumerate(body["queries"]):
        try:
            if not isinstance(query, dict) or not isinstance(query.get("indexUid"), str):
                raise ApiError("missing_index_uid", "Missing field `indexUid`")
            options = query.get("federationOptions") or {}
            if options and body.get("federation") is None:
                raise ApiError(
                    "invalid_multi_search_federation_options",
                    "Using `federationOptions` is not allowed in a non-federated search.",
                )
            found.append((query["indexUid"], parse_body(query, _QUERY_EXTRA), options))
        except ApiError as error:
            raise inside(place, error) from error
    return found


def inside(place: int, error: ApiError) -> ApiError:
    return ApiError(error.code, f"Inside `.queries[{place}]`: {error.message}")


def check_federation(value: Any, queries: list[tuple[str, SearchRequest, dict[str, Any]]]) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise ApiError(
            "invalid_multi_search_federation",
            f"Invalid value type at `.federation`: expected an object, but found {kind(value)}",
        )
    for name in value:
        if name not in _FEDERATION:
            raise ApiError("bad_request", f"Unknown field `{name}` inside `.federation`")
    if value.get("distinct") is not None:
        raise not_supported("`distinct` over a federated search")
    for place, (_, request, _) in enumerate(queries):
        if request.is_paged or request.limit != 20 or request.offset:
            raise inside(
                place,
                ApiError(
                    "invalid_multi_search_query_pagination", "Using pagination options is not allowed in federated queries."
                ),
            )
        if request.facets is not None:
            raise inside(
                place,
                ApiError("invalid_multi_search_query_facets", "Using facet options is not allowed in federated queries."),
            )
    return value


def federated(
    federation: dict[str, Any], queries: list[tuple[str, SearchRequest, dict[str, Any]]], prepare: Prepare
) -> dict[str, Any]:
    """One list of hits out of several searches: each document once, best first."""
    begun = time.perf_counter()
    paging = parse_body({name: federation[name] for name in ("limit", "offset", "page", "hitsPerPage") if name in federation})
    offset, limit = paging.window
    prepared: list[PreparedSearch] = []
    for place, (uid, request, _) in enumerate(queries):
        try:
            prepared.append(prepare(uid, request))
        except ApiError as error:
            raise inside(place, error) from error
    merged = _merge(prepared, [options for _, _, options in queries], offset + limit)
    answer: dict[str, Any] = {"hits": _shown(merged[offset : offset + limit]), "processingTimeMs": 0}
    unions = _unions(prepared)
    total = sum(first.snapshot.count(query) for first, query in unions.values())
    if paging.is_paged:
        answer.update(hitsPerPage=limit, page=paging.page or 1, totalPages=-(-total // limit) if limit else 0, totalHits=total)
    else:
        answer.update(limit=limit, offset=offset, estimatedTotalHits=total)
    answer.update(_facets(federation, unions))
    answer["processingTimeMs"] = int((time.perf_counter() - begun) * 1000)
    return answer


def _merge(prepared: list[PreparedSearch], options: list[dict[str, Any]], reach: int) -> list[_Candidate]:
    candidates: list[_Candidate] = []
    for position, (one, option) in enumerate(zip(prepared, options, strict=True)):
        weight = float(option.get("weight", 1.0))
        plan = stages(one.entry, one.sort_keys, one.ranked.scale)
        keys = [stage.key for stage in plan if stage.key is not None]
        sorts_first = bool(one.sort_keys) and one.entry.settings["rankingRules"][:1] == ["sort"]
        for hit in find(one, 0, reach).hits:
            score = ranking_score(one, hit) * weight
            order = sort_tuple(one.snapshot, keys, hit.address) if keys else ()
            rank = (order, -score) if sorts_first or one.parsed.is_placeholder else (-score, order)
            candidates.append(_Candidate(one, position, hit, score, rank))
    # ties by their position in the index, so that pages do not overlap
    candidates.sort(key=lambda one: (one.order, one.position, one.hit.address.segment_ord, one.hit.address.doc))
    seen: set[tuple[str, int, int]] = set()
    unique: list[_Candidate] = []
    for candidate in candidates:
        address = candidate.hit.address
        key = (candidate.prepared.entry.uid, address.segment_ord, address.doc)
        if key not in seen:
            seen.add(key)
            unique.append(candidate)
    return unique


def _shown(candidates: list[_Candidate]) -> list[dict[str, Any]]:
    """Formats the hits of each search together, because what is computed about its words is reused."""
    views: dict[int, dict[str, Any]] = {}
    for position in dict.fromkeys(one.position for one in candidates):
        places = [place for place, one in enumerate(candidates) if one.position == position]
        shown = format_hits(candidates[places[0]].prepared, [candidates[place].hit for place in places])
        views.update(zip(places, shown, strict=True))
    for place, one in enumerate(candidates):
        views[place]["_federation"] = {
            "indexUid": one.prepared.entry.uid,
            "queriesPosition": one.position,
            "weightedRankingScore": one.score,
        }
    return [views[place] for place in range(len(candidates))]


def _unions(prepared: list[PreparedSearch]) -> dict[str, tuple[PreparedSearch, Query]]:
    """For each index, a query for everything that any of its queries matches."""
    by_index: dict[str, list[PreparedSearch]] = {}
    for one in prepared:
        by_index.setdefault(one.entry.uid, []).append(one)
    return {uid: (group[0], any_of([one.matching for one in group])) for uid, group in by_index.items()}


def _facets(federation: dict[str, Any], unions: dict[str, tuple[PreparedSearch, Query]]) -> dict[str, Any]:
    wanted = federation.get("facetsByIndex")
    if not wanted:
        return {}
    by_index: dict[str, Any] = {}
    for uid, names in wanted.items():
        if uid in unions and names is not None:
            first, query = unions[uid]
            chosen = facet_attributes(first.snapshot, names, "invalid_multi_search_facets")
            found = distribution(first.entry, first.snapshot, query, chosen)
            by_index[uid] = {"distribution": found.counts, "stats": found.stats}
    if federation.get("mergeFacets") is None:
        return {"facetsByIndex": by_index}
    return _merge_facets(by_index, federation["mergeFacets"].get("maxValuesPerFacet") or 100)


def _merge_facets(by_index: dict[str, Any], limit: int) -> dict[str, Any]:
    counts: dict[str, dict[str, int]] = {}
    stats: dict[str, dict[str, float]] = {}
    for part in by_index.values():
        for name, values in part["distribution"].items():
            target = counts.setdefault(name, {})
            for value, count in values.items():
                target[value] = target.get(value, 0) + count
        for name, numbers in part["stats"].items():
            known = stats.setdefault(name, dict(numbers))
            known.update(min=min(known["min"], numbers["min"]), max=max(known["max"], numbers["max"]))
    trimmed = {name: dict(sorted(values.items())[:limit]) for name, values in counts.items()}
    return {"facetDistribution": trimmed, "facetStats": stats}
