"""The web process: pages, health and metrics."""

from __future__ import annotations

import secrets
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import structlog
from fastapi import FastAPI, Request, Response
from fastapi.responses import HTMLResponse, JSONResponse, PlainTextResponse
from fastapi.staticfiles import StaticFiles
from fastapi.templating import Jinja2Templates
from prometheus_client import CONTENT_TYPE_LATEST, generate_latest

from archiver import __version__
from archiver.config import Settings
from archiver.logs import get_logger
from archiver.services.health import Health, check_parts, job_figures
from archiver.web.metrics import Metrics

_HERE = Path(__file__).parent
_HEALTH_KEPT_SECONDS = 2.0
_CONTENT_POLICY = "default-src 'self'; base-uri 'none'; form-action 'self'; frame-ancestors 'none'; object-src 'none'"
_SECURITY_HEADERS = {
    "Content-Security-Policy": _CONTENT_POLICY,
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
}

log = get_logger("web")


class Readiness:
    """What the parts answered, asked at most every two seconds however many ask."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._at = 0.0
        self._parts: list[Health] = []

    def parts(self) -> list[Health]:
        if time.monotonic() - self._at > _HEALTH_KEPT_SECONDS:
            self._parts = check_parts(self._settings)
            self._at = time.monotonic()
            for part in self._parts:
                if not part.ok:
                    log.warning("part_not_ready", part=part.part, detail=part.detail)
        return self._parts


def create_app(settings: Settings) -> FastAPI:
    metrics, readiness = Metrics(), Readiness(settings)
    templates = Jinja2Templates(_HERE / "templates")

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        log.info("web_started", version=__version__)
        yield
        log.info("web_stopped")

    app = FastAPI(title="Archiver", version=__version__, lifespan=lifespan, docs_url=None, redoc_url=None, openapi_url=None)
    app.mount("/static", StaticFiles(directory=_HERE / "static"), name="static")

    @app.middleware("http")
    async def around(request: Request, call_next: Callable[[Request], Awaitable[Response]]) -> Response:
        request_id = secrets.token_hex(8)
        started = time.monotonic()
        with structlog.contextvars.bound_contextvars(request_id=request_id):
            try:
                response = await call_next(request)
            except Exception:  # the process goes on; the client learns nothing but the id
                log.exception("request_failed", method=request.method, path=request.url.path)
                text = f"Something went wrong. The log has it under the id {request_id}.\n"
                response = PlainTextResponse(text, status_code=500)
        route = getattr(request.scope.get("route"), "path", "none")
        metrics.request(request.method, route, response.status_code, time.monotonic() - started)
        response.headers.update({**_SECURITY_HEADERS, "X-Request-Id": request_id})
        return response

    @app.get("/healthz")
    def healthz() -> PlainTextResponse:
        """The process lives."""
        return PlainTextResponse("ok\n")

    @app.get("/readyz")
    def readyz() -> JSONResponse:
        """The parts that we need answer; says which does not. (Why stands in the log: this page is open to all.)"""
        parts = readiness.parts()
        ready = all(part.ok for part in parts)
        body = {"ready": ready, "parts": {part.part: "ok" if part.ok else "does not answer" for part in parts}}
        return JSONResponse(body, status_code=200 if ready else 503)

    @app.get("/metrics")
    def metric_values() -> Response:
        metrics.parts(readiness.parts())
        metrics.jobs(*job_figures(settings))
        return Response(generate_latest(metrics.registry), media_type=CONTENT_TYPE_LATEST)

    @app.get("/")
    def start_page(request: Request) -> HTMLResponse:
        values = {"version": __version__, "parts": readiness.parts()}
        return templates.TemplateResponse(request, "start.html", values)

    return app
