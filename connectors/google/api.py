"""One caller's requests to a Google API: prepared by Google's client, and sent by ours, within the quotas, with a valid token,
and with errors translated.

Raw messages take a way of their own (`stream`): Google's client would hold one of 150 MB several times in memory.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

from connectors.base import Context, Quota
from connectors.errors import AuthFailed, ConnectorError, Throttled, Unavailable
from connectors.extras import LazyModule
from connectors.google.answers import Refusal, read_refusal
from connectors.google.services import ApiRequest
from connectors.google.tokens import GoogleTokens
from connectors.http import BROKEN, HttpClient, ResponseTooLarge, pause_before_retry, read_body, without

if TYPE_CHECKING:
    import httplib2
    import httpx2
    from googleapiclient import errors
    from googleapiclient import http as google_http
else:
    httplib2 = LazyModule("httplib2", "google")
    errors = LazyModule("googleapiclient.errors", "google")
    google_http = LazyModule("googleapiclient.http", "google")

_BODY_AT_MOST = 32 << 20
"""Limit for a response that is read as a whole: a page of a list has some ten kilobytes."""
_BATCH_AT_MOST = 50
"""Google's recommendation; 100 is the limit."""
_OURS = frozenset({"content-length", "accept-encoding", "user-agent"})

T = TypeVar("T")


class GoogleRefused(Exception):
    """The server rejected the request; what that means depends on the request."""

    def __init__(self, refusal: Refusal) -> None:
        super().__init__(refusal.said)
        self.refusal = refusal


class ServerTrouble(Unavailable):
    """Repeated 5xx responses."""


@dataclass(frozen=True, slots=True)
class Api:
    """Thread-safe."""

    http: HttpClient
    tokens: GoogleTokens
    context: Context
    base: str
    name: str
    """Shown to users: `Gmail API`."""
    quotas: Sequence[Quota]
    """The user's quota first, then the project's."""

    def ask(self, request: ApiRequest, cost: float) -> dict[str, Any]:
        self.context.wait_for_turn(cost, self.quotas)
        found = self._execute(request)
        if not isinstance(found, dict):
            raise Unavailable(f"the {self.name} returned an invalid response")
        return found

    def ask_each(self, requests: Mapping[str, ApiRequest], cost: float, path: str) -> dict[str, dict[str, Any] | None]:
        """Many requests in few calls, each of which the quota counts; None where the server rejected one."""
        found: dict[str, dict[str, Any] | None] = {}
        left = list(requests)
        while left:
            turns = self.context.wait_for_turn(cost, self.quotas, min(_BATCH_AT_MOST, len(left)))
            now, left = left[:turns], left[turns:]
            found |= self._batch({name: requests[name] for name in now}, path)
        return found

    def _batch(self, requests: Mapping[str, ApiRequest], path: str) -> dict[str, dict[str, Any] | None]:
        found: dict[str, dict[str, Any] | None] = dict.fromkeys(requests)
        refused: list[Refusal] = []

        def take(name: str, answer: Any, error: Any) -> None:
            if error is None:
                found[name] = answer if isinstance(answer, dict) else None
                return
            refusal = read_refusal(int(error.resp.status), error.resp, error.content)
            if refusal.is_rate_limit or refusal.status in (401, 403) or refusal.status >= 500:
                refused.append(refusal)

        if len(requests) == 1:
            (name, request), *_ = requests.items()
            return {name: self._single(request)}
        batch = google_http.BatchHttpRequest(callback=take, batch_uri=f"{self.base}{path}")
        for name, request in requests.items():
            batch.add(request, request_id=name)
        try:
            self._execute(batch)
        except GoogleRefused as refusal:
            if refusal.refusal.status != 404:
                raise
            return {name: self._single(request) for name, request in requests.items()}  # a server without batches
        if refused:
            raise self._error(refused[0])
        return found

    def _single(self, request: ApiRequest) -> dict[str, Any] | None:
        try:
            found = self._execute(request)
        except GoogleRefused:
            return None
        return found if isinstance(found, dict) else None

    def _execute(self, request: ApiRequest) -> Any:
        try:
            return self.retry(lambda: request.execute(http=self))
        except (ValueError, KeyError, errors.Error) as error:  # of Google's client, which could not read it
            raise Unavailable(f"the {self.name} returned an invalid response") from error

    def request(
        self, uri: str, method: str = "GET", body: Any = None, headers: Mapping[str, str] | None = None, **_: Any
    ) -> tuple[httplib2.Response, bytes]:
        """For Google's client, in the form that it knows from httplib2."""
        sent = {name: value for name, value in (headers or {}).items() if name.lower() not in _OURS}
        with self.stream(uri, method, sent, body) as response:
            content = read_body(response, _BODY_AT_MOST, f"the {self.name}")
            return httplib2.Response({"status": "200", **response.headers}), content

    def retry(self, ask: Callable[[], T]) -> T:
        """Retries after a broken connection before giving up."""
        for pause in BROKEN:
            try:
                return ask()
            except (ServerTrouble, ResponseTooLarge):
                raise
            except Unavailable:
                self.http.pause(pause)
        return ask()

    @contextlib.contextmanager
    def stream(
        self,
        url: str,
        method: str = "GET",
        headers: Mapping[str, str] | None = None,
        content: Any = None,
        *,
        once: bool = False,
    ) -> Iterator[httpx2.Response]:
        """A successful response, to be read inside the block. The caller has already taken its turn. With `once`, a request
        that the server may have carried out is not repeated."""
        tries, refreshed = 0, False
        while True:
            tries += 1
            token = self.tokens.get(self.http)
            sent = {**(headers or {}), "Authorization": f"Bearer {token}"}
            with self.http.request(method, url, headers=sent, content=content) as response:
                if response.status_code == 200:
                    yield response
                    return
                body = without(read_body(response, _BODY_AT_MOST, f"the {self.name}").decode("utf-8", "replace"), (token,))
            refusal = read_refusal(response.status_code, response.headers, body)
            if refusal.status == 401 and not refreshed:
                self.tokens.forget(token)
                refreshed, tries = True, tries - 1
                continue
            pause = pause_before_retry(refusal.status, response.headers, tries)
            if pause is None or once or refusal.retry_after_seconds is not None:
                raise self._error(refusal)
            self.http.pause(pause)

    def _error(self, refusal: Refusal) -> ConnectorError | GoogleRefused:
        if refusal.is_rate_limit:
            quota = self.quotas[-1 if refusal.is_about_project else 0]
            seconds = self.context.back_off(quota, refusal.retry_after_seconds)
            return Throttled(f"the {self.name} asks for a pause: {refusal.said}", seconds)
        if refusal.status >= 500:
            if refusal.retry_after_seconds is not None:
                return Throttled(f"the {self.name} asks for a pause: {refusal.said}", refusal.retry_after_seconds)
            return ServerTrouble(f"the {self.name} responded with HTTP {refusal.status}: {refusal.said}")
        if refusal.api_is_disabled:
            return AuthFailed(f"the {self.name} is not enabled in the project: {refusal.said}")
        if refusal.status == 401:
            return AuthFailed(f"the {self.name} rejected a new access token: {refusal.said}")
        return GoogleRefused(refusal)
