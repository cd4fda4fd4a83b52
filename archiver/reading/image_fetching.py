"""Fetches one image from an untrusted server, within limits of time and size, and never from our own network."""

from __future__ import annotations

import http.client
import socket
import ssl
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import Protocol
from urllib.parse import SplitResult, quote, urljoin, urlsplit

from archiver.logs import get_logger
from archiver.public_address import Address, is_public, resolve

_MOST_REDIRECTS = 5
_PIECE_BYTES = 64 << 10
_HEADERS = {  # no information about the reader, and no referrer
    "User-Agent": "Mozilla/5.0",
    "Accept": "image/png,image/jpeg,image/gif,image/webp",
    "Accept-Encoding": "identity",
    "Connection": "close",
}
_PORTS = {"http": 80, "https": 443}
_MAGIC = ((b"\x89PNG\r\n\x1a\n", "image/png"), (b"\xff\xd8\xff", "image/jpeg"), (b"GIF8", "image/gif"))
log = get_logger(__name__)


class _Refused(Exception):
    """The image must not be fetched, with the reason."""


class Network(Protocol):
    """Name resolution and connections, replaceable in tests."""

    def resolve(self, host: str) -> list[Address]: ...
    def connect(self, address: Address, port: int, seconds: float) -> socket.socket: ...


class RealNetwork:
    def resolve(self, host: str) -> list[Address]:
        return resolve(host)

    def connect(self, address: Address, port: int, seconds: float) -> socket.socket:
        return socket.create_connection((str(address), port), seconds)


def image_type(data: bytes) -> str | None:
    """By content, whatever the server calls it. None if it is not a passive image format that browsers display."""
    if data[:4] == b"RIFF" and data[8:12] == b"WEBP":
        return "image/webp"
    return next((kind for magic, kind in _MAGIC if data.startswith(magic)), None)


@dataclass(frozen=True, slots=True)
class Fetcher:
    network: Network = field(default_factory=RealNetwork)
    seconds: float = 10.0
    """Time limit for one image, including redirects."""
    most_bytes: int = 5 << 20

    def fetch(self, url: str) -> bytes | None:
        """None if it can't be fetched. The log has the reason, but not the URL, which may identify the reader."""
        deadline = time.monotonic() + self.seconds
        try:
            return self._follow(url, deadline)
        except _Refused as error:
            log.info("remote_image_refused", reason=str(error))
        except (OSError, http.client.HTTPException, ValueError) as error:
            log.info("remote_image_failed", error=type(error).__name__)
        return None

    def _follow(self, url: str, deadline: float) -> bytes:
        for _ in range(_MOST_REDIRECTS + 1):
            with self._request(_check_url(url), deadline) as answer:
                if answer.status not in (301, 302, 303, 307, 308):
                    return self._read(answer, deadline)
                url = urljoin(url, answer.headers.get("Location", ""))
        raise _Refused("too many redirects")

    @contextmanager
    def _request(self, parts: SplitResult, deadline: float) -> Iterator[http.client.HTTPResponse]:
        host, is_https = parts.hostname or "", parts.scheme == "https"
        port = _PORTS[parts.scheme]
        line = self.network.connect(self._address(host), port, _remaining(deadline))
        with _cut_at(deadline, line) as held:
            if is_https:
                held[0] = line = ssl.create_default_context().wrap_socket(line, server_hostname=host)
            kind = http.client.HTTPSConnection if is_https else http.client.HTTPConnection
            connection = kind(host, port)
            connection.sock = line
            target = quote(parts.path or "/", safe="/%:=&~+!$,;'@()*") + (f"?{_query(parts.query)}" if parts.query else "")
            connection.request("GET", target, headers=_HEADERS)
            with connection.getresponse() as answer:
                yield answer

    def _address(self, host: str) -> Address:
        """Resolved once, checked, and connected to directly: a second lookup could return another address."""
        addresses = self.network.resolve(host)
        if not addresses or not all(map(is_public, addresses)):
            raise _Refused("the address is not public")
        return addresses[0]

    def _read(self, answer: http.client.HTTPResponse, deadline: float) -> bytes:
        if answer.status != 200 or answer.headers.get("Content-Encoding", "identity") != "identity":
            raise _Refused(f"status {answer.status}")
        data = bytearray()
        while piece := answer.read1(_PIECE_BYTES):
            data += piece
            _remaining(deadline)
            if len(data) > self.most_bytes:
                raise _Refused("the image is too large")
        if image_type(bytes(data[:16])) is None:
            raise _Refused("the content is not an image")
        return bytes(data)


def _check_url(url: str) -> SplitResult:
    parts = urlsplit(url)
    if parts.scheme not in _PORTS or not parts.hostname:
        raise _Refused("not an http(s) URL")
    if parts.port not in (None, _PORTS[parts.scheme]):
        raise _Refused("the URL names a non-standard port")
    return parts


def _query(query: str) -> str:
    return quote(query, safe="/%:=&~+!$,;'@()*?")


def _remaining(deadline: float) -> float:
    left = deadline - time.monotonic()
    if left <= 0:
        raise _Refused("timed out")
    return left


@contextmanager
def _cut_at(deadline: float, line: socket.socket) -> Iterator[list[socket.socket]]:
    """Cuts the connection at the deadline, however slowly bytes arrive. The list holds the current socket."""
    held = [line]

    def cut() -> None:
        with suppress(OSError):
            socket.socket.shutdown(held[0], socket.SHUT_RDWR)

    timer = threading.Timer(_remaining(deadline), cut)
    timer.daemon = True
    timer.start()
    try:
        yield held
    finally:
        timer.cancel()
        held[0].close()
