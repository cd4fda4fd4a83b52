"""Errors as problem+json (RFC 9457): a stable `code` for each kind, always the request ID, never a stack trace or a secret."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import orjson
import redis
from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import Response
from pydantic import BaseModel, ConfigDict
from starlette.exceptions import HTTPException

from archiver.access.login.sign_in import CodeNeeded
from archiver.alerts.senders import NotSent
from archiver.db.engine import is_away
from archiver.errors import ArchiverError, Conflict, InUse, NotAllowed, NotFound, NotReady, NotSignedIn, TooMany, UsageError
from archiver.http.public_text import without_paths
from archiver.logs import get_logger
from archiver.reading.content import UnreadableMessage
from archiver.search.query.errors import QueryError
from archiver.sources.access import SourceCheckFailed
from archiver.sources.uploads import UploadTooLarge
from archiver.store.errors import StoreError

log = get_logger("api")

KINDS: tuple[tuple[type[ArchiverError], int, str], ...] = (  # the first match counts
    (NotFound, 404, "not_found"),
    (UploadTooLarge, 413, "too_large"),
    (Conflict, 409, "conflict"),
    (InUse, 409, "in_use"),
    (CodeNeeded, 401, "code_needed"),
    (NotSignedIn, 401, "not_signed_in"),
    (NotAllowed, 403, "not_allowed"),
    (TooMany, 429, "too_many"),
    (SourceCheckFailed, 422, "source_check_failed"),
    (NotSent, 422, "not_sent"),
    (NotReady, 503, "not_ready"),
    (StoreError, 500, "unreadable"),
    (UnreadableMessage, 422, "unreadable_mail"),
    (QueryError, 400, "bad_query"),
    (UsageError, 400, "bad_request"),
    (ArchiverError, 500, "failed"),
)
_HTTP_CODES = {404: "not_found", 405: "method_not_allowed", 408: "too_slow", 413: "too_large", 415: "unsupported_media_type"}
_TITLES = {  # the phrases of RFC 9110 and, for 429, RFC 6585
    400: "Bad Request",
    401: "Unauthorized",
    403: "Forbidden",
    404: "Not Found",
    405: "Method Not Allowed",
    408: "Request Timeout",
    409: "Conflict",
    413: "Content Too Large",
    415: "Unsupported Media Type",
    416: "Range Not Satisfiable",
    421: "Misdirected Request",
    422: "Unprocessable Content",
    429: "Too Many Requests",
    500: "Internal Server Error",
    503: "Service Unavailable",
}


class Problem(BaseModel):
    """The body of every error response."""

    model_config = ConfigDict(
        json_schema_extra={
            "examples": [
                {
                    "type": "urn:archiver:not_found",
                    "title": "Not Found",
                    "status": 404,
                    "code": "not_found",
                    "detail": "message 0190… not found",
                    "request_id": "5f0c9a1b2c3d4e5f",
                }
            ]
        }
    )

    type: str
    title: str
    status: int
    code: str
    detail: str
    request_id: str
    errors: list[dict[str, Any]] | None = None


def problem(
    request_id: str, status: int, code: str, detail: str, headers: Mapping[str, str] | None = None, errors: Any = None
) -> Response:
    body: dict[str, Any] = {
        "type": f"urn:archiver:{code}",
        "title": _TITLES.get(status, "Error"),
        "status": status,
        "code": code,
        "detail": detail,
        "request_id": request_id,
    }
    if errors is not None:
        body["errors"] = errors
    return Response(orjson.dumps(body, default=str), status, headers, media_type="application/problem+json")


def request_id(request: Request) -> str:
    return str(getattr(request.state, "request_id", ""))


def install(app: FastAPI) -> None:
    app.add_exception_handler(ArchiverError, _archiver_error)
    app.add_exception_handler(RequestValidationError, _invalid)
    app.add_exception_handler(HTTPException, _http)


def _archiver_error(request: Request, error: Exception) -> Response:
    assert isinstance(error, ArchiverError)
    status, code = next((status, code) for kind, status, code in KINDS if isinstance(error, kind))
    headers = {"Retry-After": str(error.retry_after_seconds)} if isinstance(error, TooMany) else None
    if isinstance(error, QueryError):
        place = [{"message": error.reason, "start": error.start, "end": error.end}]
        return problem(request_id(request), status, code, error.reason, errors=place)
    if status == 500:
        log.error("request_failed", path=request.url.path, error=type(error).__name__, detail=str(error))
    return problem(request_id(request), status, getattr(error, "code", code), without_paths(str(error)), headers)


def _invalid(request: Request, error: Exception) -> Response:
    """Input is not echoed: it may be a secret."""
    assert isinstance(error, RequestValidationError)
    errors = [
        {"where": [str(step)[:100] for step in item["loc"]], "message": item["msg"][:300]} for item in error.errors()[:50]
    ]
    first = errors[0] if errors else {"where": [], "message": "not valid"}
    detail = f"{'.'.join(first['where'])}: {first['message']}"
    status, code = (400, "bad_request") if is_bad_id(error) else (422, "invalid")
    return problem(request_id(request), status, code, detail, errors=errors)


def is_bad_id(error: RequestValidationError) -> bool:
    """A path or query parameter that should be an ID is not one."""
    return any(item["type"].startswith("uuid") for item in error.errors())


def _http(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    code = _HTTP_CODES.get(error.status_code, "bad_request")
    return problem(request_id(request), error.status_code, code, str(error.detail), error.headers)


def unexpected(request_id: str, error: Exception) -> Response:
    """For errors that no handler expected. An unavailable server is 503, everything else a bug: 500."""
    if is_away(error) or isinstance(error, redis.RedisError) or type(error).__name__ == "TimeoutError":
        return problem(
            request_id,
            503,
            "not_ready",
            "a required server is not responding; try again in a few seconds",
            {"Retry-After": "5"},
        )
    return problem(
        request_id, 500, "failed", f"an unexpected error occurred; the log has details under request ID {request_id}"
    )


def problem_schema() -> dict[str, Any]:
    return Problem.model_json_schema()


ERRORS: dict[int | str, dict[str, Any]] = {
    "4XX": {"description": "The request was refused; `code` says why.", "model": Problem},
    "5XX": {"description": "The request failed; the log has details under `request_id`.", "model": Problem},
}
