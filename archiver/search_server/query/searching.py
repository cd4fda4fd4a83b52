"""Runs one search, from request to response, in a thread of the search pool."""

from __future__ import annotations

import time
from collections.abc import Callable
from concurrent.futures import Executor
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

from tantivy import Occur, Order, Query

from archiver.search_server.errors import ApiError
from archiver.search_server.index.catalog import CatalogEntry
from archiver.search_server.index.engine import Snapshot
from archiver.search_server.index.plan import covered
from archiver.search_server.query.facets import distribution, document_values, facet_attributes
from archiver.search_server.query.filters import available, compile_filter
from archiver.search_server.query.formatting import Formatter
from archiver.search_server.query.matching import Matcher
from archiver.search_server.query.ordering import (
    DocumentHit,
    SortKey,
    best_first,
    breaks_ties,
    by_arrival,
    counted_by_key,
    key_decides,
    parse_sort,
    sorted_hits,
    stages,
)
from archiver.search_server.query.query_terms import ParsedQuery, parse_query
from archiver.search_server.query.ranking import SCORED_UNITS, RankedQuery, Ranker, rules_in_order
from archiver.search_server.query.search_request import SearchRequest


@dataclass(frozen=True, slots=True)
class PreparedSearch:
    """A compiled search that has not run yet."""

    entry: CatalogEntry
    snapshot: Snapshot
    request: SearchRequest
    parsed: ParsedQuery
    ranked: RankedQuery
    scored: Query
    matching: Query
    sort_keys: list[SortKey]
    facet_names: list[str]
    degraded: bool


@dataclass(slots=True)
class HitWindow:
    """The hits of one window, and the total number of hits."""

    hits: list[DocumentHit] = field(default_factory=list)
    total: int = 0


def prepare(entry: CatalogEntry, request: SearchRequest, *, rules_filter: Any = None, degraded: bool = False) -> PreparedSearch:
    """`rules_filter` is the filter of a tenant token, which narrows every search."""
    snapshot = entry.engine.snapshot()
    filters = [compile_filter(entry, snapshot, one, "invalid_search_filter") for one in (request.filter, rules_filter)]
    parsed = parse_query(request.q or "", entry.settings, snapshot.plan.segmenter)
    narrowing = [Query.const_score_query(one, 0.0) for one in filters if one is not None]
    ranked = _ranker(entry, snapshot, request, narrowing, degraded=degraded).build(parsed, request.matching_strategy)
    return PreparedSearch(
        entry=entry,
        snapshot=snapshot,
        request=request,
        parsed=ranked.parsed,
        ranked=ranked,
        scored=_narrow(ranked.scored, narrowing),
        matching=_narrow(ranked.matching, narrowing),
        sort_keys=parse_sort(entry, request.sort),
        facet_names=facet_attributes(snapshot, request.facets or []),
        degraded=degraded,
    )


def _narrow(query: Query, narrowing: list[Query]) -> Query:
    return Query.boolean_query([(Occur.Must, one) for one in (query, *narrowing)]) if narrowing else query


def _ranker(
    entry: CatalogEntry, snapshot: Snapshot, request: SearchRequest, narrowing: list[Query], *, degraded: bool
) -> Ranker:
    attributes = searchable_attributes(entry, snapshot)
    restricted = request.attributes_to_search_on is not None and "*" not in request.attributes_to_search_on
    if restricted:
        wanted = request.attributes_to_search_on or []
        searchable = entry.settings["searchableAttributes"]
        for name in wanted:
            if "*" not in searchable and not covered(name, searchable) and "*" not in name:
                raise ApiError(
                    "invalid_search_attributes_to_search_on",
                    f"Attribute `{name}` is not searchable. {available(searchable, 'searchable')}",
                )
        attributes = [name for name in attributes if covered(name, wanted)]
    ids = snapshot.attributes.ids
    no_typos = entry.settings["typoTolerance"]["disableOnAttributes"]
    return Ranker(
        snapshot=snapshot,
        attributes=tuple(ids[name] for name in attributes),
        restricted=restricted,
        no_typos_on=frozenset(ids[name] for name in attributes if covered(name, no_typos)),
        rules=rules_in_order(entry.settings["rankingRules"]),
        degraded=degraded,
        narrowing=tuple(narrowing),
    )


def searchable_attributes(entry: CatalogEntry, snapshot: Snapshot) -> list[str]:
    """The attributes that documents have, best first."""
    return list(_in_order(tuple(snapshot.attributes.names), tuple(entry.settings["searchableAttributes"])))


@lru_cache(maxsize=64)
def _in_order(names: tuple[str, ...], order: tuple[str, ...]) -> tuple[str, ...]:
    if "*" in order:
        return names
    found: dict[str, None] = {}
    for one in order:
        found.update(dict.fromkeys(name for name in names if covered(name, (one,))))
    return tuple(found)


def run(prepared: PreparedSearch, counters: Executor) -> dict[str, Any]:
    """The response of `/indexes/{uid}/search`. `counters` count facets while the hits are being collected."""
    begun = time.perf_counter()
    request, entry = prepared.request, prepared.entry
    counted = None
    if request.facets is not None:
        counted = counters.submit(distribution, entry, prepared.snapshot, prepared.matching, prepared.facet_names)
    offset, limit = request.window
    found = find(prepared, offset, limit, None if counted is None else lambda: counted.result().total)
    shown = format_hits(prepared, found.hits)
    answer: dict[str, Any] = {"hits": shown, "query": request.q or "", "processingTimeMs": 0}
    if request.is_paged:
        answer.update(
            hitsPerPage=limit if request.hits_per_page is None else request.hits_per_page,
            page=1 if request.page is None else request.page,
            totalPages=-(-found.total // limit) if limit else 0,
            totalHits=found.total,
        )
    else:
        answer.update(limit=request.limit, offset=request.offset, estimatedTotalHits=found.total)
    if counted is not None:
        answer.update(facetDistribution=counted.result().counts, facetStats=counted.result().stats)
    answer["processingTimeMs"] = int((time.perf_counter() - begun) * 1000)
    return answer


def find(prepared: PreparedSearch, offset: int, limit: int, count: Callable[[], int] | None = None) -> HitWindow:
    """The hits of a window in order, and the exact total, from `count` if it is being counted anyway."""
    request, entry = prepared.request, prepared.entry
    cap = entry.explicit.get("pagination", {}).get("maxTotalHits")
    if cap is not None:
        limit = max(0, min(limit, cap - offset))
    distinct = request.distinct or entry.settings["distinctAttribute"]
    if request.distinct is not None and not prepared.snapshot.plan.is_filterable(request.distinct):
        raise ApiError(
            "invalid_search_distinct",
            f"Attribute `{request.distinct}` is not filterable and thus, cannot be used as distinct attribute."
            f" {available(prepared.snapshot.plan.filterable, 'filterable')}",
        )
    if distinct:
        found = _distinct(prepared, distinct, offset, limit)
    elif request.ranking_score_threshold is not None:
        kept = _above_threshold(prepared)
        found = HitWindow(kept[offset : offset + limit], len(kept))
    else:
        found = _window(prepared, offset, limit, count or (lambda: prepared.snapshot.count(prepared.matching)))
    if cap is not None:
        found.total = min(found.total, cap)
    return found


def _window(prepared: PreparedSearch, offset: int, limit: int, count: Callable[[], int]) -> HitWindow:
    """One range of hits. A ranked search counts them as a by-product; a search sorted by a column needs no count first."""
    snapshot, plan = prepared.snapshot, stages(prepared.entry, prepared.sort_keys, prepared.ranked.scale)
    if limit and not plan and not prepared.parsed.is_placeholder:
        result = snapshot.searcher.search(prepared.scored, limit, offset=offset)
        hits = [DocumentHit(address, score) for score, address in by_arrival(snapshot, result.hits)]
        return HitWindow(hits, result.count)  # type: ignore[attr-defined]
    if limit and breaks_ties(prepared.ranked, plan) and plan[0].key:
        return HitWindow(*best_first(snapshot, prepared.scored, plan[0].key, offset, limit))
    if limit and (not plan or key_decides(prepared.ranked, plan, wants_scores=prepared.request.wants_scores)):
        if plan and plan[0].key and (counted := counted_by_key(snapshot, prepared.matching, plan[0].key, offset, limit)):
            return HitWindow([DocumentHit(address, None) for _, address in counted[0]], counted[1])
        hits = _order(prepared, 0, offset, limit)
        return HitWindow(hits, count())
    total = count()
    return HitWindow(_order(prepared, total, offset, limit) if limit and offset < total else [], total)


def _order(prepared: PreparedSearch, total: int, offset: int, limit: int) -> list[DocumentHit]:
    snapshot = prepared.snapshot
    plan = stages(prepared.entry, prepared.sort_keys, prepared.ranked.scale)
    if breaks_ties(prepared.ranked, plan) and plan[0].key:
        return best_first(snapshot, prepared.scored, plan[0].key, offset, limit)[0]
    if plan:
        return sorted_hits(
            snapshot,
            prepared.ranked,
            prepared.scored,
            prepared.matching,
            plan,
            total,
            offset,
            limit,
            wants_scores=prepared.request.wants_scores,
        )
    if prepared.parsed.is_placeholder:
        found = snapshot.searcher.search(
            prepared.matching, limit, count=False, order_by_field="seq", order=Order.Asc, offset=offset
        )
        return [DocumentHit(address, None) for _, address in found.hits]
    found = snapshot.searcher.search(prepared.scored, limit, count=False, offset=offset)
    return [DocumentHit(address, score) for score, address in by_arrival(snapshot, found.hits)]


def _above_threshold(prepared: PreparedSearch) -> list[DocumentHit]:
    total = prepared.snapshot.count(prepared.matching)
    wanted = prepared.request.ranking_score_threshold or 0.0
    return [hit for hit in _order(prepared, total, 0, total) if ranking_score(prepared, hit) >= wanted] if total else []


def _distinct(prepared: PreparedSearch, attribute: str, offset: int, limit: int) -> HitWindow:
    """Only the best hit of each value. Inspects every hit, because the total must be exact."""
    total = prepared.snapshot.count(prepared.matching)
    threshold = prepared.request.ranking_score_threshold
    seen: set[str] = set()
    kept: list[DocumentHit] = []
    for hit in _order(prepared, total, 0, total) if total else ():
        if threshold is not None and ranking_score(prepared, hit) < threshold:
            continue
        values = document_values(prepared.snapshot.document(hit.address), attribute)
        if not seen.intersection(values):
            seen.update(values)
            kept.append(hit)
    return HitWindow(kept[offset : offset + limit], len(kept))


def ranking_score(prepared: PreparedSearch, hit: DocumentHit) -> float:
    """Between 0 and 1; 1 for an empty query."""
    if hit.score is None or prepared.parsed.is_placeholder:
        return 1.0
    allowed_typos = sum(unit.typos for unit in prepared.parsed.units[:SCORED_UNITS])
    return prepared.ranked.scale.portion(hit.score, allowed_typos)


def format_hits(prepared: PreparedSearch, hits: list[DocumentHit]) -> list[dict[str, Any]]:
    matcher = Matcher(prepared.parsed, prepared.snapshot.plan.segmenter)
    formatter = Formatter(prepared.request, matcher, prepared.entry.settings["displayedAttributes"])
    shown: list[dict[str, Any]] = []
    for hit in hits:
        view = formatter.show(prepared.snapshot.document(hit.address))
        if prepared.request.show_ranking_score:
            view["_rankingScore"] = ranking_score(prepared, hit)
        if prepared.request.show_ranking_score_details:
            view["_rankingScoreDetails"] = _details(prepared, hit)
        shown.append(view)
    return shown


def _details(prepared: PreparedSearch, hit: DocumentHit) -> dict[str, Any]:
    if hit.score is None or prepared.parsed.is_placeholder:
        return {}
    scale = prepared.ranked.scale
    details: dict[str, Any] = {}
    for order, (rule, steps) in enumerate(scale.steps.items()):
        digit = scale.digit(hit.score, rule)
        details[rule] = {"order": order, "score": digit / steps if steps else 1.0}
        if rule == "words":
            details[rule].update(matchingWords=digit, maxMatchingWords=steps)
        elif rule == "typo":
            details[rule].update(typoCount=scale.typos(hit.score))
    return details
