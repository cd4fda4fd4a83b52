"""`serve`: the search server as a process, from its lock to its clean stop."""

from __future__ import annotations

import socket
from collections.abc import Callable
from pathlib import Path

import uvicorn

from archiver.errors import InUse
from archiver.search.embedded.app import create_app
from archiver.search.embedded.lock import folder_lock

KEEP_ALIVE_SECONDS = 75
STOP_SECONDS = 20


def serve(
    data: Path,
    master_key: str | None,
    host: str = "127.0.0.1",
    port: int = 7700,
    *,
    ready: Callable[[str], None] | None = None,
) -> None:
    """Runs until SIGTERM or SIGINT; the commit in hand is finished first. `ready` gets the address once it is bound.

    Port 0 takes a free one. Raises InUse when the folder or the port belongs to somebody else.
    """
    with folder_lock(data), _listen(host, port) as listener:
        config = uvicorn.Config(
            create_app(data, master_key),
            log_config=None,
            access_log=False,
            lifespan="on",
            loop="uvloop",
            http="httptools",
            timeout_keep_alive=KEEP_ALIVE_SECONDS,
            timeout_graceful_shutdown=STOP_SECONDS,
            server_header=False,
        )
        if ready is not None:
            ready(f"http://{_bracketed(host)}:{listener.getsockname()[1]}")
        uvicorn.Server(config).run(sockets=[listener])


def _listen(host: str, port: int) -> socket.socket:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listener = socket.socket(family, socket.SOCK_STREAM)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((host, port))
    except OSError as error:
        listener.close()
        raise InUse(f"{host}:{port} can't be used: {error.strerror}") from error
    listener.listen(256)
    return listener


def _bracketed(host: str) -> str:
    return f"[{host}]" if ":" in host else host
