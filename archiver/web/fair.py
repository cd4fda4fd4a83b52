"""No one person takes all threads: of each, a few requests are worked on at a time, and the others wait where waiting is free.

Requests are answered in threads, of which there are 40. Who asks is known by the session or key that a request carries, once
that was good; until then, by its address. Waiting happens in the event loop, for a while, and then ends with 429.
"""

from __future__ import annotations

import asyncio
import hashlib
import re
from collections import OrderedDict
from typing import TYPE_CHECKING

from archiver.api.problems import problem

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Message, Receive, Scope, Send

AT_ONCE = 12
_MOST_WAITING = 200
_WAIT_SECONDS = 30.0
_KNOWN = 10_000
_AGAIN_SECONDS = 5
_FREE = ("/healthz", "/static/")
_SESSION = re.compile(rb"(?:^|;\s*)(?:__Host-)?archiver=([^;\s]{1,200})")
_EVENTS = b"text/event-stream"


class Fair:
    def __init__(self, app: ASGIApp) -> None:
        self._app = app
        self._lines: dict[str, _Line] = {}
        self._known: OrderedDict[bytes, str] = OrderedDict()
        """Users, by what they showed; only what was good is in it."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or scope["path"].startswith(_FREE):
            await self._app(scope, receive, send)
            return
        shown = _shown(scope)
        who = self._known.get(shown, "") or f"address {(scope.get('client') or ('',))[0]}"
        line = self._lines.setdefault(who, _Line())
        try:
            if not await line.enter():
                await _refuse(scope, receive, send)
                return
            turn = _Turn(line, send)
            try:
                await self._app(scope, receive, turn)
            finally:
                turn.end()
        finally:
            if line.is_empty and self._lines.get(who) is line:
                del self._lines[who]
        self._remember(shown, scope)

    def _remember(self, shown: bytes, scope: Scope) -> None:
        user = scope.get("state", {}).get("user_id")
        if shown and user is not None:
            self._known[shown] = f"user {user}"
            self._known.move_to_end(shown)
            while len(self._known) > _KNOWN:
                self._known.popitem(last=False)


class _Line:
    """Of one person."""

    def __init__(self) -> None:
        self._turns = asyncio.Semaphore(AT_ONCE)
        self._inside = 0

    @property
    def is_empty(self) -> bool:
        return self._inside == 0

    async def enter(self) -> bool:
        """False: it is too long, or does not move."""
        if self._inside >= AT_ONCE + _MOST_WAITING:
            return False
        self._inside += 1
        try:
            await asyncio.wait_for(self._turns.acquire(), _WAIT_SECONDS)
        except BaseException as error:
            self._inside -= 1
            if isinstance(error, TimeoutError):
                return False
            raise
        return True

    def leave(self) -> None:
        self._inside -= 1
        self._turns.release()


class _Turn:
    """`send`. A stream of events gives its turn back when it begins: it takes a thread for a moment now and then, for hours."""

    def __init__(self, line: _Line, send: Send) -> None:
        self._line, self._send, self._is_over = line, send, False

    async def __call__(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            headers = {name.lower(): value for name, value in message.get("headers", ())}
            if headers.get(b"content-type", b"").startswith(_EVENTS):
                self.end()
        await self._send(message)

    def end(self) -> None:
        if not self._is_over:
            self._is_over = True
            self._line.leave()


def _shown(scope: Scope) -> bytes:
    """What a request shows to be known by; its hash, so that no list of sessions is kept."""
    given = dict(scope["headers"])
    token = given.get(b"authorization", b"")
    if not token and (session := _SESSION.search(given.get(b"cookie", b""))):
        token = session[1]
    return hashlib.sha256(token).digest() if token else b""


async def _refuse(scope: Scope, receive: Receive, send: Send) -> None:
    request_id = scope.get("state", {}).get("request_id", "")
    headers = {"Retry-After": str(_AGAIN_SECONDS)}
    detail = "too many requests of yours are being worked on: wait for their answers"
    await problem(request_id, 429, "too_many", detail, headers)(scope, receive, send)
