"""Searching: one index, several, and the values of a facet."""

from __future__ import annotations

import time
from typing import Any

from archiver.search_server.errors import ApiError, not_supported
from archiver.search_server.index.settings import kind
from archiver.search_server.query.facets import search_values
from archiver.search_server.query.federation import check_federation, federated, inside, parse_queries
from archiver.search_server.query.filters import available
from archiver.search_server.query.search_request import SearchRequest, parse_body, parse_query_string
from archiver.search_server.query.searching import PreparedSearch, prepare, run
from archiver.search_server.request import Call, ServerResponse

_FACET_EXTRA = ("facetName", "facetQuery", "exhaustiveFacetCount")


def search(call: Call) -> ServerResponse:
    body = call.json(required=False)
    return ServerResponse(_search(call, call.uid, parse_body({} if body is None else body)))


def search_by_get(call: Call) -> ServerResponse:
    return ServerResponse(_search(call, call.uid, parse_query_string(call.query)))


def multi_search(call: Call) -> ServerResponse:
    body = call.json()
    queries = parse_queries(body)
    if body.get("federation") is not None:
        federation = check_federation(body["federation"], queries)
        begun = time.perf_counter()
        answer = federated(federation, queries, lambda uid, request: _prepared(call, uid, request))
        if federation.get("showPerformanceDetails"):
            answer["performanceDetails"] = {"federated search": _milliseconds(time.perf_counter() - begun)}
        return ServerResponse({**answer, "degraded": True} if call.late else answer)
    results: list[dict[str, Any]] = []
    for place, (uid, request, _) in enumerate(queries):
        try:
            results.append({"indexUid": uid, **_search(call, uid, request)})
        except ApiError as error:
            raise inside(place, error) from error
    return ServerResponse({"results": results})


def facet_search(call: Call) -> ServerResponse:
    begun = time.perf_counter()
    body = call.json()
    if not isinstance(body, dict):
        raise ApiError("bad_request", f"Invalid value type: expected an object, but found {kind(body)}")
    name = body.get("facetName")
    if name is None:
        raise ApiError("missing_facet_search_facet_name", "Missing field `facetName`")
    entry = call.service.catalog.get(call.uid)
    if not entry.settings["facetSearch"]:
        raise ApiError("facet_search_disabled", "The facet search is disabled for this index")
    if not isinstance(name, str) or not entry.engine.plan.is_filterable(name):
        raise ApiError(
            "invalid_facet_search_facet_name",
            f"Attribute `{name}` is not facet-searchable. {available(entry.engine.plan.filterable, 'facet-searchable')}",
        )
    wanted = body.get("facetQuery")
    if wanted is not None and not isinstance(wanted, str):
        raise ApiError(
            "invalid_facet_search_facet_query",
            f"Invalid value type at `.facetQuery`: expected a string, but found {kind(wanted)}",
        )
    prepared = _prepared(call, entry.uid, parse_body(body, _FACET_EXTRA))
    hits = search_values(entry, prepared.snapshot, prepared.matching, name, wanted)
    spent = int((time.perf_counter() - begun) * 1000)
    return ServerResponse({"facetHits": hits, "facetQuery": wanted, "processingTimeMs": spent})


def similar(call: Call) -> ServerResponse:
    call.service.catalog.get(call.uid)
    raise not_supported("Looking for similar documents (vector search)")


def _search(call: Call, uid: str, request: SearchRequest) -> dict[str, Any]:
    begun = time.perf_counter()
    prepared = _prepared(call, uid, request)
    understood = time.perf_counter()
    answer = run(prepared, call.service.counters)
    if request.show_performance_details:
        answer["performanceDetails"] = {
            "search > query": _milliseconds(understood - begun),
            "search > hits": _milliseconds(time.perf_counter() - understood),
            "search": _milliseconds(time.perf_counter() - begun),
        }
    return {**answer, "degraded": True} if call.late else answer


def _milliseconds(seconds: float) -> str:
    return f"{seconds * 1000:.2f}ms"


def _prepared(call: Call, uid: str, request: SearchRequest) -> PreparedSearch:
    entry = call.service.catalog.get(call.allowed(uid))
    return prepare(entry, request, rules_filter=call.permit.filter_for(uid), degraded=call.late)
