"""Rotates ENCRYPTION_KEY: seals every sealed value of the database again, so that the old key is no longer needed.

A crash after any step is safe. The key file has both keys from before the first value changes until after the last one has: at
any time every value can be opened, and running the command again resumes it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from uuid import UUID

from sqlalchemy import Connection, Engine

from archiver.access import audit
from archiver.access.login import totp
from archiver.access.principal import LOCAL_OPERATOR
from archiver.config import Settings
from archiver.db.sql import query, run
from archiver.errors import UsageError
from archiver.evidence import signing
from archiver.maintenance.rows import SealedValue
from archiver.maintenance.snapshot import save_config
from archiver.secrets import CREDENTIALS_KEY_FILE, Keyring, SecretFolder, credentials_keyring
from archiver.store.archive import Archive

_PAGE = 100


@dataclass(frozen=True, slots=True)
class Sealed:
    """A column of sealed values, and the purpose that each is bound to. All sealed columns of the database are listed here."""

    table: str
    column: str
    purpose: Callable[[UUID], bytes]


SEALED = (
    Sealed("ingestion_sources", "credentials", lambda source_id: source_id.bytes),
    Sealed("users", "totp_secret", totp.purpose),
    Sealed("alert_channels", "address", lambda channel_id: channel_id.bytes),
    Sealed("signing_keys", "private_key", signing.purpose),
    Sealed("restores", "credentials", lambda restore_id: restore_id.bytes),
)


@dataclass(frozen=True, slots=True)
class Rotated:
    active: str
    resealed: int
    forgotten: tuple[str, ...] = ()


def rotate(
    engine: Engine, archive: Archive, settings: Settings, *, forget: bool = False, step: Callable[[], None] = lambda: None
) -> Rotated:
    """Adds a key to the key file, unless an earlier run was interrupted, and seals everything with it.

    `forget`: removes the old keys from the file once nothing needs them. `step` is called between the steps.
    """
    keyring = credentials_keyring(settings)
    if not _is_unfinished(engine, keyring):
        keyring = _with_new_key(settings, keyring)
    step()
    count = reseal(engine, keyring, step)
    save_config(engine, archive)  # a rebuild restores second factors from this snapshot: they need the new key
    step()
    forgotten = _forget(engine, settings, keyring) if forget else ()
    with engine.begin() as connection:
        detail = {"resealed": count, "forgotten": forgotten}
        audit.record(connection, LOCAL_OPERATOR, "keys.rotated", "key", keyring.active, **detail)
    return Rotated(keyring.active, count, forgotten)


def _forget(engine: Engine, settings: Settings, keyring: Keyring) -> tuple[str, ...]:
    if settings.encryption_key is not None:
        raise UsageError("the keys are set in ENCRYPTION_KEY: remove the old ones there")
    if _is_unfinished(engine, keyring):
        raise UsageError("another process sealed a value with an old key: stop all other processes and run this again")
    SecretFolder(settings.archiver_data).write(CREDENTIALS_KEY_FILE, keyring.only_active().serialise())
    return tuple(key_id for key_id in keyring.keys if key_id != keyring.active)


def _with_new_key(settings: Settings, keyring: Keyring) -> Keyring:
    if settings.encryption_key is not None:
        raise UsageError(
            "the keys are set in ENCRYPTION_KEY, and everything is sealed with the first of them: put a new one, id:base64 of"
            " 32 random bytes, in front of it, restart everything, run this command again, then remove the old key"
        )
    rotated = keyring.with_new_active()
    SecretFolder(settings.archiver_data).write(CREDENTIALS_KEY_FILE, rotated.serialise())
    return rotated


def _is_unfinished(engine: Engine, keyring: Keyring) -> bool:
    """Whether a value is sealed with another key than the active one."""
    with engine.connect() as connection:
        return any(
            Keyring.sealed_with(value) != keyring.active
            for sealed in SEALED
            for value in query(connection, _all(sealed), bytes)
        )


def _all(sealed: Sealed) -> str:
    return f"SELECT {sealed.column} FROM {sealed.table} WHERE {sealed.column} IS NOT NULL"  # noqa: S608


def reseal(engine: Engine, keyring: Keyring, step: Callable[[], None] = lambda: None) -> int:
    """Seals with the active key what is sealed with another one. Returns the number of values."""
    count = 0
    for sealed in SEALED:
        after = UUID(int=0)
        while True:
            with engine.begin() as connection:
                rows = query(connection, _page(sealed), SealedValue, after=after, limit=_PAGE)
                count += sum(_reseal_row(connection, keyring, sealed, row) for row in rows)
            step()
            if not rows:
                break
            after = rows[-1].id
    return count


def _page(sealed: Sealed) -> str:
    return (
        f"SELECT id, {sealed.column} AS value FROM {sealed.table}"  # noqa: S608
        f" WHERE {sealed.column} IS NOT NULL AND id > :after ORDER BY id LIMIT :limit FOR NO KEY UPDATE"
    )


def _reseal_row(connection: Connection, keyring: Keyring, sealed: Sealed, row: SealedValue) -> bool:
    value, purpose = row.value, sealed.purpose(row.id)
    if Keyring.sealed_with(value) == keyring.active:
        return False
    fresh = keyring.seal(keyring.unseal(value, purpose), purpose)
    run(connection, f"UPDATE {sealed.table} SET {sealed.column} = :value WHERE id = :id", value=fresh, id=row.id)  # noqa: S608
    return True
