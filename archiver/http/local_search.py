"""Searches of `archiver search` over a unix socket; archiver.search.local_request describes the protocol."""

from __future__ import annotations

import contextlib
import json
import os
import socket
import threading
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import structlog

from archiver import __version__
from archiver.access.principal import LOCAL_OPERATOR
from archiver.db.engine import DATABASE_ERRORS
from archiver.errors import ArchiverError
from archiver.http.context import ApiContext
from archiver.search.answer import answer_of
from archiver.search.facets import FACETS
from archiver.search.local_request import LocalSearchRequest
from archiver.supervisor.folder import DataFolder

_REQUEST_BYTES = 64 << 10
_IDLE_SECONDS = 10.0
_log = structlog.get_logger(__name__)


def serve_local_searches(context: ApiContext) -> None:
    """In threads of their own. Whoever may open the socket may read the data folder, and so acts as the local operator."""
    try:
        listener = _listen(DataFolder(context.settings.archiver_data).search_socket)
    except (OSError, ArchiverError) as error:  # commands search by themselves then
        _log.warning("no_local_searches", reason=str(error))
        return
    threading.Thread(target=_accept, args=(listener, context), daemon=True, name="local-search").start()


def _listen(path: Path) -> socket.socket:
    path.parent.mkdir(mode=0o700, exist_ok=True)
    path.unlink(missing_ok=True)
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    mask = os.umask(0o177)
    try:
        listener.bind(str(path))
    finally:
        os.umask(mask)
    listener.listen(16)
    return listener


def _accept(listener: socket.socket, context: ApiContext) -> None:
    while not context.stopping.is_set():
        connection, _ = listener.accept()
        threading.Thread(target=_answer, args=(connection, context), daemon=True).start()


def _answer(connection: socket.socket, context: ApiContext) -> None:
    connection.settimeout(_IDLE_SECONDS)
    with connection, contextlib.suppress(OSError, ValueError, TypeError):
        with connection.makefile("rb") as lines:
            request = LocalSearchRequest(**json.loads(lines.readline(_REQUEST_BYTES)))
        connection.sendall(json.dumps(_outcome(request, context)).encode() + b"\n")


def _outcome(request: LocalSearchRequest, context: ApiContext) -> dict[str, Any] | None:
    if request.version != __version__:
        return None
    try:
        results = context.search.search_as(
            LOCAL_OPERATOR,
            request.query,
            sort=request.sort,
            offset=(request.page - 1) * request.limit,
            limit=request.limit,
            facets=FACETS if request.facets else (),
            zone=ZoneInfo(request.zone),
            similar=request.similar,
        )
    except ArchiverError as error:
        return {"error": str(error), "exit_code": error.exit_code}
    except DATABASE_ERRORS:  # the command finds out by itself
        return None
    return {"answer": answer_of(results, request.page)}
