"""One caller's requests to a Google API: within the quotas, with a valid token, and with errors translated."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar
from urllib.parse import urlencode

from connectors.base import Context, Quota
from connectors.errors import AuthFailed, ConnectorError, Throttled, Unavailable
from connectors.google.answers import Refusal, read_refusal
from connectors.google.http import GoogleHttpClient, HttpResponse
from connectors.google.tokens import GoogleTokens

_TRIES = (0.3, 1.0)
"""Pauses after a 5xx response; Google recommends retrying these."""


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

    http: GoogleHttpClient
    tokens: GoogleTokens
    context: Context
    base: str
    name: str
    """Shown to users: `Gmail API`."""
    quotas: Sequence[Quota]
    """The user's quota first, then the project's."""

    def get(self, path: str, parameters: Mapping[str, Any], cost: float) -> dict[str, Any]:
        self.context.wait_for_turn(cost, self.quotas)
        body = self.retry(lambda: self._body(path, parameters))
        try:
            found = json.loads(body)
        except ValueError:
            found = None
        if not isinstance(found, dict):
            raise Unavailable(f"the {self.name} returned an invalid response")
        return found

    def _body(self, path: str, parameters: Mapping[str, Any]) -> bytes:
        with self.stream(path, parameters) as answer:
            return answer.read()

    def retry(self, ask: Callable[[], T]) -> T:
        """Retries after a broken connection before giving up."""
        try:
            return ask()
        except ServerTrouble:
            raise
        except Unavailable:
            self.http.pause(_TRIES[0])
            return ask()

    @contextlib.contextmanager
    def stream(self, path: str, parameters: Mapping[str, Any]) -> Iterator[HttpResponse]:
        """A successful response, to be read inside the block. The caller has already taken its turn."""
        url = f"{self.base}{path}?{urlencode(parameters, doseq=True)}"
        pauses = iter(_TRIES)
        refreshed = False
        while True:
            token = self.tokens.get(self.http)
            with self.http.request(url, {"Authorization": f"Bearer {token}"}) as answer:
                if answer.status == 200:
                    yield answer
                    return
                refusal = read_refusal(answer.status, answer.headers, answer.read())
            if refusal.status == 401 and not refreshed:
                self.tokens.forget(token)
                refreshed = True
                continue
            pause = next(pauses, None) if refusal.status >= 500 and refusal.retry_after_seconds is None else None
            if pause is None:
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
