"""HTTP with connections that outlive a connector, because a throttled mailbox reconnects every few seconds.

One `GoogleHttpClient` belongs to one connector. Closing it ends only its own requests.
"""

from __future__ import annotations

import atexit
import base64
import contextlib
import http.client
import socket
import ssl
import threading
import time
import zlib
from collections.abc import Iterator, Mapping
from functools import lru_cache
from typing import NamedTuple
from urllib.parse import SplitResult, unquote, urlsplit
from urllib.request import getproxies, proxy_bypass

from connectors.errors import Unavailable, first_line
from connectors.http import ClosableClient

_TIMEOUT_SECONDS = 60.0
_IDLE_SECONDS = 50.0
_IDLE_AT_MOST = 64
_CHUNK = 256 << 10
_BODY_AT_MOST = 32 << 20
"""Limit for a response that is read as a whole: a page of a list has some ten kilobytes."""
_HEADERS = {"Accept-Encoding": "gzip", "User-Agent": "archiver (gzip)"}  # both are needed for a compressed response


class _Way(NamedTuple):
    """The destination of a connection, and its proxy."""

    scheme: str
    host: str
    port: int
    proxy: str | None


class _Idle:
    """Idle connections of this process."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._kept: dict[_Way, list[tuple[http.client.HTTPConnection, float]]] = {}

    def take(self, way: _Way) -> http.client.HTTPConnection | None:
        with self._lock:
            kept = self._kept.get(way, [])
            while kept:
                connection, since = kept.pop()
                if time.monotonic() - since < _IDLE_SECONDS:
                    return connection
                connection.close()
        return None

    def put(self, way: _Way, connection: http.client.HTTPConnection) -> None:
        with self._lock:
            kept = self._kept.setdefault(way, [])
            kept.append((connection, time.monotonic()))
            spare = kept.pop(0)[0] if len(kept) > _IDLE_AT_MOST else None
        if spare is not None:
            spare.close()

    def close(self) -> None:
        with self._lock:
            for connection, _ in (entry for kept in self._kept.values() for entry in kept):
                connection.close()
            self._kept.clear()


_idle = _Idle()
atexit.register(_idle.close)


class HttpResponse:
    """Status and headers; the body is streamed."""

    def __init__(self, response: http.client.HTTPResponse) -> None:
        self._response = response
        self.status = response.status
        self.headers: Mapping[str, str] = {name.lower(): value for name, value in response.headers.items()}

    def chunks(self) -> Iterator[bytes]:
        inflate = zlib.decompressobj(31) if self.headers.get("content-encoding") == "gzip" else None
        while data := self._response.read1(_CHUNK):
            if inflate is None:
                yield data
                continue
            while data:
                yield inflate.decompress(data, _CHUNK)
                data = inflate.unconsumed_tail
        if inflate is not None and not inflate.eof:
            raise http.client.IncompleteRead(b"")

    def read(self) -> bytes:
        body = bytearray()
        for chunk in self.chunks():
            body += chunk
            if len(body) > _BODY_AT_MOST:
                raise Unavailable("the server's response is too long")
        return bytes(body)


class GoogleHttpClient(ClosableClient):
    """Thread-safe. Every network error is raised as Unavailable."""

    def __init__(self) -> None:
        super().__init__()
        self._in_use: set[http.client.HTTPConnection] = set()
        self._ways: dict[tuple[str, str], _Way] = {}

    def close(self) -> None:
        self._closed.set()
        with self._lock:
            for connection in self._in_use:
                if connection.sock is not None:
                    with contextlib.suppress(OSError):
                        connection.sock.shutdown(socket.SHUT_RDWR)

    @contextlib.contextmanager
    def request(self, url: str, headers: Mapping[str, str], body: bytes | None = None) -> Iterator[HttpResponse]:
        """GET, or POST if there is a body. The connection is reused if the response was read to its end."""
        parts = urlsplit(url)
        way = self._way(parts)
        with self._translate_errors(parts):
            connection, response = self._send(way, parts, {**_HEADERS, **headers}, body)
            kept = False
            try:
                yield HttpResponse(response)
                is_read = response.isclosed() or response.length == 0  # (read1 does not notice the end)
                kept = is_read and not response.will_close and not self._closed.is_set()
            finally:
                response.close()
                with self._lock:
                    self._in_use.discard(connection)
                if kept and connection.sock is not None:
                    _idle.put(way, connection)
                else:
                    connection.close()

    def _way(self, parts: SplitResult) -> _Way:
        """Through the proxy of the environment (HTTPS_PROXY, NO_PROXY), as it was when the client was first used."""
        found = self._ways.get((parts.scheme, parts.netloc))
        if found is None:
            assert parts.hostname is not None, "the settings were validated"
            port = parts.port or (443 if parts.scheme == "https" else 80)
            proxy = None if proxy_bypass(f"{parts.hostname}:{port}") else getproxies().get(parts.scheme)
            found = self._ways[parts.scheme, parts.netloc] = _Way(parts.scheme, parts.hostname, port, proxy)
        return found

    def _send(
        self, way: _Way, parts: SplitResult, headers: Mapping[str, str], body: bytes | None
    ) -> tuple[http.client.HTTPConnection, http.client.HTTPResponse]:
        """The server may have closed an idle connection: then the request is sent again on a new one."""
        kept = _idle.take(way)
        for connection in (kept, None) if kept is not None else (None,):
            made = connection or _connect(way)
            with self._lock:
                self._in_use.add(made)
            try:
                self.ensure_open()
                target = f"{parts.path or '/'}{'?' + parts.query if parts.query else ''}"
                through = way.proxy is not None and way.scheme == "http"
                sent = dict(headers) | (_proxy_login(way.proxy) if through and way.proxy else {})
                made.request("GET" if body is None else "POST", parts.geturl() if through else target, body, sent)
                return made, made.getresponse()
            except BaseException as error:
                with self._lock:
                    self._in_use.discard(made)
                made.close()
                stale = connection is not None and isinstance(error, http.client.RemoteDisconnected | ConnectionError)
                if not stale or self._closed.is_set():
                    raise
        raise AssertionError("unreachable")

    @contextlib.contextmanager
    def _translate_errors(self, parts: SplitResult) -> Iterator[None]:
        self.ensure_open()
        try:
            yield
        except (OSError, http.client.HTTPException, zlib.error, ValueError, AttributeError) as error:
            self.ensure_open()  # whatever error the closed socket caused
            if isinstance(error, AttributeError):
                raise
            raise Unavailable(f"no connection to {parts.hostname}: {first_line(error)}") from error


def _connect(way: _Way) -> http.client.HTTPConnection:
    proxy = urlsplit(way.proxy if "//" in way.proxy else f"//{way.proxy}") if way.proxy else None
    host, port = (proxy.hostname or "", proxy.port or 8080) if proxy else (way.host, way.port)
    if way.scheme == "http":
        return http.client.HTTPConnection(host, port, timeout=_TIMEOUT_SECONDS)
    made = http.client.HTTPSConnection(host, port, timeout=_TIMEOUT_SECONDS, context=_tls())
    if proxy:
        made.set_tunnel(way.host, way.port, _proxy_login(way.proxy or ""))
    return made


def _proxy_login(proxy: str) -> dict[str, str]:
    parts = urlsplit(proxy if "//" in proxy else f"//{proxy}")
    if parts.username is None:
        return {}
    login = f"{unquote(parts.username)}:{unquote(parts.password or '')}"
    return {"Proxy-Authorization": f"Basic {base64.b64encode(login.encode()).decode()}"}


@lru_cache(maxsize=1)
def _tls() -> ssl.SSLContext:
    return ssl.create_default_context()
