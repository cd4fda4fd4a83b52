"""The web process: API, pages, health and metrics."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from fastapi import FastAPI, Request, Response
from fastapi.responses import JSONResponse, PlainTextResponse
from prometheus_client import CONTENT_TYPE_LATEST, generate_latest

from archiver import __version__
from archiver.api import problems
from archiver.api.context import ApiContext
from archiver.api.exports import start_exports
from archiver.api.router import router
from archiver.config import Settings
from archiver.logs import get_logger
from archiver.services.health import Health, check_parts, job_figures
from archiver.services.overview import index_figures
from archiver.web.around import Around
from archiver.web.assets import FOLDER, KeptFiles, static_path
from archiver.web.fair import Fair
from archiver.web.hosts import Hosts
from archiver.web.metrics import Metrics
from archiver.web.monitoring import refusal
from archiver.web.pages import errors
from archiver.web.pages.base import templates
from archiver.web.pages.router import pages

_HEALTH_KEPT_SECONDS = 2.0
_EXPORT_GRACE_SECONDS = 2.0
"""An export that takes longer is begun again by the next process."""
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
    metrics, readiness, context = Metrics(), Readiness(settings), ApiContext(settings)

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        log.info("web_started", version=__version__)
        exporting = start_exports(context)
        yield
        context.stopping.set()
        context.exports_wanted.set()
        exporting.join(_EXPORT_GRACE_SECONDS)
        context.close()
        log.info("web_stopped")

    app = FastAPI(title="Archiver", version=__version__, lifespan=lifespan, docs_url=None, redoc_url=None, openapi_url=None)
    app.state.context = context
    app.add_middleware(Fair)
    app.add_middleware(
        Around, metrics=metrics, upload_max_bytes=settings.upload_max_bytes, hosts=Hosts(settings), https=context.secure
    )
    problems.install(app)
    errors.install(app)
    app.include_router(router)
    app.include_router(pages)
    app.mount(static_path(), KeptFiles(directory=FOLDER), name="static")

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
    def metric_values(request: Request) -> Response:
        """For this machine, or with METRICS_TOKEN: how much mail there is, and when it comes, is nobody else's business."""
        if (refused := refusal(request, settings)) is not None:
            return refused
        parts = readiness.parts()
        metrics.parts(parts)
        metrics.jobs(*job_figures(settings))
        answers = any(part.ok for part in parts if part.part == "postgres")
        if answers and (found := context.counted.get("index", lambda: index_figures(context.engine))):
            metrics.index(found)
        return Response(generate_latest(metrics.registry), media_type=CONTENT_TYPE_LATEST)

    @app.get("/parts")
    def parts_page(request: Request) -> Response:
        """Which parts answer, and their versions. (`/readyz` is open to all, and says as much as they need.)"""
        if (refused := refusal(request, settings)) is not None:
            return refused
        values = {"version": __version__, "parts": readiness.parts()}
        return templates.TemplateResponse(request, "parts.html", values)

    return app
