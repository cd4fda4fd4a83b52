"""Primary keys: how one is inferred, and which values are valid."""

from __future__ import annotations

import re
from typing import Any

import orjson

from archiver.search_server.errors import ApiError

_ID = re.compile(r"[a-zA-Z0-9_-]{1,511}")


def infer_primary_key(uid: str, document: dict[str, Any]) -> str:
    """The only attribute of the first document whose name ends with `id`."""
    candidates = [name for name in document if name.lower().endswith("id")]
    if len(candidates) == 1:
        return candidates[0]
    advice = "Please specify the primary key manually using the `primaryKey` query parameter."
    if not candidates:
        raise ApiError(
            "index_primary_key_no_candidate_found",
            "The primary key inference failed as the engine did not find any field ending with `id` in its name. " + advice,
        )
    first, second = sorted(candidates)[:2]
    raise ApiError(
        "index_primary_key_multiple_candidates_found",
        f"The primary key inference failed as the engine found {len(candidates)} fields ending with `id` in their names:"
        f" '{first}' and '{second}'. " + advice,
    )


def document_id(document: dict[str, Any], primary_key: str) -> str:
    if primary_key not in document:
        shown = orjson.dumps(document).decode()
        raise ApiError("missing_document_id", f"Document doesn't have a `{primary_key}` attribute: `{shown[:500]}`.")
    return checked_id(document[primary_key])


def checked_id(value: Any) -> str:
    if isinstance(value, int) and not isinstance(value, bool):
        return str(value)
    if isinstance(value, str) and _ID.fullmatch(value):
        return value
    shown = orjson.dumps(value).decode()
    raise ApiError(
        "invalid_document_id",
        f"Document identifier `{shown[:600]}` is invalid. A document identifier can be of type integer or string,"
        " only composed of alphanumeric characters (a-z A-Z 0-9), hyphens (-) and underscores (_),"
        " and can not be more than 511 bytes.",
    )
