"""Sign-in at a provider from the pages. The attempt waits in Redis, sealed, for ten minutes, and can be completed once.

It belongs to the session that started it: the redirect of another browser, or of another person, completes nothing.
"""

from __future__ import annotations

import base64
import hashlib
import secrets
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Protocol
from uuid import UUID

import orjson
from sqlalchemy import Engine

from archiver.access.principal import Principal
from archiver.errors import NotFound, UsageError
from archiver.secrets import Keyring
from archiver.sources import access, service
from archiver.sources.destinations import check_hosts
from archiver.sources.kinds import kind_of, validate
from archiver.sources.null_context import QuietContext
from archiver.sources.rows import Source, load

SECONDS = 600
_PURPOSE = b"source sign-in"
_NOWHERE = "http://localhost:1"
"""Nothing listens there: the page fails to load, and its address contains the answer."""
_GONE = "this sign-in was not started in this browser session, has expired, or was already completed: start again"


class Cache(Protocol):
    """The part of Redis that is used here."""

    def set(self, name: str, value: bytes, *, ex: int) -> Any: ...
    def get(self, name: str) -> Any: ...
    def getdel(self, name: str) -> Any: ...


@dataclass(frozen=True, slots=True)
class SourceDraft:
    """The source that is to be added, or to get new credentials."""

    kind: str
    name: str
    settings: Mapping[str, Any]
    secrets: Mapping[str, Any] = field(repr=False)
    source_id: UUID | None = None


@dataclass(frozen=True, slots=True)
class PendingSignIn:
    id: str
    draft: SourceDraft
    session_id: str
    mode: str
    """browser: the provider redirects back; device: a code; paste: the user copies the address of the redirect."""
    url: str
    code: str
    attempt: Mapping[str, Any] = field(repr=False)

    @property
    def interval_seconds(self) -> int:
        return max(2, int(float(self.attempt.get("interval", 5))))


@dataclass(frozen=True, slots=True)
class SignIns:
    """All that are under way."""

    cache: Cache
    keyring: Keyring

    def begin(
        self, principal: Principal, draft: SourceDraft, redirect_uri: str | None, hosts: Sequence[str] = ()
    ) -> PendingSignIn:
        """Without a redirect address that the browser can reach: a code on any device, or copy and paste."""
        if not draft.name.strip():
            raise UsageError("a source needs a name")
        check_hosts(validate(kind_of(draft.kind), draft.settings, draft.secrets)[0], hosts, principal)
        with access.open_sign_in(draft.kind, draft.settings, draft.secrets) as attempt:
            code, mode = "", "browser" if redirect_uri else "paste"
            if redirect_uri is None and getattr(attempt, "has_device_code", False):
                (url, code), mode = attempt.start_on_device(), "device"  # type: ignore[attr-defined]
            else:
                url = attempt.start_in_browser(redirect_uri or _NOWHERE)
            saved = attempt.save()
        key = str(saved["state"]) if mode == "browser" else secrets.token_urlsafe(32)
        pending = PendingSignIn(key, draft, str(principal.session_id), mode, url, code, saved)
        self._put(pending)
        return pending

    def find(self, principal: Principal, key: str) -> PendingSignIn:
        return self._open(principal, self.cache.get(_name(key)))

    def complete(self, principal: Principal, key: str, query: Mapping[str, str]) -> tuple[SourceDraft, dict[str, str]]:
        """With the query of the redirect. An attempt is used up by it, whatever comes of it."""
        pending = self._open(principal, self.cache.getdel(_name(key)))
        with access.open_sign_in(pending.draft.kind, pending.draft.settings, pending.draft.secrets) as attempt:
            attempt.restore(pending.attempt)
            return pending.draft, attempt.complete_in_browser(query)

    def poll(self, principal: Principal, key: str) -> tuple[SourceDraft, dict[str, str]] | None:
        """None while the code has not been entered on the other device."""
        pending = self.find(principal, key)
        with access.open_sign_in(pending.draft.kind, pending.draft.settings, pending.draft.secrets) as attempt:
            attempt.restore(pending.attempt)
            found = attempt.poll_on_device()  # type: ignore[attr-defined]
        if found is None:
            return None
        if self.cache.getdel(_name(key)) is None:
            raise NotFound(_GONE)
        return pending.draft, found

    def _put(self, pending: PendingSignIn) -> None:
        sealed = self.keyring.seal(orjson.dumps(asdict(pending)), _PURPOSE)
        self.cache.set(_name(pending.id), base64.b64encode(sealed), ex=SECONDS)

    def _open(self, principal: Principal, sealed: bytes | str | None) -> PendingSignIn:
        if sealed is None:
            raise NotFound(_GONE)
        found = orjson.loads(self.keyring.unseal(base64.b64decode(sealed), _PURPOSE))
        draft = found.pop("draft")
        source_id = UUID(draft["source_id"]) if draft["source_id"] else None
        pending = PendingSignIn(draft=SourceDraft(**{**draft, "source_id": source_id}), **found)
        if principal.session_id is None or pending.session_id != str(principal.session_id):
            raise NotFound(_GONE)
        return pending


def save_source(
    engine: Engine,
    keyring: Keyring,
    principal: Principal,
    draft: SourceDraft,
    tokens: Mapping[str, str],
    hosts: Sequence[str] = (),
) -> Source:
    """Adds the source, or gives it new credentials, after testing them; then its mail is fetched."""
    given = {**draft.secrets, **tokens}
    if draft.source_id is None:
        source = service.add(
            engine, keyring, QuietContext(), draft.kind, draft.name, draft.settings, given, principal, hosts=hosts
        )
    else:
        with engine.connect() as connection:
            known = load(connection, draft.source_id)
        if known is None or known.removed_at is not None:
            raise NotFound(f"source {draft.source_id} not found")
        source = service.edit(engine, keyring, QuietContext(), known, draft.settings, given, principal, hosts=hosts)
    with engine.begin() as connection:
        service.sync_now(connection, source, principal)
    return source


def _name(key: str) -> str:
    return f"archiver:source-sign-in:{hashlib.sha256(key.encode('utf-8', 'replace')).hexdigest()}"
