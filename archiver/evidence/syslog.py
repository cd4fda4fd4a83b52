"""Sends a line to a syslog server (RFC 5424), by UDP, TCP (RFC 6587) or the local socket."""

from __future__ import annotations

import socket
from datetime import UTC, datetime
from urllib.parse import urlsplit

from archiver.logs import get_logger
from connectors.errors import first_line

_NOTICE_OF_AUTHPRIV = 10 * 8 + 5
_SECONDS = 5.0
_PORT = 514

log = get_logger("syslog")


def send(url: str, text: str) -> None:
    """Never raises: a server that does not respond is logged, because the caller's other work must not fail with it."""
    at = datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
    line = f"<{_NOTICE_OF_AUTHPRIV}>1 {at} {socket.gethostname()} archiver - - - {text}".encode()
    try:
        _send(url, line)
    except OSError as error:
        log.warning("syslog_away", error=first_line(error))


def _send(url: str, line: bytes) -> None:
    parts = urlsplit(url)
    if parts.scheme == "unix":
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as local:
            local.settimeout(_SECONDS)
            local.sendto(line, parts.path)
        return
    address = (parts.hostname or "", parts.port or _PORT)
    if parts.scheme == "tcp":
        with socket.create_connection(address, _SECONDS) as connection:
            connection.sendall(b"%d %s" % (len(line), line))
        return
    family, kind, protocol, _, found = socket.getaddrinfo(*address, type=socket.SOCK_DGRAM)[0]
    with socket.socket(family, kind, protocol) as datagram:
        datagram.sendto(line, found)
