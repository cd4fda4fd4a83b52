"""The HTTP client of all connectors: for Google, Microsoft, and the token servers of OAuth.

One `HttpClient` belongs to one connector, and any thread may close it, even during a request. Its connections outlive it,
because a throttled mailbox reconnects every few seconds.
"""

from __future__ import annotations

import atexit
import contextlib
import re
import socket
import ssl
import threading
from collections.abc import Iterable, Iterator, Mapping
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar
from urllib.request import getproxies

from connectors.errors import Unavailable, first_line
from connectors.extras import LazyModule

if TYPE_CHECKING:
    import httpx2
else:
    httpx2 = LazyModule("httpx2")

T = TypeVar("T")

_CONNECT_SECONDS, _SECONDS = 20.0, 60.0
_CONNECTIONS = 64
_KEPT_SECONDS = 50.0
_POOLS_AT_MOST = 32
_HEADERS = {"Accept-Encoding": "gzip", "User-Agent": "archiver (gzip)"}  # Google compresses only if both say gzip
_CONNECTED = ("connection.connect_tcp.complete", "connection.start_tls.complete")
_MAX_CHARS = 300
_TOKEN_LIKE = re.compile(r"[\w.-]+")

RETRIES: Mapping[int, tuple[float, ...]] = dict.fromkeys((408, 500, 502, 503, 504), (0.3, 1.0))
"""The pauses in seconds before each further attempt, by status. Other statuses are final, and so is one with Retry-After."""
BROKEN: tuple[float, ...] = (0.3, 1.0)
"""The pauses after a broken connection."""


class ResponseTooLarge(Unavailable):
    """The response was not read to its end: it would not be smaller the next time."""


class _Way(NamedTuple):
    """What the connections of a pool have in common."""

    ca_file: Path | None
    changed_at: float
    ca: str | None
    proxies: tuple[tuple[str, str], ...]
    """Of the environment (HTTPS_PROXY, NO_PROXY), as they were when the pool was made."""


class _Pool:
    """The connections of one client at a time."""

    def __init__(self, way: _Way, context: ssl.SSLContext) -> None:
        self.way = way
        self.under_way = 0
        self._lock = threading.Lock()
        self._sockets: set[socket.socket] = set()
        self._is_shut = False
        self.client = httpx2.Client(
            verify=context,
            timeout=httpx2.Timeout(_SECONDS, connect=_CONNECT_SECONDS),
            limits=httpx2.Limits(
                max_connections=_CONNECTIONS, max_keepalive_connections=_CONNECTIONS, keepalive_expiry=_KEPT_SECONDS
            ),
            headers=_HEADERS,
        )

    def shut(self) -> None:
        """Wakes reading threads, which close their own connections. Closing a socket while another thread reads from it would
        leave that thread reading from whatever gets the same file descriptor next."""
        with self._lock:
            self._is_shut = True
            for end in self._sockets:
                _shut(end)

    def close(self) -> None:
        with contextlib.suppress(Exception):
            self.client.close()

    def trace(self, event: str, info: Mapping[str, Any]) -> None:
        """Records the sockets, so that they can be shut down from another thread."""
        if event not in _CONNECTED:
            return
        stream = info.get("return_value")
        end = stream.get_extra_info("socket") if stream is not None else None
        with self._lock:
            self._sockets = {known for known in self._sockets if known.fileno() >= 0}
            if isinstance(end, socket.socket):
                self._sockets.add(end)
                if self._is_shut:
                    _shut(end)


def _shut(end: socket.socket) -> None:
    with contextlib.suppress(OSError):
        socket.socket.shutdown(end, socket.SHUT_RDWR)


class _IdlePools:
    """Pools whose client was closed, with their open connections, for the next client."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._pools: list[_Pool] = []

    def take(self, way: _Way) -> _Pool | None:
        with self._lock:
            found = next((pool for pool in reversed(self._pools) if pool.way == way), None)
            if found is not None:
                self._pools.remove(found)
            return found

    def put(self, pool: _Pool) -> None:
        with self._lock:
            self._pools.append(pool)
            spare = self._pools.pop(0) if len(self._pools) > _POOLS_AT_MOST else None
        if spare is not None:
            spare.close()

    def close(self) -> None:
        with self._lock:
            pools, self._pools = self._pools, []
        for pool in pools:
            pool.close()


_idle = _IdlePools()
atexit.register(_idle.close)


class HttpClient:
    """Thread-safe. Every network error is raised as Unavailable, without the secrets of the request."""

    def __init__(self, ca_file: Path | None = None, ca: str | None = None) -> None:
        self._ca_file, self._ca = ca_file, ca
        self._lock = threading.Lock()
        self._closed = threading.Event()
        self._pool: _Pool | None = None

    @property
    def is_closed(self) -> bool:
        return self._closed.is_set()

    def ensure_open(self) -> None:
        if self._closed.is_set():
            raise Unavailable("the connection was closed")

    def pause(self, seconds: float) -> None:
        """Ends early when the client is closed."""
        self._closed.wait(seconds)
        self.ensure_open()

    @contextlib.contextmanager
    def request(self, method: str, url: str, **more: Any) -> Iterator[httpx2.Response]:
        """The response, with its body unread. Redirects are not followed: a token goes only where it was meant to go."""
        pool = self._acquire()
        try:
            with pool.client.stream(method, url, extensions={"trace": pool.trace}, **more) as response:
                yield response
        except (httpx2.HTTPError, httpx2.StreamError, ssl.SSLError, OSError) as error:
            self.ensure_open()
            raise Unavailable(f"no connection to {httpx2.URL(url).host}: {_reason(error)}") from error
        except httpx2.InvalidURL as error:
            raise Unavailable("the server returned an invalid URL") from error
        except RuntimeError as error:  # raised by httpx for a closed client
            self.ensure_open()
            raise Unavailable(f"no connection to {httpx2.URL(url).host}: {first_line(error)}") from error
        finally:
            self._release(pool)

    def close(self) -> None:
        with self._lock:
            self._closed.set()
            pool = self._pool
            is_idle = pool is not None and pool.under_way == 0
            if is_idle:
                self._pool = None
        if pool is None:
            return
        if is_idle:
            _idle.put(pool)
        else:
            pool.shut()

    def _acquire(self) -> _Pool:
        with self._lock:
            self.ensure_open()
            if self._pool is None:
                way = _Way(self._ca_file, _changed_at(self._ca_file), self._ca, tuple(sorted(getproxies().items())))
                self._pool = _idle.take(way) or _Pool(way, _trust(way))
            self._pool.under_way += 1
            return self._pool

    def _release(self, pool: _Pool) -> None:
        with self._lock:
            pool.under_way -= 1
            is_last = self._closed.is_set() and pool.under_way == 0 and self._pool is pool
            if is_last:
                self._pool = None
        if is_last:
            pool.close()


def _changed_at(ca_file: Path | None) -> float:
    try:
        return ca_file.stat().st_mtime if ca_file else 0.0
    except OSError as error:
        raise Unavailable(f"the certificates in {ca_file} can't be read: {first_line(error)}") from error


def _trust(way: _Way) -> ssl.SSLContext:
    try:
        return trust(way.ca_file, way.changed_at, way.ca)
    except (OSError, ValueError) as error:
        raise Unavailable(f"the certificates in {way.ca_file or 'ca'} can't be read: {first_line(error)}") from error


@lru_cache(maxsize=8)
def trust(ca_file: Path | None, changed_at: float, ca: str | None = None) -> ssl.SSLContext:
    """Expensive to create, because the system's certificates are read, so all connections share one."""
    return ssl.create_default_context(cafile=ca_file, cadata=ca) if ca_file or ca else httpx2.create_ssl_context()


def _reason(error: BaseException) -> str:
    """Without the number of the operating system's error, which httpx puts first."""
    below: BaseException | None = error
    while below is not None:
        if isinstance(below, OSError) and below.strerror:
            return first_line(below)
        below = below.__cause__ or below.__context__
    return first_line(error)


def read_body(response: httpx2.Response, at_most: int, sender: str) -> bytes:
    """The whole body, if it is not larger than a response of this kind can be."""
    body = bytearray()
    for chunk in response.iter_bytes():
        body += chunk
        if len(body) > at_most:
            raise ResponseTooLarge(f"a response from {sender} is too large")
    return bytes(body)


def pause_before_retry(status: int, headers: Mapping[str, str], tries: int) -> float | None:
    """After this many attempts; None if the response is final."""
    pauses = RETRIES.get(status, ())
    return pauses[tries - 1] if tries <= len(pauses) and "retry-after" not in headers else None


def http_date(text: str) -> datetime | None:
    """A date in a header (RFC 9110, section 5.6.7); None if it is not one."""
    try:
        found = parsedate_to_datetime(text)
    except ValueError:
        return None
    return found if found.tzinfo else found.replace(tzinfo=UTC)


def retry_after(headers: Mapping[str, str], default: T) -> float | T:
    """The header Retry-After in seconds. A date is measured against the server's own clock, its header Date, since ours may be
    wrong. `headers` ignore case, or have lowercase names."""
    value = headers.get("retry-after", "").strip()
    if value.replace(".", "", 1).isdecimal():
        return float(value)
    until, now = http_date(value), http_date(headers.get("date", ""))
    return max(0.0, (until - now).total_seconds()) if until and now else default


def one_line(text: str, secrets: Iterable[str]) -> str:
    """The first line of a server's text, shortened and without secrets."""
    lines = text.strip().splitlines()
    return without(lines[0] if lines else "no reason given", secrets)[:_MAX_CHARS]


def without(text: str, secrets: Iterable[str]) -> str:
    for secret in secrets:
        if secret:
            text = text.replace(secret, "…")
    return _TOKEN_LIKE.sub(_without_token, text)


def _without_token(run: re.Match[str]) -> str:
    before, start, token = run[0].partition("eyJ")
    return f"{before}…" if start and "." in token else run[0]
