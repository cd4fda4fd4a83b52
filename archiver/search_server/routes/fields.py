"""/indexes/{uid}/fields: the attributes of an index, and what its settings allow for each."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from archiver.search_server.errors import ApiError
from archiver.search_server.index.catalog import CatalogEntry
from archiver.search_server.index.plan import covered
from archiver.search_server.index.settings import custom_rule, kind
from archiver.search_server.request import Call, ServerResponse, count_of

_ABILITIES = ("displayed", "searchable", "sortable", "distinct", "rankingRule", "filterable")
_BODY = ("offset", "limit", "filter")


def list_fields(call: Call) -> ServerResponse:
    body = _object(call.json(required=False) or {}, _BODY, "bad_request")
    offset = count_of(body.get("offset"), "offset", 0, "invalid_index_offset")
    limit = count_of(body.get("limit"), "limit", 20, "invalid_index_limit")
    wanted = _check_filter(body.get("filter") or {})
    entry = call.service.catalog.get(call.uid)
    found = [field for field in (_field(entry, name) for name in list(entry.engine.attributes.names)) if _fits(field, wanted)]
    return ServerResponse({"results": found[offset : offset + limit], "offset": offset, "limit": limit, "total": len(found)})


def _field(entry: CatalogEntry, name: str) -> dict[str, Any]:
    settings = entry.settings
    return {
        "name": name,
        "displayed": {"enabled": covered(name, settings["displayedAttributes"])},
        "searchable": {"enabled": entry.engine.plan.is_searchable(name)},
        "sortable": {"enabled": covered(name, settings["sortableAttributes"])},
        "distinct": {"enabled": name == settings["distinctAttribute"]},
        "rankingRule": _ranking_rule(settings["rankingRules"], name),
        "filterable": _filterable(settings, name),
        "localized": {"locales": _locales(settings["localizedAttributes"], name)},
    }


def _ranking_rule(rules: list[str], name: str) -> dict[str, Any]:
    for rule in map(custom_rule, rules):
        if rule is not None and rule.attribute == name:
            return {"enabled": True, "order": "desc" if rule.descending else "asc"}
    return {"enabled": False}


def _filterable(settings: Mapping[str, Any], name: str) -> dict[str, Any]:
    orders = settings["faceting"]["sortFacetValuesBy"]
    abilities = _filter_abilities(settings["filterableAttributes"], name)
    return {"enabled": any(abilities.values()), "sortBy": orders.get(name, orders.get("*", "alpha")), **abilities}


def _filter_abilities(rules: list[Any], name: str) -> dict[str, bool]:
    for rule in rules:
        if isinstance(rule, str):
            if covered(name, [rule]):
                return {"facetSearch": True, "equality": True, "comparison": True}
        elif covered(name, rule["attributePatterns"]):
            return {"facetSearch": rule["features"]["facetSearch"], **rule["features"]["filter"]}
    return {"facetSearch": False, "equality": False, "comparison": False}


def _locales(rules: list[dict[str, Any]] | None, name: str) -> list[str]:
    for rule in rules or ():
        if covered(name, rule["attributePatterns"]):
            return list(rule["locales"])
    return []


def _fits(field: dict[str, Any], wanted: Mapping[str, Any]) -> bool:
    patterns = wanted.get("attributePatterns")
    if patterns is not None and not covered(field["name"], patterns):
        return False
    return all(field[name]["enabled"] == wanted[name] for name in _ABILITIES if wanted.get(name) is not None)


def _check_filter(value: Any) -> dict[str, Any]:
    wanted = _object(value, ("attributePatterns", *_ABILITIES), "invalid_index_fields_filter")
    for name, one in wanted.items():
        is_list = name == "attributePatterns"
        if one is not None and not isinstance(one, list if is_list else bool):
            code = "invalid_index_fields_filter_" + re.sub(r"([A-Z])", lambda match: "_" + match[1].lower(), name)
            expected = "an array" if is_list else "a boolean"
            raise ApiError(code, f"Invalid value type at `.filter.{name}`: expected {expected}, but found {kind(one)}")
    return wanted


def _object(value: Any, known: tuple[str, ...], code: str) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise ApiError(code, f"Invalid value type: expected an object, but found {kind(value)}")
    for name in value:
        if name not in known:
            raise ApiError(code, f"Unknown field `{name}`: expected one of {', '.join(f'`{one}`' for one in known)}")
    return value
