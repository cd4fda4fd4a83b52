"""Errors as problem+json (RFC 9457): each kind has a stable `code`; no stack trace, no secret, always the request's id."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import orjson
import psycopg
import redis
import structlog
from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import Response
from pydantic import BaseModel, ConfigDict
from starlette.exceptions import HTTPException

from archiver.api.public_text import without_paths
from archiver.errors import ArchiverError, Conflict, InUse, NotAllowed, NotFound, NotReady, NotSignedIn, TooMany, UsageError
from archiver.search.query.errors import QueryError
from archiver.services.message_content import Unreadable
from archiver.services.sign_in import CodeNeeded
from archiver.services.source_access import SourceCheckFailed
from archiver.services.uploads import TooLarge
from archiver.store.errors import StoreError

log = structlog.get_logger("api")

KINDS: tuple[tuple[type[ArchiverError], int, str], ...] = (  # the first that fits
    (NotFound, 404, "not_found"),
    (TooLarge, 413, "too_large"),
    (Conflict, 409, "conflict"),
    (InUse, 409, "in_use"),
    (CodeNeeded, 401, "code_needed"),
    (NotSignedIn, 401, "not_signed_in"),
    (NotAllowed, 403, "not_allowed"),
    (TooMany, 429, "too_many"),
    (SourceCheckFailed, 422, "source_check_failed"),
    (NotReady, 503, "not_ready"),
    (StoreError, 500, "unreadable"),
    (Unreadable, 422, "unreadable_mail"),
    (QueryError, 400, "bad_query"),
    (UsageError, 400, "bad_request"),
    (ArchiverError, 500, "failed"),
)
_HTTP_CODES = {404: "not_found", 405: "method_not_allowed", 408: "too_slow", 413: "too_large", 415: "unsupported_media_type"}
_TITLES = {
    400: "The request makes no sense",
    401: "Sign in first",
    403: "Not allowed",
    404: "There is no such thing",
    405: "Not this way",
    408: "Too slow",
    409: "Not as things stand",
    413: "Too large",
    415: "Not this kind of content",
    416: "Not this range",
    421: "Not this server",
    422: "Not as it is",
    429: "Too many requests",
    503: "Not ready",
}


class Problem(BaseModel):
    """Every error has this form."""

    model_config = ConfigDict(
        json_schema_extra={
            "examples": [
                {
                    "type": "urn:archiver:not_found",
                    "title": "There is no such thing",
                    "status": 404,
                    "code": "not_found",
                    "detail": "there is no message 0190…",
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
        "title": _TITLES.get(status, "Something went wrong"),
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
    """What was given is not shown again: it may be a secret."""
    assert isinstance(error, RequestValidationError)
    errors = [
        {"where": [str(step)[:100] for step in item["loc"]], "message": item["msg"][:300]} for item in error.errors()[:50]
    ]
    first = errors[0] if errors else {"where": [], "message": "can't be read"}
    detail = f"{'.'.join(first['where'])}: {first['message']}"
    status, code = (400, "bad_request") if is_bad_id(error) else (422, "invalid")
    return problem(request_id(request), status, code, detail, errors=errors)


def is_bad_id(error: RequestValidationError) -> bool:
    """Something that is no id stands where one is expected."""
    return any(item["type"].startswith("uuid") for item in error.errors())


def _http(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    code = _HTTP_CODES.get(error.status_code, "bad_request")
    return problem(request_id(request), error.status_code, code, str(error.detail), error.headers)


def unexpected(request_id: str, error: Exception) -> Response:
    """The last net. A server that is away is told apart from a mistake of ours."""
    away = isinstance(getattr(error, "orig", error), psycopg.OperationalError | redis.RedisError)
    if away or type(error).__name__ == "TimeoutError":
        return problem(
            request_id, 503, "not_ready", "a server that we need does not answer; try again soon", {"Retry-After": "5"}
        )
    return problem(request_id, 500, "failed", f"Something went wrong. The log has it under the id {request_id}.")


def problem_schema() -> dict[str, Any]:
    return Problem.model_json_schema()


ERRORS: dict[int | str, dict[str, Any]] = {
    "4XX": {"description": "Refused; `code` says why.", "model": Problem},
    "5XX": {"description": "Failed; the log has it under `request_id`.", "model": Problem},
}
