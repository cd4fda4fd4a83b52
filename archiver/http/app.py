"""The web process: API, pages, health and metrics."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from fastapi import FastAPI, Request, Response
from fastapi.responses import JSONResponse, PlainTextResponse
from prometheus_client import CONTENT_TYPE_LATEST, generate_latest

from archiver import __version__
from archiver.config import Settings
from archiver.http import problems
from archiver.http.api.router import router
from archiver.http.assets import FOLDER, KeptFiles, static_path
from archiver.http.context import ApiContext
from archiver.http.fair_share import Fair
from archiver.http.hosts import Hosts
from archiver.http.metrics import Metrics
from archiver.http.middleware import RequestMiddleware
from archiver.http.monitoring import refusal
from archiver.http.pages import errors
from archiver.http.pages.base import templates
from archiver.http.pages.router import pages
from archiver.logs import get_logger
from archiver.maintenance.checks.health import Health, check_parts
from archiver.maintenance.figures import disk_figures, queue_figures, shared_figures
from archiver.maintenance.status import index_figures

_HEALTH_CACHE_SECONDS = 2.0
log = get_logger("web")


class Readiness:
    """Health of the components, checked at most every two seconds regardless of the number of clients."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._at = 0.0
        self._parts: list[Health] = []

    def parts(self) -> list[Health]:
        if time.monotonic() - self._at > _HEALTH_CACHE_SECONDS:
            self._parts = check_parts(self._settings)
            self._at = time.monotonic()
            for part in self._parts:
                if not part.ok:
                    log.warning("part_not_ready", part=part.part, detail=part.detail)
        return self._parts


def create_app(settings: Settings) -> FastAPI:
    metrics, context = Metrics(), ApiContext(settings)

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        log.info("web_started", version=__version__)
        yield
        context.stopping.set()
        context.close()
        log.info("web_stopped")

    app = FastAPI(title="Archiver", version=__version__, lifespan=lifespan, docs_url=None, redoc_url=None, openapi_url=None)
    app.state.context = context
    app.add_middleware(Fair)
    app.add_middleware(
        RequestMiddleware,
        metrics=metrics,
        upload_max_bytes=settings.upload_max_bytes,
        hosts=Hosts(settings),
        https=context.secure,
    )
    problems.install(app)
    errors.install(app)
    app.include_router(router)
    app.include_router(pages)
    app.mount(static_path(), KeptFiles(directory=FOLDER), name="static")
    _add_monitoring(app, context, metrics, Readiness(settings))
    return app


def _add_monitoring(app: FastAPI, context: ApiContext, metrics: Metrics, readiness: Readiness) -> None:
    """Routes for load balancers, monitoring systems and administrators, outside of the API."""
    settings = context.settings

    @app.get("/healthz")
    def healthz() -> PlainTextResponse:
        """The process is alive."""
        return PlainTextResponse("ok\n")

    @app.get("/readyz")
    def readyz() -> JSONResponse:
        """Reports which components respond. The reasons are only in the log: this route is public."""
        parts = readiness.parts()
        ready = all(part.ok for part in parts)
        body = {"ready": ready, "parts": {part.part: "ok" if part.ok else "does not answer" for part in parts}}
        return JSONResponse(body, status_code=200 if ready else 503)

    @app.get("/metrics")
    def metric_values(request: Request) -> Response:
        """From this machine, or with METRICS_TOKEN: the amount and timing of mail is confidential."""
        if (refused := refusal(request, settings)) is not None:
            return refused
        parts = readiness.parts()
        metrics.parts(parts)
        shared = queue_figures(settings) + disk_figures(settings)
        answers = any(part.ok for part in parts if part.part == "postgres")
        if answers and (found := context.count_cache.get("index", lambda: index_figures(context.engine))):
            metrics.index(found)
        if answers and (known := context.count_cache.get("figures", lambda: shared_figures(context.engine))):
            metrics.shared(shared + known.figures, known.counts)
        else:
            metrics.shared(shared, {})
        return Response(generate_latest(metrics.registry), media_type=CONTENT_TYPE_LATEST)

    @app.get("/parts")
    def parts_page(request: Request) -> Response:
        """Health and versions of the components. Versions are why it is restricted, unlike `/readyz`."""
        if (refused := refusal(request, settings)) is not None:
            return refused
        values = {"version": __version__, "parts": readiness.parts()}
        return templates.TemplateResponse(request, "parts.html", values)
