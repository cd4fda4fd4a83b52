"""Index settings: defaults, validation, and the effect of a change on the index."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from copy import deepcopy
from dataclasses import dataclass
from typing import Any

from archiver.search_server.errors import ApiError, not_supported

RANKING_RULES = ("words", "typo", "proximity", "attributeRank", "sort", "wordPosition", "exactness")
_BUILT_IN_RULES = frozenset({*RANKING_RULES, "attribute"})
_CUSTOM_RULE = re.compile(r"(?P<attribute>.+):(?P<order>asc|desc)")

DEFAULTS: dict[str, Any] = {
    "displayedAttributes": ["*"],
    "searchableAttributes": ["*"],
    "filterableAttributes": [],
    "sortableAttributes": [],
    "foreignKeys": [],
    "rankingRules": list(RANKING_RULES),
    "stopWords": [],
    "nonSeparatorTokens": [],
    "separatorTokens": [],
    "dictionary": [],
    "synonyms": {},
    "distinctAttribute": None,
    "proximityPrecision": "byWord",
    "typoTolerance": {
        "enabled": True,
        "minWordSizeForTypos": {"oneTypo": 5, "twoTypos": 9},
        "disableOnWords": [],
        "disableOnAttributes": [],
        "disableOnNumbers": False,
    },
    "faceting": {"maxValuesPerFacet": 100, "sortFacetValuesBy": {"*": "alpha"}},
    "pagination": {"maxTotalHits": 1000},
    "embedders": {},
    "searchCutoffMs": None,
    "localizedAttributes": None,
    "facetSearch": True,
    "prefixSearch": "indexingTime",
}

# the part of the path below /settings, and how it is written
SUB_ROUTES: dict[str, tuple[str, str]] = {
    "displayed-attributes": ("displayedAttributes", "PUT"),
    "searchable-attributes": ("searchableAttributes", "PUT"),
    "filterable-attributes": ("filterableAttributes", "PUT"),
    "sortable-attributes": ("sortableAttributes", "PUT"),
    "foreign-keys": ("foreignKeys", "PUT"),
    "ranking-rules": ("rankingRules", "PUT"),
    "stop-words": ("stopWords", "PUT"),
    "non-separator-tokens": ("nonSeparatorTokens", "PUT"),
    "separator-tokens": ("separatorTokens", "PUT"),
    "dictionary": ("dictionary", "PUT"),
    "synonyms": ("synonyms", "PUT"),
    "distinct-attribute": ("distinctAttribute", "PUT"),
    "proximity-precision": ("proximityPrecision", "PUT"),
    "typo-tolerance": ("typoTolerance", "PATCH"),
    "faceting": ("faceting", "PATCH"),
    "pagination": ("pagination", "PATCH"),
    "embedders": ("embedders", "PATCH"),
    "search-cutoff-ms": ("searchCutoffMs", "PUT"),
    "localized-attributes": ("localizedAttributes", "PUT"),
    "facet-search": ("facetSearch", "PUT"),
    "prefix-search": ("prefixSearch", "PUT"),
}


@dataclass(frozen=True, slots=True)
class CustomRule:
    """A ranking rule `attribute:asc` or `attribute:desc`."""

    attribute: str
    descending: bool


def custom_rule(rule: str) -> CustomRule | None:
    match = _CUSTOM_RULE.fullmatch(rule)
    return CustomRule(match["attribute"], match["order"] == "desc") if match else None


def _refuse(name: str, message: str) -> ApiError:
    code = "invalid_settings_" + re.sub(r"([A-Z])", lambda match: "_" + match[1].lower(), name)
    return ApiError(code, f"Invalid value at `.{name}`: {message}")


def _strings(name: str, value: Any) -> list[str]:
    if not isinstance(value, list):
        raise _refuse(name, f"expected an array, but found {kind(value)}")
    for place, item in enumerate(value):
        if not isinstance(item, str):
            raise _refuse(f"{name}", f"expected a string at position {place}, but found {kind(item)}")
    return list(dict.fromkeys(value))


def _sort_strings(name: str, value: Any) -> list[str]:
    return sorted(_strings(name, value))


def _filterable(name: str, value: Any) -> list[Any]:
    if not isinstance(value, list):
        raise _refuse(name, f"expected an array, but found {kind(value)}")
    for item in value:
        if isinstance(item, str):
            continue
        patterns = item.get("attributePatterns") if isinstance(item, dict) else None
        if not isinstance(patterns, list) or not all(isinstance(pattern, str) for pattern in patterns):
            raise _refuse(name, "expected attribute names or objects with `attributePatterns`")
    return [_rule_with_defaults(item) if isinstance(item, dict) else item for item in value]


def _rule_with_defaults(rule: Mapping[str, Any]) -> dict[str, Any]:
    features = rule.get("features") or {}
    chosen = {"equality": True, "comparison": False, **(features.get("filter") or {})}
    return {
        "attributePatterns": rule["attributePatterns"],
        "features": {"facetSearch": bool(features.get("facetSearch", False)), "filter": chosen},
    }


def _rules(name: str, value: Any) -> list[str]:
    rules = _strings(name, value)
    for rule in rules:
        if rule not in _BUILT_IN_RULES and custom_rule(rule) is None:
            allowed = (
                "words, typo, sort, proximity, attribute, attributeRank, wordPosition, exactness and custom ranking rules."
            )
            raise _refuse(name, f"`{rule}` ranking rule is invalid. Valid ranking rules are {allowed}")
    return rules


def _synonyms(name: str, value: Any) -> dict[str, list[str]]:
    if not isinstance(value, dict):
        raise _refuse(name, f"expected an object, but found {kind(value)}")
    return {word: _strings(f"{name}.{word}", others) for word, others in value.items()}


def _text_or_null(name: str, value: Any) -> str | None:
    if not isinstance(value, str):
        raise _refuse(name, f"expected a string, but found {kind(value)}")
    return value


def _one_of(*allowed: str) -> Callable[[str, Any], str]:
    def check(name: str, value: Any) -> str:
        if value not in allowed:
            raise _refuse(name, f"unknown value `{value}`, expected one of {', '.join(f'`{one}`' for one in allowed)}")
        return str(value)

    return check


def _count(name: str, value: Any) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or value < 0:
        raise _refuse(name, f"expected a positive integer, but found {kind(value)}: `{value}`")
    return value


def _flag(name: str, value: Any) -> bool:
    if not isinstance(value, bool):
        raise _refuse(name, f"expected a boolean, but found {kind(value)}: `{value}`")
    return value


def _typo_tolerance(name: str, value: Any) -> dict[str, Any]:
    found = _object(name, value, DEFAULTS["typoTolerance"])
    sizes = found.get("minWordSizeForTypos")
    if sizes is not None:
        _object(f"{name}.minWordSizeForTypos", sizes, DEFAULTS["typoTolerance"]["minWordSizeForTypos"])
        for field, size in sizes.items():
            if size is not None and not 0 <= _count(name, size) <= 255:
                raise _refuse(name, f"`minWordSizeForTypos.{field}` must be between 0 and 255")
    for field in ("enabled", "disableOnNumbers"):
        if found.get(field) is not None:
            _flag(name, found[field])
    for field in ("disableOnWords", "disableOnAttributes"):
        if found.get(field) is not None:
            found = {**found, field: _strings(name, found[field])}
    return found


def _faceting(name: str, value: Any) -> dict[str, Any]:
    found = _object(name, value, DEFAULTS["faceting"])
    if found.get("maxValuesPerFacet") is not None:
        _count(name, found["maxValuesPerFacet"])
    for order in (found.get("sortFacetValuesBy") or {}).values():
        _one_of("alpha", "count")(name, order)
    return found


def _pagination(name: str, value: Any) -> dict[str, Any]:
    found = _object(name, value, DEFAULTS["pagination"])
    if found.get("maxTotalHits") is not None:
        _count(name, found["maxTotalHits"])
    return found


def _object(name: str, value: Any, known: Mapping[str, Any]) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise _refuse(name, f"expected an object, but found {kind(value)}")
    for field in value:
        if field not in known:
            raise _refuse(name, f"unknown field `{field}`: expected one of {', '.join(f'`{one}`' for one in known)}")
    return value


def _no_embedders(name: str, value: Any) -> dict[str, Any]:
    if value == {} or (isinstance(value, dict) and all(one is None for one in value.values())):
        return {}
    raise not_supported("Vector search (embedders)")


def _localized(name: str, value: Any) -> list[Any]:
    if not isinstance(value, list):
        raise _refuse(name, f"expected an array, but found {kind(value)}")
    return value


_CHECKS: dict[str, Callable[[str, Any], Any]] = {
    "displayedAttributes": _strings,
    "searchableAttributes": _strings,
    "filterableAttributes": _filterable,
    "sortableAttributes": _sort_strings,
    "foreignKeys": _localized,
    "rankingRules": _rules,
    "stopWords": _sort_strings,
    "nonSeparatorTokens": _sort_strings,
    "separatorTokens": _sort_strings,
    "dictionary": _sort_strings,
    "synonyms": _synonyms,
    "distinctAttribute": _text_or_null,
    "proximityPrecision": _one_of("byWord", "byAttribute"),
    "typoTolerance": _typo_tolerance,
    "faceting": _faceting,
    "pagination": _pagination,
    "embedders": _no_embedders,
    "searchCutoffMs": _count,
    "localizedAttributes": _localized,
    "facetSearch": _flag,
    "prefixSearch": _one_of("indexingTime", "disabled"),
}


def check_change(change: Any) -> dict[str, Any]:
    """Validates a change of settings; null resets a setting to its default."""
    if not isinstance(change, dict):
        raise ApiError("bad_request", f"Invalid value type: expected an object, but found {kind(change)}")
    for name in change:
        if name not in _CHECKS:
            raise ApiError("bad_request", f"Unknown field `{name}`: expected one of {', '.join(f'`{one}`' for one in _CHECKS)}")
    return {name: None if value is None else _CHECKS[name](name, value) for name, value in change.items()}


def apply_change(explicit: Mapping[str, Any], change: Mapping[str, Any]) -> dict[str, Any]:
    """The explicitly chosen settings after a checked change."""
    result = dict(explicit)
    for name, value in change.items():
        if value is None:
            result.pop(name, None)
        elif SUB_METHODS[name] == "PATCH" and isinstance(value, dict):
            result[name] = _merge(result.get(name, {}), value)
        else:
            result[name] = value
    return result


def _merge(old: Mapping[str, Any], new: Mapping[str, Any]) -> dict[str, Any]:
    merged = dict(old)
    for field, value in new.items():
        if value is None:
            merged.pop(field, None)
        elif isinstance(value, dict):
            merged[field] = _merge(merged.get(field) or {}, value)
        else:
            merged[field] = value
    return merged


SUB_METHODS = dict(SUB_ROUTES.values())


def full_settings(explicit: Mapping[str, Any]) -> dict[str, Any]:
    """The explicit settings on top of the defaults, as `GET /settings` shows them."""
    result = deepcopy(DEFAULTS)
    for name, value in explicit.items():
        result[name] = _merge(result[name], value) if isinstance(result[name], dict) and name != "synonyms" else value
    order = result["faceting"]["sortFacetValuesBy"]
    result["faceting"]["sortFacetValuesBy"] = {"*": order.get("*", "alpha"), **dict(sorted(order.items()))}
    return result


def kind(value: Any) -> str:
    """The JSON name of a value's type."""
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "a boolean"
    if isinstance(value, (int, float)):
        return "a number"
    if isinstance(value, str):
        return "a string"
    return "an array" if isinstance(value, list) else "an object"
