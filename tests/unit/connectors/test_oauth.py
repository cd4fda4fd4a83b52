"""The token cache of all connectors."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from connectors.oauth import TokenCache


class Server:
    def __init__(self, life_seconds: float = 3600.0) -> None:
        self.life_seconds, self.requests = life_seconds, 0
        self.may_answer = threading.Event()
        self.may_answer.set()

    def request(self) -> tuple[str, float]:
        self.requests += 1
        assert self.may_answer.wait(60)
        return f"token {self.requests}", self.life_seconds


def test_a_token_is_requested_once() -> None:
    cache, server = TokenCache(), Server()
    assert [cache.get("a", server.request) for _ in range(3)] == ["token 1"] * 3
    assert cache.get("b", server.request) == "token 2"


def test_threads_wait_for_the_request_of_the_first() -> None:
    cache, server = TokenCache(), Server()
    server.may_answer.clear()
    with ThreadPoolExecutor(8) as pool:
        waiting = [pool.submit(cache.get, "a", server.request) for _ in range(8)]
        server.may_answer.set()
        assert {one.result(60) for one in waiting} == {"token 1"}


def test_a_token_is_replaced_before_it_expires(monkeypatch: pytest.MonkeyPatch) -> None:
    cache, server, now = TokenCache(), Server(), [1000.0]
    monkeypatch.setattr("connectors.oauth.time.monotonic", lambda: now[0])
    cache.get("a", server.request)
    now[0] += 3299
    assert cache.get("a", server.request) == "token 1"
    now[0] += 2
    assert cache.get("a", server.request) == "token 2"


def test_half_the_life_of_a_short_lived_token_is_used(monkeypatch: pytest.MonkeyPatch) -> None:
    cache, server, now = TokenCache(), Server(life_seconds=10), [1000.0]
    monkeypatch.setattr("connectors.oauth.time.monotonic", lambda: now[0])
    cache.get("a", server.request)
    now[0] += 4
    assert cache.get("a", server.request) == "token 1"
    now[0] += 2
    assert cache.get("a", server.request) == "token 2"


def test_a_rejected_token_is_not_used_again() -> None:
    cache, server = TokenCache(), Server()
    token = cache.get("a", server.request)
    assert cache.find("a", stale=token) is None
    cache.forget("a", "another token")
    assert cache.find("a") == token
    cache.forget("a", token)
    assert cache.get("a", server.request) == "token 2"


def test_the_cache_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("connectors.oauth._TOKENS_AT_MOST", 2)
    cache = TokenCache()
    for name in ("a", "b", "c"):
        cache.get(name, lambda name=name: (name, 3600.0))  # type: ignore[misc]
    assert [cache.find(name) for name in ("a", "b", "c")] == [None, "b", "c"]
