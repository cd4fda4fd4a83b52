"""Microsoft Graph: requests within the limits, and translation of its errors."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeVar
from urllib.parse import quote, urlsplit

import orjson

from connectors.base import Context, Json, Quota
from connectors.errors import AuthFailed, Throttled, Unavailable
from connectors.extras import LazyModule
from connectors.http import (
    BROKEN,
    RETRIES,
    HttpClient,
    ResponseTooLarge,
    one_line,
    pause_before_retry,
    read_body,
    retry_after,
)
from connectors.microsoft.error_messages import mailbox_error, permission_error
from connectors.microsoft.tokens import MicrosoftTokens

if TYPE_CHECKING:
    import httpx2
else:
    httpx2 = LazyModule("httpx2")

T = TypeVar("T")

VERSION = "v1.0"
BATCH_REQUESTS = 20
AT_ONCE = 4
"""Graph's limit for one mailbox, and how many requests of a batch it processes at once."""
_ANSWER_BYTES = 64 << 20
_REDIRECTS = 5
_TURNS_AT_ONCE = 100
_THROTTLED_SECONDS = 10.0


class GraphRefused(Exception):
    """An error response that does not concern the whole source: the caller knows what it means."""

    def __init__(self, status: int, code: str, said: str) -> None:
        super().__init__(f"{said} (HTTP {status}, {code})" if code else f"{said} (HTTP {status})")
        self.status, self.code = status, code

    @property
    def is_gone(self) -> bool:
        return self.status in (404, 400) and self.code in ("ErrorItemNotFound", "ErrorInvalidIdMalformed", "itemNotFound")

    @property
    def state_is_lost(self) -> bool:
        return self.status == 410 or self.code.lower() in ("syncstatenotfound", "syncstateinvalid", "resyncrequired")


class NoMailbox(Unavailable):
    """The user exists, but has no readable mailbox."""


@dataclass(frozen=True, slots=True)
class Sub:
    """The response to one request of a batch."""

    status: int
    body: dict[str, Json]
    text: str = field(default="", repr=False)
    """Graph's encoding of a body that is not JSON."""
    headers: Mapping[str, str] = field(default_factory=dict)

    @property
    def is_throttled(self) -> bool:
        return _asks_for_a_pause(self.status, self.headers)

    @property
    def is_gone(self) -> bool:
        return GraphRefused(self.status, *refusal_of(self.body)).is_gone


class _Slots:
    """Limits the concurrent requests of a mailbox. A batch needs one slot per request that Graph processes at once."""

    def __init__(self, limit: int, http: HttpClient) -> None:
        self._free, self._http = limit, http
        self._changed = threading.Condition()

    @contextlib.contextmanager
    def held(self, count: int) -> Iterator[None]:
        with self._changed:
            while self._free < count:
                self._changed.wait(0.5)
                self._http.ensure_open()
            self._free -= count
        try:
            yield
        finally:
            with self._changed:
                self._free += count
                self._changed.notify_all()


class Graph:
    """All requests of one connector. Thread-safe."""

    def __init__(self, url: str, tokens: MicrosoftTokens, http: HttpClient, context: Context, at_once: int) -> None:
        self.root, self.at_once = url, at_once
        self._tokens, self._http, self._context = tokens, http, context
        self._slots = _Slots(at_once, http)
        self._lock = threading.Lock()
        self._quota: Quota | None = None
        self._turns = 0

    def limit(self, quota: Quota) -> None:
        """Applies the quota of one mailbox from now on."""
        self._quota, self._turns = quota, 0

    def get(self, address: str, permission: str, *, prefer: str = "", version: str = VERSION) -> dict[str, Json]:
        """A JSON response, from a path or from a link that Graph returned."""
        return self._tried(address, permission, _parse, prefer=prefer, version=version)

    def send(self, method: str, address: str, permission: str, content: bytes, kind: str = "") -> dict[str, Json]:
        """A request that changes something. Never sent twice: a broken connection is the caller's to examine."""
        more: dict[str, Any] = {"headers": {"Content-Type": kind or "application/json"}, "content": content, "once": True}
        return self._tried(address, permission, _parse, method=method, prefer='IdType="ImmutableId"', **more)

    def pages(self, path: str, permission: str) -> Iterator[dict[str, Json]]:
        """The entries of a list, over all pages."""
        link: str | None = path
        while link:
            page = self.get(link, permission)
            self._context.progress()
            yield from page.get("value") or ()
            link = page.get("@odata.nextLink")

    def batch(self, addresses: Sequence[str], permission: str, prefer: str = "") -> list[Sub]:
        """Up to 20 requests in as few calls as possible, with responses in our order. An error of one request is in its
        response; if the server has no batches, all responses are empty."""
        step = BATCH_REQUESTS if self.at_once >= AT_ONCE else self.at_once
        stretches = [addresses[start : start + step] for start in range(0, len(addresses), step)]
        try:
            return [answer for stretch in stretches for answer in self.one_batch(stretch, permission, prefer)]
        except GraphRefused:
            return [_sub(None)] * len(addresses)

    def one_batch(
        self, addresses: Sequence[str], permission: str, prefer: str = "", most_bytes: int = _ANSWER_BYTES
    ) -> list[Sub]:
        """One call, in which each request counts. Raises GraphRefused if it is refused as a whole."""
        headers = {"Prefer": prefer} if prefer else {}
        requests: list[dict[str, Json]] = [
            {"id": str(number), "method": "GET", "url": self._relative(address), "headers": headers}
            for number, address in enumerate(addresses)
        ]
        answer = self._tried(
            "/$batch",
            permission,
            lambda response: _parse(response, most_bytes),
            method="POST",
            content=orjson.dumps({"requests": requests}),
            headers={"Content-Type": "application/json"},
            cost=len(requests),
        )
        found = {str(one.get("id")): one for one in answer.get("responses") or ()}
        return [_sub(found.get(request["id"])) for request in requests]

    def stream(self, address: str, permission: str, take: Callable[[httpx2.Response], T]) -> T:
        """The result of `take`, which reads the response itself."""
        return self._tried(address, permission, take, prefer='IdType="ImmutableId"')

    def _tried(
        self,
        address: str,
        permission: str,
        take: Callable[[httpx2.Response], T],
        *,
        method: str = "GET",
        cost: int = 1,
        prefer: str = "",
        version: str = VERSION,
        headers: Mapping[str, str] | None = None,
        once: bool = False,
        **more: Any,
    ) -> T:
        """Renews a rejected token once; retries temporary errors a few times, unless the request may be sent only `once`."""
        url, stale, tries = self._absolute(address, version), None, 0
        while True:
            tries += 1
            self._take_turn(cost)
            token = self._tokens.get(stale)
            sent = {**(headers or {}), "Authorization": f"Bearer {token}", **({"Prefer": prefer} if prefer else {})}
            try:
                slots = self._slots.held(min(cost, self.at_once))
                with slots, self._http.request(method, url, headers=sent, **more) as response:
                    status = response.status_code
                    if status in (200, 201):
                        return take(response)
                    code, said = _refusal(response)
            except ResponseTooLarge:
                raise
            except Unavailable:
                if once or tries > len(BROKEN):
                    raise
                self._http.pause(BROKEN[tries - 1])
                continue
            if status in (307, 308):  # an archive that is spread over several servers
                url = self._absolute(response.headers.get("Location", ""), version)
            elif status == 401 and stale is None:
                stale = token
            elif not once and (pause := pause_before_retry(status, response.headers, tries)) is not None:
                self._http.pause(pause)
            else:
                raise self._error(response, code, said, permission, token)
            if tries > _REDIRECTS:
                raise Unavailable("Microsoft Graph returned too many redirects")

    def _error(self, response: httpx2.Response, code: str, said: str, permission: str, token: str) -> Exception:
        status, text = response.status_code, one_line(said, (*self._tokens.secrets, token))
        if _asks_for_a_pause(status, response.headers):
            return self.throttled(response.headers)
        if status == 401:
            return AuthFailed(f"Microsoft Graph rejected the token: {text}")
        if status == 403 and code not in ("ErrorItemNotFound",):
            return permission_error(permission, token, "this mailbox" if self._quota else "the directory")
        reason = mailbox_error(code)
        if reason:
            return NoMailbox(f"{reason} ({code})")
        if status in (502, 503, 504, 408):
            return Unavailable(f"Microsoft Graph responded with HTTP {status}")
        return GraphRefused(status, code, text)

    def throttled(self, headers: Mapping[str, str]) -> Throttled:
        """All workers pause for the time that these headers ask for."""
        seconds = retry_after(headers, _THROTTLED_SECONDS)
        with self._lock:
            self._turns = 0
        pause = self._context.back_off(self._quota, seconds) if self._quota else seconds
        return Throttled("Microsoft Graph asks for a pause", pause)

    def turns_at_hand(self, limit: int) -> int:
        """How many requests may be sent now, from 1 to `limit`. Raises Throttled if none."""
        if self._quota is None:
            return limit
        with self._lock:
            if self._turns < limit:
                try:
                    self._turns += self._context.wait_for_turn(1.0, (self._quota,), _TURNS_AT_ONCE)
                except Throttled:
                    if not self._turns:
                        raise
            return min(limit, self._turns)

    def _take_turn(self, cost: int) -> None:
        """Turns are requested several at a time, because each request is a round trip to Redis."""
        if self._quota is None:
            self._context.wait_for_turn()
            return
        with self._lock:
            if self._turns < cost:
                self._turns += self._context.wait_for_turn(float(cost), (self._quota,), max(1, _TURNS_AT_ONCE // cost)) * cost
            self._turns -= cost

    def _absolute(self, address: str, version: str) -> str:
        """Our token is sent only to the configured server, whatever a link says."""
        if address.startswith("/"):
            return f"{self.root}/{version}{address}"
        if urlsplit(address)[:2] != urlsplit(self.root)[:2]:
            raise Unavailable("Microsoft Graph sent a link to another server, which was not followed")
        return address

    def _relative(self, address: str) -> str:
        if address.startswith("/"):
            return address
        url = self._absolute(address, VERSION)
        return url.removeprefix(f"{self.root}/{VERSION}")


def segment(text: str) -> str:
    """An id as a path segment."""
    return quote(text, safe="")


def _asks_for_a_pause(status: int, headers: Mapping[str, str]) -> bool:
    return status == 429 or (status in RETRIES and "Retry-After" in headers)


def _parse(response: httpx2.Response, most_bytes: int = _ANSWER_BYTES) -> dict[str, Json]:
    try:
        found = orjson.loads(read_body(response, most_bytes, "Microsoft Graph"))
    except orjson.JSONDecodeError as error:
        raise Unavailable("a response from Microsoft Graph is not JSON") from error
    if not isinstance(found, dict):
        raise Unavailable("Microsoft Graph returned an invalid response")
    return found


def _refusal(response: httpx2.Response) -> tuple[str, str]:
    """The error's code and text."""
    head = b""
    for chunk in response.iter_bytes():
        head += chunk
        if len(head) > 1 << 16:
            break
    with contextlib.suppress(orjson.JSONDecodeError, AttributeError, TypeError):
        return refusal_of(orjson.loads(head))
    return "", f"{response.reason_phrase}"


def refusal_of(body: Mapping[str, Json]) -> tuple[str, str]:
    error = body.get("error") or {}
    return str(error.get("code") or ""), str(error.get("message") or "")


def _sub(answer: Mapping[str, Json] | None) -> Sub:
    if answer is None:
        return Sub(504, {})
    body, status, headers = answer.get("body"), int(answer.get("status") or 504), answer.get("headers")
    named = httpx2.Headers(headers) if status != 200 and isinstance(headers, dict) else {}  # not needed for a success
    return Sub(status, body if isinstance(body, dict) else {}, body if isinstance(body, str) else "", named)
