"""Sorting: from `attribute:asc` to columns, and hits in the order of sort keys and ranking rules together."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from tantivy import DocAddress, FieldType, Occur, Order, Query, Searcher

from archiver.search_server.errors import ApiError
from archiver.search_server.index.catalog import CatalogEntry
from archiver.search_server.index.engine import Snapshot
from archiver.search_server.index.settings import custom_rule
from archiver.search_server.index.text import fold_value
from archiver.search_server.query.filters import available
from archiver.search_server.query.ranking import RankedQuery, Scale, rules_in_order

_SORT = re.compile(r"(?P<attribute>.+):(?P<order>asc|desc)")
# up to this many hits are sorted by all rules and keys; beyond that by the first key, and by the others within the page
SORT_ALL = 100_000
# up to this many hits with equal scores are sorted by a key after all scored rules
TIED = 20_000
# ties are searched for among this many times the hits of the page, and then among this many times more
NEAREST = 8


@dataclass(frozen=True, slots=True)
class DocumentHit:
    """A matching document and its score (None without ranking)."""

    address: DocAddress
    score: float | None


@dataclass(frozen=True, slots=True)
class SortKey:
    """One column to sort by."""

    attribute: str
    column: int
    descending: bool

    def field(self, kind: str) -> str:
        return f"c{self.column}{kind}{'d' if self.descending else 'a'}"

    @property
    def order(self) -> Order:
        return Order.Desc if self.descending else Order.Asc


def parse_sort(entry: CatalogEntry, wanted: Sequence[str] | None, code: str = "invalid_search_sort") -> list[SortKey]:
    keys: list[SortKey] = []
    sortable = entry.settings["sortableAttributes"]
    for text in wanted or ():
        match = _SORT.fullmatch(text.strip())
        if match is None:
            raise ApiError(
                code, f"Invalid syntax for the sort parameter: expected expression ending by `:asc` or `:desc`, found `{text}`."
            )
        name = match["attribute"]
        if name.startswith("_geo"):
            raise ApiError(code, "Sorting by distance is not available in the embedded search server.")
        if name not in sortable:
            raise ApiError(code, f"Attribute `{name}` is not sortable. {available(sortable, 'sortable')}")
        keys.append(SortKey(name, entry.engine.plan.columns.index(name), match["order"] == "desc"))
    if keys and "sort" not in entry.settings["rankingRules"]:
        raise ApiError(
            code,
            "You must specify where `sort` is listed in the rankingRules setting to use the sort parameter at search time.",
        )
    return keys


@dataclass(frozen=True, slots=True)
class RankingStage:
    """A stage of the ranking: either scored rules or one sort key."""

    divisor: int
    key: SortKey | None


def stages(entry: CatalogEntry, keys: list[SortKey], scale: Scale) -> list[RankingStage]:
    """The rules in order: each key, with the scored rules before it."""
    rules = rules_in_order(entry.settings["rankingRules"])
    found: list[RankingStage] = []
    for place, rule in enumerate(rules):
        divisor = scale.before(rules[place:])
        if rule == "sort":
            found.extend(RankingStage(divisor, key) for key in keys)
            continue
        custom = custom_rule(rule)
        is_new = custom is not None and all(stage.key is None or stage.key.attribute != custom.attribute for stage in found)
        if custom is not None and is_new and custom.attribute in entry.engine.plan.columns:
            column = entry.engine.plan.columns.index(custom.attribute)
            found.append(RankingStage(divisor, SortKey(custom.attribute, column, custom.descending)))
    return found


def by_key(snapshot: Snapshot, query: Query, key: SortKey, offset: int, limit: int) -> list[tuple[Any, DocAddress]]:
    """Hits by one column: numbers, then texts, then documents without the attribute."""
    found: list[tuple[Any, DocAddress]] = []
    number, text = (Query.exists_query(key.field(kind)) for kind in "nt")
    parts = (
        (key.field("n"), key.order, [(Occur.Must, number)]),
        (key.field("t"), key.order, [(Occur.MustNot, number), (Occur.Must, text)]),
        ("seq", Order.Asc, [(Occur.MustNot, number), (Occur.MustNot, text)]),
    )
    skipped = offset
    for field, order, conditions in parts:
        wanted = limit - len(found)
        if wanted <= 0:
            break
        part = Query.boolean_query([(Occur.Must, query), *conditions])
        result = snapshot.searcher.search(part, wanted, count=True, order_by_field=field, order=order, offset=skipped)
        found.extend(by_arrival(snapshot, [(None if field == "seq" else value, address) for value, address in result.hits]))
        skipped = 0 if result.hits else max(0, skipped - result.count)  # type: ignore[attr-defined]
    return found


def counted_by_key(
    snapshot: Snapshot, query: Query, key: SortKey, offset: int, limit: int
) -> tuple[list[tuple[Any, DocAddress]], int] | None:
    """The same hits and their total number in one pass; None unless every document has a number in this column."""
    if not _is_full(snapshot.searcher, key.field("n")):
        return None
    found = snapshot.searcher.search(query, limit, order_by_field=key.field("n"), order=key.order, offset=offset)
    return by_arrival(snapshot, found.hits), int(found.count)  # type: ignore[attr-defined]


@lru_cache(maxsize=2)  # few, because a searcher keeps the files that it reads
def _is_full(searcher: Searcher, field: str) -> bool:
    found = searcher.search(Query.const_score_query(Query.exists_query(field), 0.0), 1)
    return int(found.count) == searcher.num_docs  # type: ignore[attr-defined]


def by_arrival(snapshot: Snapshot, hits: list[tuple[Any, DocAddress]]) -> list[tuple[Any, DocAddress]]:
    """The same hits; those with equal keys in the order of arrival."""
    if len({value for value, _ in hits}) == len(hits):
        return hits
    sequence = snapshot.searcher.fast_field_values("seq", [address for _, address in hits])
    groups: dict[Any, int] = {}
    for value, _ in hits:
        groups.setdefault(value, len(groups))
    order = sorted(range(len(hits)), key=lambda place: (groups[hits[place][0]], sequence[place]))
    return [hits[place] for place in order]


def key_decides(ranked: RankedQuery, plan: list[RankingStage], *, wants_scores: bool) -> bool:
    """Whether the single key precedes all scored rules, and no scores are wanted; without words, nothing is scored."""
    if len(plan) != 1:
        return False
    return ranked.parsed.is_placeholder or (not wants_scores and plan[0].divisor > ranked.scale.top)


def breaks_ties(ranked: RankedQuery, plan: list[RankingStage]) -> bool:
    """Whether all scored rules precede the single key."""
    return len(plan) == 1 and plan[0].divisor == 1 and not ranked.parsed.is_placeholder


def best_first(snapshot: Snapshot, query: Query, key: SortKey, offset: int, limit: int) -> tuple[list[DocumentHit], int]:
    """Hits by score, ties by the key; and their total number.

    Tantivy returns ties in the order of its files. So ties with the last hit of the page are searched for among the first
    hits by the key; if too few are there, all ties are fetched and sorted.
    """
    reach = offset + limit
    found = snapshot.searcher.search(query, reach + 1)
    total = int(found.count)  # type: ignore[attr-defined]
    hits, last = found.hits[:reach], found.hits[reach:]
    if last and last[0][0] == hits[-1][0]:
        hits = (
            _of_equals(snapshot, query, key, hits, total) or snapshot.searcher.search(query, max(TIED, reach), count=False).hits
        )
    return [DocumentHit(address, score) for score, address in _by_score(snapshot, hits, key)[offset:reach]], total


def _of_equals(
    snapshot: Snapshot, query: Query, key: SortKey, hits: list[tuple[float, DocAddress]], total: int
) -> list[tuple[float, DocAddress]] | None:
    """The hits, those as good as the last one replaced by the first of their kind by the key; None if they are too far back."""
    worst = hits[-1][0]
    better = [hit for hit in hits if hit[0] > worst]
    field, size = key.field("n"), NEAREST * len(hits)
    unscored = Query.const_score_query(query, 0.0)
    while size < min(total, TIED) and _is_full(snapshot.searcher, field):
        nearest = snapshot.searcher.search(unscored, size, count=False, order_by_field=field, order=key.order)
        edge = nearest.hits[-1][0]
        among = Query.boolean_query([(Occur.Must, query), (Occur.Must, _up_to(snapshot, key, edge))])
        scored = snapshot.searcher.search(among, 2 * size, count=False).hits
        equal = [hit for hit in scored if hit[0] == worst]
        if len(scored) < 2 * size and len(better) + len(equal) >= len(hits):
            return better + equal
        size *= NEAREST
    return None


def _up_to(snapshot: Snapshot, key: SortKey, edge: float) -> Query:
    """Everything that stands before this value by the key, and those that have it."""
    field = key.field("n")
    lower, upper = (edge, None) if key.descending else (None, edge)
    within = Query.range_query(snapshot.schema, field, FieldType.Float, lower, upper, include_lower=True, include_upper=True)
    return Query.const_score_query(within, 0.0)


def _by_score(snapshot: Snapshot, hits: list[tuple[float, DocAddress]], key: SortKey) -> list[tuple[float, DocAddress]]:
    """By score, and the first ones of them also by the key."""
    first, rest = hits[:TIED], hits[TIED:]
    (column,) = _sort_values(snapshot, [address for _, address in first], [RankingStage(1, key)])
    order = sorted(range(len(first)), key=lambda place: (-first[place][0], column[place], place))
    return [*(first[place] for place in order), *rest]


def sorted_hits(
    snapshot: Snapshot,
    ranked: RankedQuery,
    query: Query,
    matching: Query,
    plan: list[RankingStage],
    total: int,
    offset: int,
    limit: int,
    *,
    wants_scores: bool,
) -> list[DocumentHit]:
    """Hits in the order of all stages. `query` is the scored query with its filter; `matching` finds the same without
    scores."""
    first = plan[0]
    assert first.key is not None
    if total > SORT_ALL or key_decides(ranked, plan, wants_scores=wants_scores):
        return _by_first_key(snapshot, matching, first.key, plan[1:], offset, limit)
    hits = by_arrival(snapshot, snapshot.searcher.search(query, max(1, total), count=False).hits)
    addresses = [address for _, address in hits]
    keys = _ranks(snapshot, query, addresses, plan)
    order = sorted(range(len(hits)), key=lambda place: _rank(hits[place][0], place, keys, plan))
    return [DocumentHit(hits[place][1], hits[place][0]) for place in order[offset : offset + limit]]


def by_keys(snapshot: Snapshot, query: Query, keys: list[SortKey], total: int, offset: int, limit: int) -> list[DocAddress]:
    """The hits of an unscored query, by several keys."""
    plan = [RankingStage(1, key) for key in keys]
    if len(plan) == 1 or total > SORT_ALL:
        return [hit.address for hit in _by_first_key(snapshot, query, keys[0], plan[1:], offset, limit)]
    hits = snapshot.searcher.search(query, max(1, total), count=False, order_by_field="seq", order=Order.Asc).hits
    addresses = [address for _, address in hits]
    columns = _ranks(snapshot, query, addresses, plan)
    order = sorted(range(len(addresses)), key=lambda place: (*(column[place] for column in columns), place))
    return [addresses[place] for place in order[offset : offset + limit]]


def _by_first_key(
    snapshot: Snapshot, query: Query, key: SortKey, rest: list[RankingStage], offset: int, limit: int
) -> list[DocumentHit]:
    hits = by_key(snapshot, query, key, offset, limit)
    if not rest:
        return [DocumentHit(address, None) for _, address in hits]
    values = _sort_values(snapshot, [address for _, address in hits], rest)
    groups: dict[Any, int] = {}
    for value, _ in hits:
        groups.setdefault(value, len(groups))
    order = sorted(range(len(hits)), key=lambda place: (groups[hits[place][0]], *(column[place] for column in values), place))
    return [DocumentHit(hits[place][1], None) for place in order]


def _rank(score: float, place: int, keys: list[list[Any]], plan: list[RankingStage]) -> tuple[Any, ...]:
    """A tuple that sorts like the rules: the score before a key, the key, and so on, then the rest of the score."""
    parts: list[Any] = []
    for stage, column in zip(plan, keys, strict=True):
        parts.extend((-(round(score) // stage.divisor), column[place]))
    return (*parts, -score, place)


def _ranks(snapshot: Snapshot, query: Query, addresses: list[DocAddress], plan: list[RankingStage]) -> list[list[Any]]:
    """For each stage and hit, its rank by the key; equal values have equal ranks."""
    columns: list[list[Any]] = []
    for stage in plan:
        assert stage.key is not None
        places: dict[tuple[int, int], int] = {}
        groups: dict[Any, int] = {}
        for value, address in by_key(snapshot, query, stage.key, 0, max(1, len(addresses))):
            places[address.segment_ord, address.doc] = groups.setdefault(value, len(groups))
        columns.append([places[address.segment_ord, address.doc] for address in addresses])
    return columns


def _sort_values(snapshot: Snapshot, addresses: list[DocAddress], plan: list[RankingStage]) -> list[list[Any]]:
    """For each stage and hit: (kind, value), so that numbers sort before texts, and both before missing values."""
    columns: list[list[Any]] = []
    for stage in plan:
        key = stage.key
        assert key is not None
        numbers = snapshot.searcher.fast_field_values(key.field("n"), addresses) if addresses else []
        columns.append(
            [
                _comparable(snapshot, key, address) if number is None else (0, -number if key.descending else number)
                for number, address in zip(numbers, addresses, strict=True)
            ]
        )
    return columns


def _comparable(snapshot: Snapshot, key: SortKey, address: DocAddress) -> tuple[int, Any]:
    """The value of a document without a number."""
    texts = _texts(snapshot.document(address), key.attribute.split("."))
    if not texts:
        return (2, 0)
    return (1, _Reversed(max(texts)) if key.descending else min(texts))


def sort_tuple(snapshot: Snapshot, keys: list[SortKey], address: DocAddress) -> tuple[Any, ...]:
    """The sort key of a document, comparable with those of other searches."""
    columns = _sort_values(snapshot, [address], [RankingStage(1, key) for key in keys])
    return tuple(column[0] for column in columns)


def _texts(value: Any, path: list[str]) -> list[str]:
    if isinstance(value, list):
        return [text for item in value for text in _texts(item, path)]
    if path:
        if not isinstance(value, dict):
            return []
        whole = ".".join(path)
        if whole in value:
            return _texts(value[whole], [])
        return _texts(value.get(path[0]), path[1:])
    if isinstance(value, bool):
        return ["true" if value else "false"]
    return [fold_value(value)] if isinstance(value, str) else []


class _Reversed(str):
    """A text that sorts in descending order."""

    __slots__ = ()

    def __lt__(self, other: str) -> bool:
        return str.__gt__(self, other)
