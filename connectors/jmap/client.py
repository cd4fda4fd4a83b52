"""Requests to a JMAP server: its session, its methods and its blobs (RFC 8620)."""

from __future__ import annotations

import base64
import json
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar
from urllib.parse import quote, urljoin, urlsplit

from connectors.base import Context, Json
from connectors.errors import AuthFailed, ConnectorError, Throttled, Unavailable
from connectors.http import BROKEN, HttpClient, one_line, pause_before_retry, read_body, retry_after
from connectors.jmap.settings import JmapSecrets, JmapSettings

if TYPE_CHECKING:
    import httpx2

T = TypeVar("T")

CORE, MAIL = "urn:ietf:params:jmap:core", "urn:ietf:params:jmap:mail"
_ANSWER_BYTES = 64 << 20
_SESSION_BYTES = 4 << 20
_PAUSE_SECONDS = 30.0
_REDIRECTS = 3
_OBJECTS = 500

Call = tuple[str, dict[str, Json], str]


class MethodRefused(Exception):
    """The server answered a method with an error (RFC 8620, section 3.6.2)."""

    def __init__(self, kind: str, description: str) -> None:
        super().__init__(f"{kind}: {description}" if description else kind)
        self.kind = kind


class BlobRefused(Exception):
    """The server does not return the content of a message."""

    def __init__(self, status: int) -> None:
        super().__init__(f"HTTP {status}")
        self.status = status


@dataclass(frozen=True, slots=True)
class JmapSession:
    """What the server says about itself and the login."""

    user: str
    accounts: Mapping[str, str]
    """The ids of the accounts with mail, with their names."""
    primary: str
    api_url: str
    download_url: str
    event_url: str
    objects: int
    """How many messages may be described at once."""
    requests_at_once: int


class JmapClient:
    def __init__(self, settings: JmapSettings, secrets: JmapSecrets, context: Context) -> None:
        self._settings, self._context = settings, context
        self.http = HttpClient(settings.ca_file, settings.ca)
        self._secret = (secrets.token or secrets.password or "").get_secret_value()  # type: ignore[union-attr]
        if secrets.token is not None:
            self._authorization = f"Bearer {self._secret}"
        else:
            pair = base64.b64encode(f"{settings.user or ''}:{self._secret}".encode()).decode()
            self._authorization = f"Basic {pair}"
        self._lock = threading.Lock()
        self._session: JmapSession | None = None
        self.round_trips = 0
        """Requests sent, downloads not counted."""

    def close(self) -> None:
        self.http.close()

    @property
    def session(self) -> JmapSession:
        with self._lock:
            if self._session is None:
                self._session = self._retry(self._discover)
            return self._session

    def call(self, calls: Sequence[Call]) -> list[dict[str, Any]]:
        """The answers in order. Raises MethodRefused for the first that is an error."""
        body = json.dumps({"using": [CORE, MAIL], "methodCalls": calls})
        answer = self._retry(lambda: self._json("POST", self.session.api_url, _ANSWER_BYTES, content=body))
        found = answer.get("methodResponses")
        if not isinstance(found, list) or len(found) < len(calls):
            raise Unavailable("the server returned an invalid response")
        answers = {}
        for one in found:
            match one:
                case [str(name), dict(arguments), str(tag)]:
                    if name == "error":
                        raise _refusal(arguments)
                    answers[tag] = arguments
        try:
            return [answers[tag] for _, _, tag in calls]
        except KeyError:
            raise Unavailable("the server left a method without an answer") from None

    def download(self, account: str, blob: str, take: Callable[[Iterator[bytes]], T]) -> T:
        """Raises BlobRefused."""
        url = self.session.download_url
        for name, value in (("accountId", account), ("blobId", blob), ("name", "message.eml"), ("type", "message/rfc822")):
            url = url.replace(f"{{{name}}}", quote(value, safe=""))

        def read() -> T:
            with self._open("GET", url) as response:
                if response.status_code in (400, 404, 410):
                    raise BlobRefused(response.status_code)
                self._check(response)
                return take(response.iter_bytes())

        return self._retry(read)

    @contextmanager
    def events(self, types: str) -> Iterator[Iterator[str] | None]:
        """The lines of the server's events (RFC 8620, section 7.3); None if it has none."""
        url = self.session.event_url
        for name, value in (("types", types), ("closeafter", "no"), ("ping", "30")):
            url = url.replace(f"{{{name}}}", quote(value, safe=","))
        with self._open("GET", url, headers={"Accept": "text/event-stream"}) as response:
            if response.status_code in (204, 404, 501):
                yield None
                return
            self._check(response)
            yield response.iter_lines()

    def _discover(self) -> JmapSession:
        url = self._settings.session_url
        for _ in range(_REDIRECTS):
            with self._open("GET", url) as response:
                self.round_trips += 1
                if response.status_code in (301, 302, 307, 308) and response.headers.get("location"):
                    url = self._allowed(urljoin(url, response.headers["location"]))
                    continue
                self._check(response)
                return self._read_session(url, _object(read_body(response, _SESSION_BYTES, self._settings.host)))
        raise Unavailable(f"{self._settings.host} redirects too often")

    def _read_session(self, url: str, found: Mapping[str, Any]) -> JmapSession:
        accounts = {
            str(key): str(value.get("name") or key)
            for key, value in _items(found.get("accounts"))
            if isinstance(value, dict) and MAIL in (value.get("accountCapabilities") or {})
        }
        primary = str((found.get("primaryAccounts") or {}).get(MAIL) or "")
        links = [found.get(name) for name in ("apiUrl", "downloadUrl", "eventSourceUrl")]
        if not accounts or primary not in accounts or not all(isinstance(link, str) for link in links[:2]):
            raise Unavailable(f"{self._settings.host} has no mail for this login")
        api, download, events = (self._allowed(urljoin(url, str(link or ""))) for link in links)
        core = (found.get("capabilities") or {}).get(CORE) or {}
        return JmapSession(
            str(found.get("username") or accounts[primary]),
            accounts,
            primary,
            api,
            download,
            events,
            min(_OBJECTS, _number(core.get("maxObjectsInGet"), _OBJECTS)),
            _number(core.get("maxConcurrentRequests"), 4),
        )

    def _allowed(self, url: str) -> str:
        """The credentials go only to hosts that the owner of the source has named, whatever the server says."""
        parts, session = urlsplit(url), urlsplit(self._settings.url)
        if parts.hostname not in self._settings.hosts():
            raise Unavailable(f"the server refers to {parts.hostname}: if it belongs to the provider, add it to other_hosts")
        if parts.scheme != "https" and (parts.scheme, parts.hostname) != (session.scheme, session.hostname):
            raise Unavailable("the server refers to a connection without TLS")
        return url

    def _json(self, method: str, url: str, at_most: int, **more: Any) -> dict[str, Any]:
        self.round_trips += 1
        headers = {"Content-Type": "application/json", "Accept": "application/json"}
        with self._open(method, url, headers=headers, **more) as response:
            self._check(response)
            return _object(read_body(response, at_most, self._settings.host))

    @contextmanager
    def _open(self, method: str, url: str, headers: Mapping[str, str] | None = None, **more: Any) -> Iterator[httpx2.Response]:
        self._context.wait_for_turn()
        sent = {"Authorization": self._authorization, **(headers or {})}
        with self.http.request(method, url, headers=sent, **more) as response:
            yield response

    def _check(self, response: httpx2.Response) -> None:
        status = response.status_code
        if status == 200:
            return
        text = one_line(read_body(response, _SESSION_BYTES, self._settings.host).decode("utf-8", "replace"), [self._secret])
        host = self._settings.host
        if status == 401:
            raise AuthFailed(f"{host} rejected the login: {text}")
        if status == 403:
            raise AuthFailed(f"{host} denies access: {text}")
        if status == 429 or (status == 503 and "retry-after" in response.headers):
            raise Throttled(f"{host} asks for a pause", retry_after(response.headers, _PAUSE_SECONDS))
        raise JmapServerError(f"{host} responded with HTTP {status}: {text}", pause_before_retry(status, response.headers, 1))

    def _retry(self, ask: Callable[[], T]) -> T:
        """After a broken connection or an error of the server, twice."""
        for pause in BROKEN:
            try:
                return ask()
            except (AuthFailed, Throttled):
                raise
            except JmapServerError as error:
                if error.pause is None:
                    raise
            except Unavailable:
                self.http.ensure_open()
            self.http.pause(pause)
        return ask()


class JmapServerError(Unavailable):
    def __init__(self, message: str, pause: float | None) -> None:
        super().__init__(message)
        self.pause = pause


_UNAVAILABLE = ("serverUnavailable", "serverFail", "serverPartialFail")


def _refusal(arguments: Mapping[str, Any]) -> Exception:
    kind, description = str(arguments.get("type") or "error"), one_line(str(arguments.get("description") or " "), ())
    error: ConnectorError | MethodRefused = MethodRefused(kind, description)
    if kind in _UNAVAILABLE:
        error = Unavailable(f"the server failed: {description or kind}")
    elif kind in ("forbidden", "accountNotFound", "accountNotSupportedByMethod"):
        error = AuthFailed(f"the server denies access to the account: {description or kind}")
    return error


def _object(body: bytes) -> dict[str, Any]:
    try:
        found = json.loads(body)
    except ValueError:
        found = None
    if not isinstance(found, dict):
        raise Unavailable("the server returned an invalid response: is this the address of a JMAP session?")
    return found


def _items(value: Any) -> Iterator[tuple[Any, Any]]:
    return iter(value.items() if isinstance(value, dict) else ())


def _number(value: Any, default: int) -> int:
    return value if isinstance(value, int) and not isinstance(value, bool) and value > 0 else default
