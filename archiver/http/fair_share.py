"""Limits the concurrent requests of each client, so that one client cannot occupy all threads.

Requests are handled in 40 threads. A client is identified by its session or API key once that has proved valid, and by its
address until then. Further requests wait in the event loop, where waiting costs no thread, and eventually get 429. A request
whose client disconnects while it waits is dropped.
"""

from __future__ import annotations

import asyncio
import hashlib
import re
from collections import OrderedDict, deque
from typing import TYPE_CHECKING

from archiver.http.problems import problem

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Message, Receive, Scope, Send

AT_ONCE = 12
_MAX_WAITING = 200
_WAIT_SECONDS = 30.0
_MAX_KNOWN = 10_000
_RETRY_AFTER_SECONDS = 5
_UNLIMITED = ("/healthz", "/static/")
_SESSION = re.compile(rb"(?:^|;\s*)(?:__Host-)?archiver=([^;\s]{1,200})")
_EVENTS = b"text/event-stream"


class Fair:
    def __init__(self, app: ASGIApp) -> None:
        self._app = app
        self._queues: dict[str, _ClientQueue] = {}
        self._known: OrderedDict[bytes, str] = OrderedDict()
        """Users by the hash of their credential; only credentials that proved valid."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or scope["path"].startswith(_UNLIMITED):
            await self._app(scope, receive, send)
            return
        credential = _credential_hash(scope)
        client = self._known.get(credential, "") or f"address {(scope.get('client') or ('',))[0]}"
        queue = self._queues.setdefault(client, _ClientQueue())
        body = _BufferedReceive(receive)
        try:
            if not await queue.enter(body):
                await _refuse(scope, receive, send)
                return
            slot = _Slot(queue, send)
            try:
                await self._app(scope, body, slot)
            finally:
                slot.end()
        except _Disconnected:
            return
        finally:
            if queue.is_empty and self._queues.get(client) is queue:
                del self._queues[client]
        self._remember(credential, scope)

    def _remember(self, credential: bytes, scope: Scope) -> None:
        user = scope.get("state", {}).get("user_id")
        if credential and user is not None:
            self._known[credential] = f"user {user}"
            self._known.move_to_end(credential)
            while len(self._known) > _MAX_KNOWN:
                self._known.popitem(last=False)


class _ClientQueue:
    """The running and waiting requests of one client."""

    def __init__(self) -> None:
        self._slots = asyncio.Semaphore(AT_ONCE)
        self._inside = 0

    @property
    def is_empty(self) -> bool:
        return self._inside == 0

    async def enter(self, body: _BufferedReceive) -> bool:
        """False if too many requests wait, or if no slot became free in time. Raises _Disconnected if the client goes away."""
        if self._inside >= AT_ONCE + _MAX_WAITING:
            return False
        self._inside += 1
        try:
            if self._slots.locked():
                await self._wait(body)
            else:
                await self._slots.acquire()
        except BaseException as error:
            self._inside -= 1
            if isinstance(error, TimeoutError):
                return False
            raise
        return True

    async def _wait(self, body: _BufferedReceive) -> None:
        """For a turn, which is taken or not: never taken and lost."""
        listening = asyncio.create_task(body.disconnected())
        waiting = asyncio.create_task(self._slots.acquire())
        is_wanted = False
        try:
            await asyncio.wait((listening, waiting), timeout=_WAIT_SECONDS, return_when=asyncio.FIRST_COMPLETED)
            is_wanted = True
        finally:
            listening.cancel()
            waiting.cancel()
            heard, taken = await asyncio.gather(listening, waiting, return_exceptions=True)
            is_wanted = is_wanted and not isinstance(heard, Exception)
            if taken is True and not is_wanted:
                self._slots.release()
        if taken is not True or not is_wanted:
            raise heard if isinstance(heard, Exception) else TimeoutError

    def leave(self) -> None:
        self._inside -= 1
        self._slots.release()


class _Disconnected(Exception):
    """The client went away before its request had a slot."""


class _BufferedReceive:
    """`receive`, listened to while the request waits. What arrives in that time is buffered for the application."""

    def __init__(self, receive: Receive) -> None:
        self._receive = receive
        self._buffered: deque[Message] = deque()

    async def __call__(self) -> Message:
        return self._buffered.popleft() if self._buffered else await self._receive()

    async def disconnected(self) -> None:
        """Raises _Disconnected when the client goes away. Only one piece of a body is buffered; after it, nothing is read."""
        while not (self._buffered and self._buffered[-1].get("more_body", False)):
            message = await self._receive()
            if message["type"] == "http.disconnect":
                raise _Disconnected
            self._buffered.append(message)
        await asyncio.get_running_loop().create_future()


class _Slot:
    """`send` that frees the slot when an event stream starts: a stream lasts for hours, but rarely needs a thread."""

    def __init__(self, queue: _ClientQueue, send: Send) -> None:
        self._queue, self._send, self._is_over = queue, send, False

    async def __call__(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            headers = {name.lower(): value for name, value in message.get("headers", ())}
            if headers.get(b"content-type", b"").startswith(_EVENTS):
                self.end()
        await self._send(message)

    def end(self) -> None:
        if not self._is_over:
            self._is_over = True
            self._queue.leave()


def _credential_hash(scope: Scope) -> bytes:
    """Hash of the session or API key, so that no plain credential is kept in memory."""
    headers = dict(scope["headers"])
    token = headers.get(b"authorization", b"")
    if not token and (session := _SESSION.search(headers.get(b"cookie", b""))):
        token = session[1]
    return hashlib.sha256(token).digest() if token else b""


async def _refuse(scope: Scope, receive: Receive, send: Send) -> None:
    request_id = scope.get("state", {}).get("request_id", "")
    headers = {"Retry-After": str(_RETRY_AFTER_SECONDS)}
    detail = "too many concurrent requests: wait for responses before sending more"
    await problem(request_id, 429, "too_many", detail, headers)(scope, receive, send)
