"""A search of `archiver search`, sent to the web process of the same data folder: it has loaded everything already.

The web process listens on a unix socket that only the owner of the data folder can open (archiver.http.local_search). Request
and answer are one line of JSON each.
"""

from __future__ import annotations

import json
import socket
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from archiver import __version__
from archiver.errors import ArchiverError

_SECONDS = 120.0


@dataclass(frozen=True, slots=True)
class LocalSearchRequest:
    """`zone` is a name of the time zone database."""

    query: str
    sort: str
    page: int
    limit: int
    facets: bool
    zone: str
    similar: bool
    version: str = __version__


class RemoteError(ArchiverError):
    """The error of the process that was asked, with its exit code."""

    def __init__(self, message: str, exit_code: int) -> None:
        super().__init__(message)
        self.exit_code = exit_code


def ask(path: Path, request: LocalSearchRequest) -> dict[str, Any] | None:
    """The answer as `answer_of` builds it; None if no process of this version listens there."""
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    connection.settimeout(_SECONDS)
    with connection:
        try:
            connection.connect(str(path))
            connection.sendall(json.dumps(asdict(request)).encode() + b"\n")
            with connection.makefile("rb") as lines:
                found = json.loads(lines.readline() or b"null")
        except (OSError, ValueError):
            return None
    if not found:
        return None
    if "error" in found:
        raise RemoteError(found["error"], found["exit_code"])
    return dict(found["answer"])
