"""Runs the web process until SIGTERM; requests under way are finished first."""

from __future__ import annotations

import socket
from collections.abc import Callable

import uvicorn

from archiver.config import Settings
from archiver.stack.port import check_port_free
from archiver.web.app import create_app

_GRACE_SECONDS = 10


class _Server(uvicorn.Server):
    def __init__(self, config: uvicorn.Config, ready: Callable[[], None]) -> None:
        super().__init__(config)
        self._ready = ready

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        if self.started:
            self._ready()


def serve(settings: Settings, ready: Callable[[], None]) -> None:
    check_port_free(settings)
    proxies = [str(network) for network in settings.trusted_proxies]
    config = uvicorn.Config(
        create_app(settings),
        host=settings.archiver_host,
        port=settings.archiver_port,
        log_config=None,
        access_log=False,
        server_header=False,
        proxy_headers=bool(proxies),
        forwarded_allow_ips=proxies or None,
        timeout_graceful_shutdown=_GRACE_SECONDS,
    )
    _Server(config, ready).run()
