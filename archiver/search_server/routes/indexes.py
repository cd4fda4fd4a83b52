"""/indexes and /swap-indexes."""

from __future__ import annotations

import re
from typing import Any

from archiver.search_server.errors import ApiError
from archiver.search_server.index.settings import kind
from archiver.search_server.request import Call, ServerResponse, paged

_UID = re.compile(r"[a-zA-Z0-9_-]{1,400}")


def check_uid(uid: Any) -> str:
    if isinstance(uid, str) and _UID.fullmatch(uid):
        return uid
    raise ApiError(
        "invalid_index_uid",
        f"`{uid}` is not a valid index uid. Index uid can be an integer or a string containing only alphanumeric characters,"
        " hyphens (-) and underscores (_), and can not be more than 400 bytes.",
    )


def list_indexes(call: Call) -> ServerResponse:
    entries = [entry.shown() for entry in call.service.catalog.all() if call.permit.allows(entry.uid)]
    return ServerResponse(paged(entries, call, "index"))


def get_index(call: Call) -> ServerResponse:
    return ServerResponse(call.service.catalog.get(call.uid).shown())


def create_index(call: Call) -> ServerResponse:
    body = _body(call, ("uid", "primaryKey"))
    if "uid" not in body:
        raise ApiError("missing_index_uid", "Missing field `uid`")
    uid = call.allowed(check_uid(body["uid"]))
    primary_key = _primary_key(body)
    return call.accept("indexCreation", uid, {"primaryKey": primary_key}, {"primaryKey": primary_key})


def update_index(call: Call) -> ServerResponse:
    body = _body(call, ("uid", "primaryKey"))
    request: dict[str, Any] = {"primaryKey": _primary_key(body)}
    if body.get("uid") is not None:
        request["uid"] = call.allowed(check_uid(body["uid"]))
    details = {"primaryKey": request["primaryKey"]}
    if "uid" in request:
        details.update(oldIndexUid=call.uid, newIndexUid=request["uid"])
    return call.accept("indexUpdate", call.uid, request, details)


def delete_index(call: Call) -> ServerResponse:
    return call.accept("indexDeletion", call.uid, {}, {"deletedDocuments": None})


def compact_index(call: Call) -> ServerResponse:
    return call.accept("indexCompaction", check_uid(call.uid), {}, {"preCompactionSize": None, "postCompactionSize": None})


def swap_indexes(call: Call) -> ServerResponse:
    body = call.json()
    if not isinstance(body, list):
        raise ApiError("bad_request", f"Invalid value type: expected an array, but found {kind(body)}")
    seen: list[str] = []
    swaps: list[dict[str, Any]] = []
    for place, swap in enumerate(body):
        pair = swap.get("indexes") if isinstance(swap, dict) else None
        if pair is None:
            raise ApiError("missing_swap_indexes", f"Missing field `indexes` inside `[{place}]`")
        if not isinstance(pair, list) or len(pair) != 2:
            raise ApiError(
                "invalid_swap_indexes",
                f"Two indexes must be given for each swap. The list `{pair}` contains {len(pair)} indexes.",
            )
        seen.extend(call.allowed(check_uid(uid)) for uid in pair)
        swaps.append({"indexes": pair, "rename": bool(swap.get("rename", False))})
    twice = sorted({uid for uid in seen if seen.count(uid) > 1})
    if twice:
        raise ApiError(
            "invalid_swap_duplicate_index_found",
            "Indexes must be declared only once during a swap."
            f" {', '.join(f'`{uid}`' for uid in twice)} was specified several times.",
        )
    return call.accept("indexSwap", None, {"swaps": swaps}, {"swaps": swaps})


def _body(call: Call, known: tuple[str, ...]) -> dict[str, Any]:
    body = call.json()
    if not isinstance(body, dict):
        raise ApiError("bad_request", f"Invalid value type: expected an object, but found {kind(body)}")
    for name in body:
        if name not in known:
            raise ApiError("bad_request", f"Unknown field `{name}`: expected one of {', '.join(f'`{one}`' for one in known)}")
    return body


def _primary_key(body: dict[str, Any]) -> str | None:
    value = body.get("primaryKey")
    if value is not None and not isinstance(value, str):
        raise ApiError(
            "invalid_index_primary_key", f"Invalid value type at `.primaryKey`: expected a string, but found {kind(value)}"
        )
    return value
