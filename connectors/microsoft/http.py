"""HTTPS: one pool of connections that can be closed from any thread, even during a request."""

from __future__ import annotations

import contextlib
import socket
import ssl
from collections.abc import Iterator, Mapping
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from connectors.errors import Unavailable, first_line
from connectors.extras import LazyModule
from connectors.http import ClosableClient, retry_after

if TYPE_CHECKING:
    import httpx2
else:
    httpx2 = LazyModule("httpx2", "microsoft")

_CONNECT_SECONDS, _SECONDS = 20.0, 60.0
_USER_AGENT = "archiver"


@lru_cache(maxsize=8)
def trust(ca_file: Path | None, changed_at: float, ca: str | None = None) -> ssl.SSLContext:
    """Expensive to create, because the system's certificates are read, so all connections share one."""
    return ssl.create_default_context(cafile=ca_file, cadata=ca) if ca_file or ca else httpx2.create_ssl_context()


class GraphHttpClient(ClosableClient):
    """Uses the proxies of the environment (HTTPS_PROXY, NO_PROXY)."""

    def __init__(self, ca_file: Path | None, at_once: int, ca: str | None = None) -> None:
        super().__init__()
        self._ca_file, self._at_once, self._ca = ca_file, at_once, ca
        self._client: httpx2.Client | None = None
        self._under_way = 0
        self._sockets: set[socket.socket] = set()

    @contextlib.contextmanager
    def request(self, method: str, url: str, **more: Any) -> Iterator[httpx2.Response]:
        """The response, with its body unread. Every network error inside the block is raised as Unavailable."""
        client = self._acquire_client()
        try:
            with client.stream(method, url, extensions={"trace": self._trace}, **more) as response:
                yield response
        except (httpx2.HTTPError, httpx2.StreamError, ssl.SSLError, OSError) as error:
            self.ensure_open()
            raise Unavailable(f"no connection to {httpx2.URL(url).host}: {first_line(error)}") from error
        except httpx2.InvalidURL as error:
            raise Unavailable("the server returned an invalid URL") from error
        except RuntimeError as error:  # raised by httpx for a closed client
            self.ensure_open()
            raise Unavailable(f"no connection to {httpx2.URL(url).host}: {first_line(error)}") from error
        finally:
            self._release_client()

    def close(self) -> None:
        """Wakes reading threads, which close their own connections. Closing a socket while another thread reads from it would
        leave that thread reading from whatever gets the same file descriptor next."""
        with self._lock:
            self._closed.set()
            for end in self._sockets:
                with contextlib.suppress(OSError):
                    socket.socket.shutdown(end, socket.SHUT_RDWR)
        self._close_if_idle()

    def _release_client(self) -> None:
        with self._lock:
            self._under_way -= 1
        if self._closed.is_set():
            self._close_if_idle()

    def _close_if_idle(self) -> None:
        with self._lock:
            client, self._client = (self._client, None) if self._under_way == 0 else (None, self._client)
        if client:
            with contextlib.suppress(Exception):
                client.close()

    def _acquire_client(self) -> httpx2.Client:
        with self._lock:
            self.ensure_open()
            if self._client is None:
                self._client = httpx2.Client(
                    verify=self._ssl_context(),
                    timeout=httpx2.Timeout(_SECONDS, connect=_CONNECT_SECONDS),
                    limits=httpx2.Limits(max_connections=self._at_once, max_keepalive_connections=self._at_once),
                    headers={"User-Agent": _USER_AGENT},
                )
            self._under_way += 1
            return self._client

    def _ssl_context(self) -> ssl.SSLContext:
        try:
            return trust(self._ca_file, self._ca_file.stat().st_mtime if self._ca_file else 0.0, self._ca)
        except (OSError, ValueError) as error:
            raise Unavailable(f"the certificates in {self._ca_file or 'ca'} can't be read: {first_line(error)}") from error

    def _trace(self, event: str, info: Mapping[str, Any]) -> None:
        """Records the sockets, so that they can be shut down from another thread."""
        if event not in ("connection.connect_tcp.complete", "connection.start_tls.complete"):
            return
        stream = info.get("return_value")
        end = stream.get_extra_info("socket") if stream is not None else None
        with self._lock:
            self._sockets = {known for known in self._sockets if known.fileno() >= 0}
            if isinstance(end, socket.socket):
                self._sockets.add(end)
                if self._closed.is_set():
                    with contextlib.suppress(OSError):
                        socket.socket.shutdown(end, socket.SHUT_RDWR)


def pause_seconds(headers: Mapping[str, str], default: float) -> float:
    return retry_after(headers.get("Retry-After", ""), headers.get("Date", ""), default)
