"""Requests and responses of the handlers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import orjson

from archiver.search_server.errors import ApiError
from archiver.search_server.keys import INVALID, Permit
from archiver.search_server.payload import format_of
from archiver.search_server.service import Service
from archiver.search_server.tasks.task_queue import summary


@dataclass(frozen=True, slots=True)
class ServerResponse:
    """A status and a body; None for no body at all."""

    body: Any = None
    status: int = 200


@dataclass(frozen=True, slots=True)
class Call:
    """An authorised request with its body read and decompressed."""

    service: Service
    permit: Permit
    path: Mapping[str, str]
    query: Mapping[str, str]
    headers: Mapping[str, str]
    content: bytes
    late: bool = False

    @property
    def uid(self) -> str:
        """The index in the path, after checking that the bearer may use it."""
        return self.allowed(self.path["uid"])

    def allowed(self, uid: str) -> str:
        if not self.permit.allows(uid):
            raise INVALID
        return uid

    def json(self, *, required: bool = True) -> Any:
        if not self.content.strip():
            if not required:
                return None
            raise ApiError("missing_payload", "A json payload is missing.")
        if format_of(self.headers.get("content-type")) != "json":
            raise ApiError(
                "invalid_content_type",
                f"The Content-Type `{self.headers.get('content-type')}` is invalid."
                " Accepted values for the Content-Type header are: `application/json`",
            )
        try:
            return orjson.loads(self.content)
        except orjson.JSONDecodeError as error:
            raise ApiError("malformed_payload", f"The json payload provided is malformed. `{error}`.") from error

    def accept(
        self,
        task: str,
        uid: str | None,
        request: Mapping[str, Any],
        details: Mapping[str, Any] | None = None,
        payload: bytes | None = None,
    ) -> ServerResponse:
        """Enqueues a task, with the custom metadata of the sender."""
        note = self.query.get("customMetadata")
        return ServerResponse(summary(self.service.queue.enqueue(task, uid, request, details, payload, note)), 202)

    def flag(self, name: str, code: str) -> bool:
        value = self.query.get(name, "false")
        if value not in ("true", "false", ""):
            raise ApiError(code, f"Invalid value in parameter `{name}`: could not parse `{value}` as a boolean")
        return value != "false"

    def number(self, name: str, default: int, code: str) -> int:
        return count_of(self.query.get(name), name, default, code)


def count_of(value: Any, name: str, default: int, code: str) -> int:
    """A count from a query string or a body."""
    if value is None:
        return default
    if isinstance(value, int) and not isinstance(value, bool) and value >= 0:
        return value
    if isinstance(value, str) and value.isdigit():
        return int(value)
    raise ApiError(code, f"Invalid value in parameter `{name}`: could not parse `{value}` as a positive integer")


def paged(items: list[Any], call: Call, prefix: str) -> dict[str, Any]:
    """A list with `offset` and `limit`."""
    offset = call.number("offset", 0, f"invalid_{prefix}_offset")
    limit = call.number("limit", 20, f"invalid_{prefix}_limit")
    return {"results": items[offset : offset + limit], "offset": offset, "limit": limit, "total": len(items)}
