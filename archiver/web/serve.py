"""Runs the web process until SIGTERM; requests under way are finished first."""

from __future__ import annotations

import ctypes
import socket
import threading
from collections.abc import Callable

import uvicorn
from fastapi import FastAPI

from archiver.config import Settings
from archiver.stack.port import check_port_free
from archiver.web.app import create_app

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
    """`X-Forwarded-For` is believed from TRUSTED_PROXIES, and from nobody else."""
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
    _Server(server_config(settings, app), ready, app.state.context.stopping).run()


def _share_memory() -> None:
    """One heap for all threads: with one for each, every one of them keeps what its largest request ever took."""
    tune = getattr(ctypes.CDLL(None), "mallopt", None)  # (other C libraries have no such thing, and need none)
    if tune is not None:
        tune(_ARENA_MAX, 1)
