"""Opens sources as connectors with their secrets: checks them, lists mailboxes, signs in."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, contextmanager
from functools import partial
from typing import Any
from uuid import UUID

import orjson
from pydantic import BaseModel, SecretStr
from sqlalchemy import Engine, text

from archiver.errors import ArchiverError, UsageError
from archiver.secrets import Keyring
from archiver.sources.destinations import moved_settings, secrets_to_keep
from archiver.sources.kinds import kind_of, validate
from archiver.sources.null_context import QuietContext
from archiver.sources.rows import Source
from connectors.base import Connector, Context, MailboxRef
from connectors.errors import ConnectorError
from connectors.kinds import KINDS
from connectors.sign_in import BrowserSignIn
from connectors.target import MailTarget, SourceTrash


class SourceCheckFailed(ArchiverError):
    """The source rejected its settings or credentials. The message is the source's own."""


def seal_secrets(keyring: Keyring, source_id: UUID, secrets: BaseModel) -> bytes:
    values = {name: value.get_secret_value() for name, value in secrets if isinstance(value, SecretStr)}
    return keyring.seal(orjson.dumps(values), source_id.bytes)


def unseal(keyring: Keyring, source: Source) -> dict[str, str]:
    return dict(orjson.loads(keyring.unseal(source.credentials, source.id.bytes))) if source.credentials else {}


def validate_change(
    keyring: Keyring, source: Source, settings: Mapping[str, Any], given: Mapping[str, str]
) -> tuple[BaseModel, BaseModel]:
    """A source's settings and secrets after a change. Raises SecretsNeeded if stored secrets would go to another server."""
    kind, stored = kind_of(source.kind), unseal(keyring, source)
    merged = {name: value for name, value in {**source.settings, **settings}.items() if value is not None}
    checked, _ = validate(kind, merged, {**stored, **given})
    kept = secrets_to_keep(stored, given, moved_settings(kind, source.settings, checked))
    return validate(kind, merged, {**kept, **given})


def open_source(source: Source, keyring: Keyring, context: Context) -> Connector:
    """The only place where a source's secrets are unsealed for use."""
    kind = kind_of(source.kind)
    settings, secrets = validate(kind, source.settings, unseal(keyring, source))
    return kind.open(settings, secrets, context)


def check(source: Source, keyring: Keyring, context: Context) -> tuple[str, ...]:
    """Tests the credentials. Raises SourceCheckFailed with the source's own message. Returns notes about the server, if there
    are any (connectors.base.Noting)."""
    connector = open_source(source, keyring, context)
    try:
        connector.check()
        return tuple(getattr(connector, "notes", ()))
    except ConnectorError as error:
        raise SourceCheckFailed(f"{source.name}: {error}") from error
    finally:
        connector.close()


def mailboxes(source: Source, keyring: Keyring, context: Context) -> list[str]:
    """The addresses that a sync would archive now; the others are reported to the context."""
    connector = open_source(source, keyring, context)
    try:
        return [box.address for box in connector.mailboxes()]
    except ConnectorError as error:
        raise SourceCheckFailed(f"{source.name}: {error}") from error
    finally:
        connector.close()


@contextmanager
def open_account(settings: Mapping[str, Any], secrets: Mapping[str, Any]) -> Iterator[MailTarget]:
    """An IMAP account that mail is restored to, configured like a source. Raises the errors of connectors.errors."""
    kind = kind_of("imap")
    checked, unsealed = validate(kind, settings, secrets)
    assert kind.target is not None
    with closing(kind.target(checked, unsealed, QuietContext(), MailboxRef(""))) as target:
        yield target


@contextmanager
def open_target(engine: Engine, keyring: Keyring, source: Source, box: MailboxRef) -> Iterator[MailTarget]:
    """A mailbox of a source, to restore mail to. Raises UsageError if it can't receive any."""
    kind = kind_of(source.kind)
    if kind.target is None or source.removed_at is not None:
        reason = "was removed" if source.removed_at is not None else "has no mailboxes on a server"
        raise UsageError(f"mail can't be restored to {box.address}: the source {source.name} {reason}")
    settings, secrets = validate(kind, source.settings, unseal(keyring, source))
    with closing(kind.target(settings, secrets, _saving_context(engine, keyring, source), box)) as target:
        yield target


@contextmanager
def open_trash(engine: Engine, keyring: Keyring, source: Source, box: MailboxRef) -> Iterator[SourceTrash]:
    """A mailbox of a source, whose archived mail is moved to its trash. Raises UsageError if that is not possible."""
    kind = kind_of(source.kind)
    if kind.trash is None:
        raise UsageError(f"mail of the source {source.name} can't be deleted on its server: it has none")
    settings, secrets = validate(kind, source.settings, unseal(keyring, source))
    with closing(kind.trash(settings, secrets, _saving_context(engine, keyring, source), box)) as trash:
        yield trash


@contextmanager
def open_mailbox(engine: Engine, keyring: Keyring, source: Source) -> Iterator[Connector]:
    """Reads messages of a source outside a sync."""
    with closing(open_source(source, keyring, _saving_context(engine, keyring, source))) as connector:
        yield connector


def _saving_context(engine: Engine, keyring: Keyring, source: Source) -> QuietContext:
    context = QuietContext()
    context.save_credentials = partial(save_credentials, engine, keyring, source)  # type: ignore[method-assign]
    return context


def can_receive(kind: str) -> bool:
    """Whether mail can be restored to mailboxes of this kind of source."""
    return kind in KINDS and KINDS[kind].target is not None


@contextmanager
def open_sign_in(kind: str, settings: Mapping[str, Any], secrets: Mapping[str, Any]) -> Iterator[BrowserSignIn]:
    """One attempt to sign in. Raises SourceCheckFailed with the provider's own message."""
    chosen = kind_of(kind)
    if chosen.sign_in is None:
        able = ", ".join(name for name, one in KINDS.items() if one.sign_in)
        raise UsageError(f"sources of kind {kind!r} do not support browser sign-in; these kinds do: {able}")
    checked = validate(chosen, settings, secrets)
    attempt: BrowserSignIn | None = None
    try:
        attempt = chosen.sign_in(*checked)
        yield attempt
    except ConnectorError as error:
        raise SourceCheckFailed(f"sign-in failed: {error}") from error
    finally:
        if attempt is not None:
            attempt.close()


def sign_in(
    kind: str, settings: Mapping[str, Any], secrets: Mapping[str, Any], ask: Callable[[BrowserSignIn], dict[str, str]]
) -> dict[str, str]:
    """The secrets, including those that signing in returns. Raises SourceCheckFailed with the provider's own message."""
    with open_sign_in(kind, settings, secrets) as attempt:
        return {**secrets, **ask(attempt)}


def values_to_sign_in(
    keyring: Keyring, source: Source, settings: Mapping[str, Any], secrets: Mapping[str, Any]
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Settings and secrets of an existing source: stored ones where none are given, but no secrets if it moves to another
    server."""
    merged = {name: value for name, value in {**source.settings, **settings}.items() if value is not None}
    moved = moved_settings(kind_of(source.kind), source.settings, kind_of(source.kind).settings.model_validate(merged))
    return merged, {**({} if moved else unseal(keyring, source)), **secrets}


def sign_in_again(
    keyring: Keyring,
    source: Source,
    settings: Mapping[str, Any],
    secrets: Mapping[str, Any],
    ask: Callable[[BrowserSignIn], dict[str, str]],
) -> dict[str, str]:
    """The same for an existing source."""
    return sign_in(source.kind, *values_to_sign_in(keyring, source, settings, secrets), ask)


def signs_in(kind: str, settings: Mapping[str, Any]) -> bool:
    """Whether the credentials of such a source come from a browser sign-in."""
    return kind in KINDS and KINDS[kind].sign_in is not None and (kind != "imap" or bool(settings.get("oauth_auth_url")))


def save_credentials(engine: Engine, keyring: Keyring, source: Source, credentials: Mapping[str, Any]) -> None:
    """Stores credentials that a connector has refreshed."""
    merged = {**unseal(keyring, source), **credentials}
    sealed = keyring.seal(orjson.dumps(merged), source.id.bytes)
    with engine.begin() as connection:
        connection.execute(
            text("UPDATE ingestion_sources SET credentials = :sealed WHERE id = :id"), {"sealed": sealed, "id": source.id}
        )
