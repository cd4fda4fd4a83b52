"""`serve`: the search server as a process, from its lock to its clean stop."""

from __future__ import annotations

import gc
import os
import signal
import socket
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import uvicorn

from archiver.errors import InUse
from archiver.search_server.app import create_app
from archiver.search_server.lock import folder_lock

KEEP_ALIVE_SECONDS = 75
STOP_SECONDS = 20
# a search re-acquires the interpreter lock some thirty times; with the default of 5 ms, a busy writer would delay it each time
SWITCH_SECONDS = 0.0005
# documents are many small objects without cycles, so frequent garbage collection is wasted
COLLECT_AFTER = 20_000


def serve(
    data: Path,
    master_key: str | None,
    host: str = "127.0.0.1",
    port: int = 7700,
    *,
    inherited: int | None = None,
    ready: Callable[[str], None] | None = None,
) -> None:
    """Runs until SIGTERM or SIGINT; finishes the current commit first. `ready` is called with the bound address.

    Port 0 chooses a free port; `inherited`, the descriptor of a listening socket, replaces host and port.
    Raises InUse if another process holds the folder or the port.
    """
    with folder_lock(data), _listen(host, port) if inherited is None else _adopt(inherited) as listener:
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
            address = listener.getsockname()
            ready(f"http://{_bracket(address[0])}:{address[1]}")
        with _signals_end_cleanly(), _tuned_interpreter():
            uvicorn.Server(config).run(sockets=[listener])


@contextmanager
def _tuned_interpreter() -> Iterator[None]:
    interval, thresholds = sys.getswitchinterval(), gc.get_threshold()
    sys.setswitchinterval(SWITCH_SECONDS)
    gc.set_threshold(COLLECT_AFTER, *thresholds[1:])
    try:
        yield
    finally:
        sys.setswitchinterval(interval)
        gc.set_threshold(*thresholds)


@contextmanager
def _signals_end_cleanly() -> Iterator[None]:
    """uvicorn raises the signal that stopped it again after its clean stop, which must not end the process."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = {number: signal.signal(number, lambda *_: None) for number in (signal.SIGTERM, signal.SIGINT)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


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


def _adopt(descriptor: int) -> socket.socket:
    os.set_inheritable(descriptor, False)
    return socket.socket(fileno=descriptor)


def _bracket(host: str) -> str:
    return f"[{host}]" if ":" in host else host
