"""Runs the web process until SIGTERM, and lets running requests finish."""

from __future__ import annotations

import ctypes
import socket
import threading
from collections.abc import Callable

import uvicorn
from fastapi import FastAPI

from archiver.config import Settings
from archiver.http.app import create_app
from archiver.http.local_search import serve_local_searches
from archiver.supervisor.port import check_port_free

_GRACE_SECONDS = 10
_ARENA_MAX = -8  # M_ARENA_MAX of glibc's malloc.h


class _Server(uvicorn.Server):
    def __init__(self, config: uvicorn.Config, ready: Callable[[], None], stopping: threading.Event) -> None:
        super().__init__(config)
        self._ready, self._stopping = ready, stopping

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        if self.started:
            self._ready()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        self._stopping.set()
        await super().shutdown(sockets)


def server_config(settings: Settings, app: FastAPI) -> uvicorn.Config:
    """`X-Forwarded-For` is trusted only from TRUSTED_PROXIES."""
    proxies = [str(network) for network in settings.trusted_proxies]
    return uvicorn.Config(
        app,
        host=settings.archiver_host,
        port=settings.archiver_port,
        log_config=None,
        access_log=False,
        server_header=False,
        proxy_headers=bool(proxies),
        forwarded_allow_ips=proxies or None,
        timeout_graceful_shutdown=_GRACE_SECONDS,
    )


def serve(settings: Settings, ready: Callable[[], None]) -> None:
    check_port_free(settings)
    _share_memory()
    app = create_app(settings)
    serve_local_searches(app.state.context)
    _Server(server_config(settings, app), ready, app.state.context.stopping).run()


def _share_memory() -> None:
    """One malloc arena for all threads: with one arena each, every arena stays as large as its largest request ever."""
    tune = getattr(ctypes.CDLL(None), "mallopt", None)  # absent, and not needed, in other C libraries
    if tune is not None:
        tune(_ARENA_MAX, 1)
