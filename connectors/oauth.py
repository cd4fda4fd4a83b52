"""OAuth access tokens, shared by all connectors of a process, because connectors are short-lived."""

from __future__ import annotations

import threading
import time
from collections import OrderedDict
from collections.abc import Callable

_TOKENS_AT_MOST = 10_000
_SPARE_SECONDS = 300.0
"""A token is replaced this long before it expires: a request that takes minutes must not outlive its token."""


class TokenCache:
    """By a digest of what a token was obtained with, so that changed credentials get a new one. Thread-safe.

    Lifetimes are measured by the monotonic clock from the arrival of a token, because the wall clock may be wrong.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._tokens: OrderedDict[str, tuple[str, float]] = OrderedDict()
        self._requests: dict[str, threading.Lock] = {}

    def find(self, key: str, stale: str | None = None) -> str | None:
        """A token that should be valid, other than `stale`, which the server has rejected."""
        with self._lock:
            token, until = self._tokens.get(key, ("", 0.0))
        return token if token and token != stale and time.monotonic() < until else None

    def put(self, key: str, token: str, life_seconds: float) -> None:
        until = time.monotonic() + max(0.0, life_seconds - min(_SPARE_SECONDS, life_seconds / 2))
        with self._lock:
            self._tokens[key] = (token, until)
            self._tokens.move_to_end(key)
            while len(self._tokens) > _TOKENS_AT_MOST:
                oldest, _ = self._tokens.popitem(last=False)
                self._requests.pop(oldest, None)

    def get(self, key: str, request: Callable[[], tuple[str, float]]) -> str:
        """`request` returns a token and its lifetime in seconds. Only one of several threads calls it; the others wait."""
        if found := self.find(key):
            return found
        with self._lock:
            requesting = self._requests.setdefault(key, threading.Lock())
        with requesting:
            if found := self.find(key):
                return found
            token, life_seconds = request()
            self.put(key, token, life_seconds)
            return token

    def forget(self, key: str, token: str) -> None:
        """Drops a token that the server no longer accepts, unless another thread has replaced it."""
        with self._lock:
            if self._tokens.get(key, ("",))[0] == token:
                del self._tokens[key]
