"""The parameters of a search, checked."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from typing import Any

import orjson

from archiver.search_server.errors import ApiError, not_supported
from archiver.search_server.index.settings import kind

STRATEGIES = ("last", "all", "frequency")


def snake(name: str) -> str:
    return re.sub(r"([A-Z])", lambda match: "_" + match[1].lower(), name)


@dataclass(frozen=True, slots=True)
class SearchRequest:
    """One search. `None` means that it was not requested."""

    q: str | None = None
    offset: int = 0
    limit: int = 20
    page: int | None = None
    hits_per_page: int | None = None
    filter: Any = None
    facets: list[str] | None = None
    distinct: str | None = None
    attributes_to_retrieve: list[str] | None = None
    attributes_to_crop: list[str] | None = None
    crop_length: int = 10
    crop_marker: str = "…"
    attributes_to_highlight: list[str] | None = None
    highlight_pre_tag: str = "<em>"
    highlight_post_tag: str = "</em>"
    show_matches_position: bool = False
    sort: list[str] | None = None
    matching_strategy: str = "last"
    show_ranking_score: bool = False
    show_ranking_score_details: bool = False
    ranking_score_threshold: float | None = None
    attributes_to_search_on: list[str] | None = None
    locales: list[str] | None = None
    retrieve_vectors: bool = False
    show_performance_details: bool = False

    @property
    def is_paged(self) -> bool:
        return self.page is not None or self.hits_per_page is not None

    @property
    def wants_scores(self) -> bool:
        return self.show_ranking_score or self.show_ranking_score_details or self.ranking_score_threshold is not None

    @property
    def window(self) -> tuple[int, int]:
        """Offset and number of the wanted hits."""
        if not self.is_paged:
            return self.offset, self.limit
        size = 20 if self.hits_per_page is None else self.hits_per_page
        page = 1 if self.page is None else self.page
        return (max(0, page - 1) * size, size) if page else (0, 0)


_CAMEL = {re.sub(r"_([a-z])", lambda match: match[1].upper(), field.name): field.name for field in fields(SearchRequest)}
_NUMBERS = {"offset", "limit", "page", "hitsPerPage", "cropLength"}
_FLAGS = {
    "showMatchesPosition", "showRankingScore", "showRankingScoreDetails", "retrieveVectors", "showPerformanceDetails",
}  # fmt: skip
_LISTS = {
    "facets",
    "attributesToRetrieve",
    "attributesToCrop",
    "attributesToHighlight",
    "sort",
    "attributesToSearchOn",
    "locales",
}
_TEXTS = {"q", "distinct", "cropMarker", "highlightPreTag", "highlightPostTag"}
_NOT_PLAYED = {
    "hybrid": "Vector search",
    "vector": "Vector search",
    "media": "Multimodal search",
    "personalize": "Personalization",
}


def parse_body(body: Any, extra: tuple[str, ...] = (), prefix: str = "search") -> SearchRequest:
    """From a JSON body. Unknown fields are rejected; null counts as absent."""
    if not isinstance(body, dict):
        raise ApiError("bad_request", f"Invalid value type: expected an object, but found {kind(body)}")
    values: dict[str, Any] = {}
    for name, value in body.items():
        if name in extra or value is None:
            continue
        if name in _NOT_PLAYED:
            raise not_supported(_NOT_PLAYED[name])
        if name not in _CAMEL:
            known = ", ".join(f"`{one}`" for one in (*_CAMEL, *extra))
            raise ApiError("bad_request", f"Unknown field `{name}`: expected one of {known}")
        values[_CAMEL[name]] = _check(name, value, f"invalid_{prefix}_{snake(name)}")
    return SearchRequest(**values)


def parse_query_string(query: Mapping[str, str]) -> SearchRequest:
    """From the query string of a GET request: lists separated by commas, numbers and flags as texts."""
    body: dict[str, Any] = {}
    for name, value in query.items():
        code = f"invalid_search_{snake(name)}"
        if name in _NUMBERS:
            if not value.isdigit():
                raise ApiError(code, f"Invalid value in parameter `{name}`: could not parse `{value}` as a positive integer")
            body[name] = int(value)
        elif name in _FLAGS:
            if value not in ("true", "false", ""):
                raise ApiError(code, f"Invalid value in parameter `{name}`: could not parse `{value}` as a boolean")
            body[name] = value != "false"
        elif name in _LISTS:
            body[name] = _sort_list(value) if name == "sort" else [part for part in value.split(",") if part]
        elif name == "rankingScoreThreshold":
            body[name] = _float(name, value, code)
        elif name == "filter" and value.lstrip().startswith("["):
            body[name] = orjson.loads(value)
        else:
            body[name] = value
    return parse_body(body)


def _sort_list(value: str) -> list[str]:
    """Splits at commas, except within parentheses: `_geoPoint(1, 2):asc`."""
    parts: list[list[str]] = []
    is_inside = False
    for piece in value.split(","):
        if is_inside:
            parts[-1].append(piece)
        else:
            parts.append([piece])
        is_inside = piece.rfind("(") > piece.rfind(")") if "(" in piece or ")" in piece else is_inside
    return [part for pieces in parts if (part := ",".join(pieces).strip())]


def _float(name: str, value: str, code: str) -> float:
    try:
        return float(value)
    except ValueError:
        raise ApiError(code, f"Invalid value in parameter `{name}`: could not parse `{value}` as a number") from None


def _check(name: str, value: Any, code: str) -> Any:
    def refuse(expected: str) -> ApiError:
        shown = orjson.dumps(value).decode()[:200]
        return ApiError(code, f"Invalid value type at `.{name}`: expected {expected}, but found {kind(value)}: `{shown}`")

    for names, check, expected in _KINDS:
        if name in names:
            if not check(value):
                raise refuse(expected)
            return value
    if name == "matchingStrategy" and value not in STRATEGIES:
        raise ApiError(code, f"Unknown value `{value}` at `.matchingStrategy`: expected one of `last`, `all`, `frequency`")
    if name == "rankingScoreThreshold" and not (_is_number(value) and 0 <= value <= 1):
        raise ApiError(
            code, f"Invalid value at `.{name}`: the value of `{name}` is invalid, expected a float between `0.0` and `1.0`."
        )
    return value


def _is_count(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def _is_string_list(value: Any) -> bool:
    return isinstance(value, list) and all(isinstance(item, str) for item in value)


_KINDS: tuple[tuple[set[str], Callable[[Any], bool], str], ...] = (
    (_NUMBERS, _is_count, "a positive integer"),
    (_FLAGS, lambda value: isinstance(value, bool), "a boolean"),
    (_LISTS, _is_string_list, "an array of strings"),
    (_TEXTS, lambda value: isinstance(value, str), "a string"),
)
