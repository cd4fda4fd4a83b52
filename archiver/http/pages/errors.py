"""Errors on pages: an error page, or a redirect to sign-in. API routes respond with problem+json."""

from __future__ import annotations

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import Response
from starlette.exceptions import HTTPException

from archiver.errors import ArchiverError, NotSignedIn
from archiver.http import problems
from archiver.http.pages.base import redirect, render, sign_in_url, texts_of
from archiver.http.public_text import without_paths


def install(app: FastAPI) -> None:
    """Must run after `problems.install`: API requests are passed on to its handlers."""
    for kind in (ArchiverError, RequestValidationError, HTTPException):
        app.add_exception_handler(kind, _handler(app, kind))


def _handler(app: FastAPI, kind: type[Exception]):  # type: ignore[no-untyped-def]
    of_api = app.exception_handlers[kind]

    def handle(request: Request, error: Exception) -> Response:
        if request.url.path.startswith("/api/"):
            return of_api(request, error)  # type: ignore[return-value]
        if isinstance(error, NotSignedIn) and request.method == "GET":
            return redirect(sign_in_url(request))
        return _page(request, error)

    return handle


def _page(request: Request, error: Exception) -> Response:
    status, detail = 400, without_paths(str(error))
    if isinstance(error, ArchiverError):
        status = next(status for kind, status, _ in problems.KINDS if isinstance(error, kind))
    elif isinstance(error, HTTPException):
        status, detail = error.status_code, ""
    elif isinstance(error, RequestValidationError):
        status, detail = 404, ""
    t = texts_of(request)
    key = f"error.{status}" if t.has(f"error.{status}") else "error.other"
    return render(request, t, "error.html", status, title=t(key), detail=detail, request_id=problems.request_id(request))
