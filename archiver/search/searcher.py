"""Queries the search server: compiled searches in, results out."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

import meilisearch
from meilisearch.errors import MeilisearchApiError, MeilisearchError

from archiver.errors import NotReady
from archiver.search.document import INDEX
from archiver.search.query.compiler import MAX_VALUES, Join, Search
from archiver.search.query.errors import QueryError
from connectors.errors import first_line

OPEN_MARK, CLOSE_MARK = "\ue000", "\ue001"
"""Surround matches in responses: characters that mail does not contain, so that nothing in it can be mistaken for a mark."""

_PAGE: Final = 1_000
_MISSING: Final = "index_not_found"


@dataclass(frozen=True, slots=True)
class Counted:
    """The totals and facets of a search."""

    total: int
    facets: dict[str, dict[str, int]]
    is_lower_bound: bool = False


@dataclass(frozen=True, slots=True)
class FoundHits:
    """The hits of one page, each with the search that found it."""

    hits: list[tuple[Search, dict[str, Any]]]
    counted: Counted


class IndexSearcher:
    """Queries one index. Thread-safe: each thread has its own client."""

    def __init__(self, make: Callable[[], meilisearch.Client], index: str = INDEX) -> None:
        self._make = make
        self._index = index
        self._local = threading.local()

    def page(
        self, searches: Sequence[Search], sort: str | None, offset: int, limit: int, show: dict[str, Any], facets: list[str]
    ) -> FoundHits:
        """A page of all hits in a single order, with exact totals. `show`: parameters that select the content of hits."""
        order = {"sort": [sort]} if sort else {}
        if not searches or limit == 0:
            return FoundHits([], self.count(searches, facets))
        if len(searches) == 1 and offset % limit == 0:  # an offset inside a page needs a merge of two pages
            paging = {"hitsPerPage": limit, "page": offset // limit + 1, **({"facets": facets} if facets else {})}
            (answer,) = self.ask([{**_request(searches[0]), **order, **show, **paging}])
            return FoundHits([(searches[0], hit) for hit in answer["hits"]], _to_counted(answer))
        queries = [{"indexUid": self._index, **_request(search), **order, **show} for search in searches]
        first = offset // limit * limit
        merged = [
            self._search_merged(queries, {"page": page, "hitsPerPage": limit, "facetsByIndex": {self._index: facets}})
            for page in ((first // limit + 1,) if first == offset else (first // limit + 1, first // limit + 2))
        ]
        hits = [hit for answer in merged for hit in answer["hits"]][offset - first : offset - first + limit]
        counted = Counted(
            merged[0].get("totalHits", 0),
            merged[0].get("facetsByIndex", {}).get(self._index, {}).get("distribution", {}),
            any(answer.get("degraded") for answer in merged),
        )
        return FoundHits([(searches[hit["_federation"]["queriesPosition"]], hit) for hit in hits], counted)

    def _search_merged(self, queries: list[dict[str, Any]], federation: dict[str, Any]) -> dict[str, Any]:
        return dict(self._send(lambda client: client.multi_search(queries, federation), {"hits": []}))

    def count(self, searches: Sequence[Search], facets: list[str]) -> Counted:
        """Totals and facets of all searches together, which have no hits in common."""
        wanted = {"page": 0, "hitsPerPage": 1, **({"facets": facets} if facets else {})}
        answers = list(map(_to_counted, self.ask([{**_request(search), **wanted} for search in searches])))
        return Counted(
            sum(answer.total for answer in answers),
            {name: _sum(answer.facets.get(name, {}) for answer in answers) for name in facets},
            any(answer.is_lower_bound for answer in answers),
        )

    def totals(self, searches: Sequence[Search]) -> list[int]:
        """The total of each search."""
        return [
            _to_counted(answer).total
            for answer in self.ask([{**_request(one), "page": 0, "hitsPerPage": 1} for one in searches])
        ]

    def fetch(self, searches: Sequence[Search], show: dict[str, Any]) -> Iterator[dict[str, Any]]:
        """The hits of searches with few hits."""
        for answer in self.ask([{**_request(search), **show, "limit": _PAGE} for search in searches]):
            yield from answer["hits"]

    def ids(self, searches: Sequence[Search]) -> Iterator[str]:
        """The ids of all hits, without a limit, newest first for each search."""
        for search in searches:
            yield from self._ids(search)

    def _ids(self, search: Search) -> Iterator[str]:
        wanted = {"sort": ["order:desc"], "attributesToRetrieve": ["id", "order"], "limit": _PAGE}
        last, seen = None, set[str]()
        while True:
            further = search if last is None else narrow(search, f"order <= {last}")
            (answer,) = self.ask([{**_request(further), **wanted, "offset": len(seen)}])
            hits = answer["hits"]
            yield from (hit["id"] for hit in hits)
            if len(hits) < _PAGE:
                return
            if hits[-1]["order"] != last:
                last, seen = hits[-1]["order"], set()
            seen.update(hit["id"] for hit in hits if hit["order"] == last)

    def resolve_joins(self, searches: Sequence[Search]) -> tuple[list[Search], bool]:
        """The searches with their joins resolved to lists of ids, and whether a list is incomplete."""
        cut = False
        done: list[Search] = []
        for search in searches:
            for join in search.joins:
                ids, is_cut = self._join(search, join)
                cut = cut or is_cut
                among = f"id IN [{', '.join(ids)}]"
                search = narrow(search, among if join.wanted else f"NOT ({among})")
            done.append(replace(search, joins=()))
        return done, cut

    def _join(self, search: Search, join: Join) -> tuple[list[str], bool]:
        wanted = {"attributesToRetrieve": ["id"], "hitsPerPage": MAX_VALUES, "page": 1}
        inner = Search(join.text, search.filter, join.attributes)
        (answer,) = self.ask([{**_request(inner), **wanted}])
        is_cut = _to_counted(answer).total > MAX_VALUES
        if is_cut and not join.wanted:
            raise QueryError(
                f"{join.text} is in that field of more than {MAX_VALUES:,} messages, which can't be excluded from a search for"
                " other words; use a single word, or narrow the search with an operator"
            )
        return [hit["id"] for hit in answer["hits"]], is_cut

    def ask(self, requests: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
        """Sends independent requests in one round trip. An index that does not exist yet has no hits."""
        if not requests:
            return []
        queries = [{"indexUid": self._index, **request} for request in requests]
        nothing = {"results": [{"hits": [], "totalHits": 0} for _ in queries]}
        return list(self._send(lambda client: client.multi_search(queries), nothing)["results"])

    def _send(self, ask: Callable[[meilisearch.Client], Any], nothing: dict[str, Any]) -> Any:
        client = getattr(self._local, "client", None)
        if client is None:
            client = self._local.client = self._make()
        try:
            return ask(client)
        except MeilisearchApiError as error:
            if error.code == _MISSING:
                return nothing
            raise NotReady(f"the search server can't process the request: {first_line(error)}") from error
        except MeilisearchError as error:
            raise NotReady(f"the search server does not answer: {first_line(error)}") from error


def narrow(search: Search, condition: str) -> Search:
    return replace(search, filter=f"({search.filter}) AND {condition}" if search.filter else condition)


def _request(search: Search) -> dict[str, Any]:
    request: dict[str, Any] = {"q": search.text, "matchingStrategy": "all"}
    if search.filter:
        request["filter"] = search.filter
    if search.attributes:
        request["attributesToSearchOn"] = list(search.attributes)
    return request


def _to_counted(answer: dict[str, Any]) -> Counted:
    total = answer.get("totalHits", answer.get("estimatedTotalHits", 0))
    return Counted(total, answer.get("facetDistribution") or {}, bool(answer.get("degraded")))


def _sum(counts: Iterator[dict[str, int]] | Any) -> dict[str, int]:
    found: dict[str, int] = {}
    for one in counts:
        for value, count in one.items():
            found[value] = found.get(value, 0) + count
    return found
