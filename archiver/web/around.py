"""Around every request: its id, the host it asks for, protective headers, limits on the body, figures, the last net for errors.

Plain ASGI: Starlette's function middleware would hold streams back, and we stream gigabytes.
"""

from __future__ import annotations

import asyncio
import re
import secrets
import time
from typing import TYPE_CHECKING, Any

import structlog
from starlette.exceptions import HTTPException

from archiver.api.problems import problem, unexpected
from archiver.logs import get_logger
from archiver.web.forwarded import UntrustedPeers

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Message, Receive, Scope, Send

    from archiver.web.hosts import Hosts
    from archiver.web.metrics import Metrics

_BODY_BYTES = 1 << 20
_SILENCE_SECONDS = 30.0
"""A client that sends nothing for so long in the middle of a request loses it."""
_WRONG_HOST = "this server is not known by that name: set ARCHIVER_URL to the address that people use"
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


class Around:
    def __init__(self, app: ASGIApp, metrics: Metrics, upload_max_bytes: int, hosts: Hosts, *, https: bool = False) -> None:
        self._app, self._metrics, self._upload_max_bytes, self._https = app, metrics, upload_max_bytes, https
        self._hosts, self._peers = hosts, UntrustedPeers()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        request_id = secrets.token_hex(8)
        scope.setdefault("state", {})["request_id"] = request_id
        answer = _Answer(scope, send, request_id, https=self._https or scope.get("scheme") == "https")
        started = time.monotonic()
        with structlog.contextvars.bound_contextvars(request_id=request_id):
            try:
                self._peers.notice(scope)
                if not self._hosts.allows(scope):
                    raise HTTPException(
                        421, "this server is not known by that name: set ARCHIVER_URL to the address people use"
                    )
                limit = self._upload_max_bytes if _STREAMED.fullmatch(scope["path"]) else _BODY_BYTES
                await self._app(scope, _Limited(scope, receive, limit), answer)
            except HTTPException as error:
                await self._refuse(scope, receive, answer, error)
            except Exception as error:
                reply = unexpected(request_id, error)
                if reply.status_code == 503:
                    log.warning("server_away", path=scope["path"], error=type(error).__name__)
                else:
                    log.exception("request_failed", method=scope["method"], path=scope["path"])
                if answer.started:
                    raise  # the connection is cut: the client sees that the answer is not whole
                await reply(scope, receive, answer)
        route = getattr(scope.get("route"), "path", "none")
        self._metrics.request(scope["method"], route, answer.status, time.monotonic() - started)

    async def _refuse(self, scope: Scope, receive: Receive, answer: _Answer, error: HTTPException) -> None:
        if not answer.started:
            request_id = scope["state"]["request_id"]
            code = {413: "too_large", 408: "too_slow", 421: "wrong_host"}.get(error.status_code, "bad_request")
            await problem(request_id, error.status_code, code, str(error.detail))(scope, receive, answer)


class _Limited:
    """`receive` with an end: in bytes, and in patience."""

    def __init__(self, scope: Scope, receive: Receive, limit: int) -> None:
        self._receive, self._limit, self._taken, self._done = receive, limit, 0, False
        length = next((value for name, value in scope["headers"] if name == b"content-length"), b"")
        self._told = int(length) if length.isdigit() and len(length) < 20 else 0

    async def __call__(self) -> Message:
        if self._done:  # only a disconnect can come
            return await self._receive()
        if self._told > self._limit:
            raise HTTPException(413, f"at most {self._limit:,} bytes are taken here")
        try:
            message = await asyncio.wait_for(self._receive(), _SILENCE_SECONDS)
        except TimeoutError:
            raise HTTPException(408, f"nothing came for {_SILENCE_SECONDS:.0f} s") from None
        if message["type"] == "http.request":
            self._taken += len(message.get("body", b""))
            self._done = not message.get("more_body", False)
            if self._taken > self._limit:
                raise HTTPException(413, f"at most {self._limit:,} bytes are taken here")
        return message


class _Answer:
    """`send` with the headers that every answer has."""

    def __init__(self, scope: Scope, send: Send, request_id: str, *, https: bool) -> None:
        self._scope, self._send, self._request_id, self._https = scope, send, request_id, https
        self.started = False
        self.status = 500

    async def __call__(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self.started, self.status = True, message["status"]
            message["headers"] = [*message["headers"], *self._more(message["headers"])]
        await self._send(message)

    def _more(self, given: Any) -> list[tuple[bytes, bytes]]:
        wanted = {**_SECURITY_HEADERS, "X-Request-Id": self._request_id, **self._scope["state"].get("headers", {})}
        if self._https:
            wanted["Strict-Transport-Security"] = "max-age=31536000"
        if self._scope["path"].startswith("/api/"):
            wanted["Cache-Control"] = "private, no-store"
        there = {name.lower() for name, _ in given}
        return [(name.lower().encode(), value.encode()) for name, value in wanted.items() if name.lower().encode() not in there]
