"""Wraps every request: request ID, host check, security headers, body limits, metrics, and a handler for unexpected errors.

Plain ASGI: Starlette's function middleware would buffer streams, and we stream gigabytes.
"""

from __future__ import annotations

import asyncio
import re
import secrets
import time
from typing import TYPE_CHECKING, Any

import structlog
from starlette.exceptions import HTTPException

from archiver.http.forwarded import UntrustedPeers
from archiver.http.problems import problem, unexpected
from archiver.logs import get_logger

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Message, Receive, Scope, Send

    from archiver.http.hosts import Hosts
    from archiver.http.metrics import Metrics

_BODY_BYTES = 1 << 20
_SILENCE_SECONDS = 30.0
"""A client that stalls this long in the middle of a request gets 408."""
_WRONG_HOST = "this server does not answer to that host name: set ARCHIVER_URL to the address that users open"
_STREAMED = re.compile(r"/api/v1/(messages|uploads/[^/]+)")
_CONTENT_POLICY = "default-src 'self'; base-uri 'none'; form-action 'self'; frame-ancestors 'none'; object-src 'none'"
_SECURITY_HEADERS = {
    "Content-Security-Policy": _CONTENT_POLICY,
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "same-origin",  # no-referrer would make browsers hide the origin of our own forms
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Permissions-Policy": "camera=(), geolocation=(), microphone=()",
}

log = get_logger("web")


class RequestMiddleware:
    def __init__(self, app: ASGIApp, metrics: Metrics, upload_max_bytes: int, hosts: Hosts, *, https: bool = False) -> None:
        self._app, self._metrics, self._upload_max_bytes, self._https = app, metrics, upload_max_bytes, https
        self._hosts, self._peers = hosts, UntrustedPeers()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        request_id = secrets.token_hex(8)
        scope.setdefault("state", {})["request_id"] = request_id
        sender = _ResponseSender(scope, send, request_id, https=self._https or scope.get("scheme") == "https")
        started = time.monotonic()
        with structlog.contextvars.bound_contextvars(request_id=request_id):
            try:
                self._peers.notice(scope)
                if not self._hosts.allows(scope):
                    raise HTTPException(421, _WRONG_HOST)
                limit = self._upload_max_bytes if _STREAMED.fullmatch(scope["path"]) else _BODY_BYTES
                await self._app(scope, _LimitedReceive(scope, receive, limit), sender)
            except HTTPException as error:
                await self._refuse(scope, receive, sender, error)
            except Exception as error:
                reply = unexpected(request_id, error)
                if reply.status_code == 503:
                    log.warning("server_away", path=scope["path"], error=type(error).__name__)
                else:
                    log.exception("request_failed", method=scope["method"], path=scope["path"])
                if sender.started:
                    raise  # drops the connection, so that the client notices the truncated response
                await reply(scope, receive, sender)
        route = getattr(scope.get("route"), "path", "none")
        self._metrics.request(scope["method"], route, sender.status, time.monotonic() - started)

    async def _refuse(self, scope: Scope, receive: Receive, sender: _ResponseSender, error: HTTPException) -> None:
        if not sender.started:
            request_id = scope["state"]["request_id"]
            code = {413: "too_large", 408: "too_slow", 421: "wrong_host"}.get(error.status_code, "bad_request")
            await problem(request_id, error.status_code, code, str(error.detail))(scope, receive, sender)


class _LimitedReceive:
    """`receive` with limits: on bytes, and on silence."""

    def __init__(self, scope: Scope, receive: Receive, limit: int) -> None:
        self._receive, self._limit, self._taken, self._done = receive, limit, 0, False
        length = next((value for name, value in scope["headers"] if name == b"content-length"), b"")
        self._declared_bytes = int(length) if length.isdigit() and len(length) < 20 else 0

    async def __call__(self) -> Message:
        if self._done:  # only a disconnect can follow
            return await self._receive()
        if self._declared_bytes > self._limit:
            raise HTTPException(413, f"the body is larger than the limit of {self._limit:,} bytes")
        try:
            message = await asyncio.wait_for(self._receive(), _SILENCE_SECONDS)
        except TimeoutError:
            raise HTTPException(408, f"no data received for {_SILENCE_SECONDS:.0f} s") from None
        if message["type"] == "http.request":
            self._taken += len(message.get("body", b""))
            self._done = not message.get("more_body", False)
            if self._taken > self._limit:
                raise HTTPException(413, f"the body is larger than the limit of {self._limit:,} bytes")
        return message


class _ResponseSender:
    """`send` that adds the headers of every response."""

    def __init__(self, scope: Scope, send: Send, request_id: str, *, https: bool) -> None:
        self._scope, self._send, self._request_id, self._https = scope, send, request_id, https
        self.started = False
        self.status = 500

    async def __call__(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self.started, self.status = True, message["status"]
            message["headers"] = [*message["headers"], *self._added_headers(message["headers"])]
        await self._send(message)

    def _added_headers(self, headers: Any) -> list[tuple[bytes, bytes]]:
        wanted = {**_SECURITY_HEADERS, "X-Request-Id": self._request_id, **self._scope["state"].get("headers", {})}
        if self._https:
            wanted["Strict-Transport-Security"] = "max-age=31536000"
        if self._scope["path"].startswith("/api/"):
            wanted["Cache-Control"] = "private, no-store"
        present = {name.lower() for name, _ in headers}
        return [
            (name.lower().encode(), value.encode()) for name, value in wanted.items() if name.lower().encode() not in present
        ]
