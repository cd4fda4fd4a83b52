"""Facets: counts of values among the hits, minimum and maximum of numbers, and search among the values."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from tantivy import Query

from archiver.search_server.errors import ApiError
from archiver.search_server.index.catalog import CatalogEntry
from archiver.search_server.index.document_fields import is_number, number_text
from archiver.search_server.index.engine import Snapshot
from archiver.search_server.index.text import fold_value
from archiver.search_server.query.filters import available
from archiver.search_server.query.matching import distance

_MAX_VALUES = 1_000_000
_REMEMBERED = 20_000


def facet_attributes(snapshot: Snapshot, wanted: list[str], code: str = "invalid_search_facets") -> list[str]:
    """The requested attributes; `*` means all that can be counted."""
    plan = snapshot.plan
    names: list[str] = []
    for name in wanted:
        if name == "*":
            names.extend(one for one in snapshot.attributes.names if plan.is_filterable(one))
        elif not plan.is_filterable(name):
            raise ApiError(
                code,
                f"Invalid facet distribution: Attribute `{name}` is not filterable. {available(plan.filterable, 'filterable')}",
            )
        else:
            names.append(name)
    return list(dict.fromkeys(names))


@dataclass(frozen=True, slots=True)
class Distribution:
    """`facetDistribution`, `facetStats`, and the number of documents, which is a by-product."""

    counts: dict[str, dict[str, int]]
    stats: dict[str, dict[str, float]]
    total: int


def distribution(entry: CatalogEntry, snapshot: Snapshot, query: Query, names: list[str]) -> Distribution:
    settings = entry.settings["faceting"]
    limit = settings["maxValuesPerFacet"]
    known = {name: snapshot.attributes.ids[name] for name in names if name in snapshot.attributes.ids}
    request: dict[str, Any] = {"total": {"value_count": {"field": "seq"}}}
    for name, short in known.items():
        order = settings["sortFacetValuesBy"].get(name, settings["sortFacetValuesBy"]["*"])
        terms: dict[str, Any] = {"field": f"f.{short}", "size": max(1, limit), "segment_size": _MAX_VALUES}
        if order == "alpha":
            terms["order"] = {"_key": "asc"}
        request[f"t{short}"] = {"terms": terms}
    found = snapshot.searcher.aggregate(query, request)
    numeric = [short for short in known.values() if any(is_number(one["key"]) for one in found[f"t{short}"]["buckets"])]
    if numeric:
        wanted = {f"s{short}": {"stats": {"field": f"f.{short}"}} for short in numeric}
        found.update(snapshot.searcher.aggregate(query, wanted))
    counts: dict[str, dict[str, int]] = {name: {} for name in names}
    stats: dict[str, dict[str, float]] = {}
    for name, short in known.items():
        for bucket in found[f"t{short}"]["buckets"][:limit]:
            counts[name][shown_value(snapshot, short, bucket["key"])] = bucket["doc_count"]
        numbers = found.get(f"s{short}")
        if numbers is not None and numbers["count"]:
            stats[name] = {"min": numbers["min"], "max": numbers["max"]}
    return Distribution(counts, stats, int(found["total"]["value"]))


def shown_value(snapshot: Snapshot, short: str, key: Any) -> str:
    """The original spelling of a value that is stored folded."""
    if is_number(key):
        return number_text(key)
    folded = str(key)[1:]
    if short not in snapshot.attributes.folded:
        return folded
    known = snapshot.attributes.originals
    if (short, folded) not in known:
        if len(known) > _REMEMBERED:
            known.clear()
        known[short, folded] = _original(snapshot, short, folded)
    return known[short, folded]


def _original(snapshot: Snapshot, short: str, folded: str) -> str:
    query = Query.term_query(snapshot.schema, f"f.{short}", f"s{folded}", "basic")
    hits = snapshot.searcher.search(query, 1, count=False).hits
    if not hits:
        return folded
    path = snapshot.attributes.names[int(short[1:])]
    values = _values(snapshot.document(hits[0][1]), path)
    return next((value for value in values if fold_value(value) == folded), folded)


def _values(value: Any, path: str, *, numbers: bool = False) -> list[str]:
    if isinstance(value, list):
        return [text for item in value for text in _values(item, path, numbers=numbers)]
    if isinstance(value, dict):
        found: list[str] = []
        for key, inner in value.items():
            if path == key or path.startswith(f"{key}."):
                found.extend(_values(inner, path[len(key) + 1 :], numbers=numbers))
        return found
    if isinstance(value, bool):
        return ["true" if value else "false"]
    if numbers and is_number(value):
        return [number_text(value)]
    return [value] if isinstance(value, str) and not path else []


def document_values(document: dict[str, Any], path: str) -> list[str]:
    """All values of an attribute in a document, folded; numbers as texts."""
    return [fold_value(value) for value in _values(document, path, numbers=True)]


def search_values(entry: CatalogEntry, snapshot: Snapshot, query: Query, name: str, wanted: str | None) -> list[dict[str, Any]]:
    """Values of a facet that begin with the query, or have a word that does; tolerates a typo."""
    short = snapshot.attributes.ids.get(name)
    if short is None:
        return []
    request = {"v": {"terms": {"field": f"f.{short}", "size": _MAX_VALUES, "segment_size": _MAX_VALUES}}}
    buckets = snapshot.searcher.aggregate(query, request)["v"]["buckets"]
    limit = entry.settings["faceting"]["maxValuesPerFacet"]
    order = entry.settings["faceting"]["sortFacetValuesBy"]
    typed = fold_value(wanted or "")
    sizes = entry.settings["typoTolerance"]["minWordSizeForTypos"]
    typos = (
        (2 if len(typed) >= sizes["twoTypos"] else 1 if len(typed) >= sizes["oneTypo"] else 0)
        if entry.settings["typoTolerance"]["enabled"]
        else 0
    )
    fitting = [bucket for bucket in buckets if _fits(_folded(bucket["key"]), typed, typos)]
    if order.get(name, order["*"]) == "count":
        fitting.sort(key=lambda bucket: (-bucket["doc_count"], _folded(bucket["key"])))
    else:
        fitting.sort(key=lambda bucket: _folded(bucket["key"]))
    return [{"value": shown_value(snapshot, short, bucket["key"]), "count": bucket["doc_count"]} for bucket in fitting[:limit]]


def _folded(key: Any) -> str:
    return number_text(key) if is_number(key) else str(key)[1:]


def _fits(value: str, typed: str, typos: int) -> bool:
    if value.startswith(typed):
        return True
    if any(word.startswith(typed) for word in value.split()):
        return True
    return bool(typos) and value[:1] == typed[:1] and distance(value[: len(typed)], typed, typos) <= typos
