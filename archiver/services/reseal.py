"""A new ENCRYPTION_KEY: every sealed value of the database is sealed again, and the old key is needed no more.

Each step can be the last one before a crash. The key file has both keys from before the first value changes until after the
last one has: whatever is killed when, every value opens with it, and the same command goes on.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from sqlalchemy import Connection, Engine, TextClause, text

from archiver.config import Settings
from archiver.errors import UsageError
from archiver.secrets import CREDENTIALS_KEY_FILE, Keyring, SecretFolder, credentials_keyring
from archiver.services import audit, totp
from archiver.services.principal import LOCAL_OPERATOR
from archiver.services.snapshot import save_config
from archiver.store.archive import Archive

_PAGE = 100


@dataclass(frozen=True, slots=True)
class Sealed:
    """A column of sealed values, and what each is bound to. `Keyring.seal` for the database is called with these only."""

    table: str
    column: str
    purpose: Callable[[UUID], bytes]


SEALED = (
    Sealed("ingestion_sources", "credentials", lambda source_id: source_id.bytes),
    Sealed("users", "totp_secret", totp.purpose),
)


@dataclass(frozen=True, slots=True)
class Rotated:
    active: str
    resealed: int
    forgotten: tuple[str, ...] = ()


def rotate(
    engine: Engine, archive: Archive, settings: Settings, *, forget: bool = False, step: Callable[[], None] = lambda: None
) -> Rotated:
    """Adds a key to the key file, unless an earlier run was stopped before its end, and seals everything with it.

    `forget`: the old keys go from the file once nothing needs them. `step` is called between the steps.
    """
    keyring = credentials_keyring(settings)
    if not _is_unfinished(engine, keyring):
        keyring = _with_new_key(settings, keyring)
    step()
    count = reseal(engine, keyring, step)
    save_config(engine, archive)  # a rebuild brings second factors back: with the new key
    step()
    forgotten = _forget(engine, settings, keyring) if forget else ()
    with engine.begin() as connection:
        detail = {"resealed": count, "forgotten": forgotten}
        audit.record(connection, LOCAL_OPERATOR, "keys.rotated", "key", keyring.active, **detail)
    return Rotated(keyring.active, count, forgotten)


def _forget(engine: Engine, settings: Settings, keyring: Keyring) -> tuple[str, ...]:
    if settings.encryption_key is not None:
        raise UsageError("the keys come from ENCRYPTION_KEY: take the old ones away there")
    if _is_unfinished(engine, keyring):
        raise UsageError("something was sealed with an old key meanwhile: stop all other processes, and run it again")
    SecretFolder(settings.archiver_data).write(CREDENTIALS_KEY_FILE, keyring.only_active().serialise())
    return tuple(key_id for key_id in keyring.keys if key_id != keyring.active)


def _with_new_key(settings: Settings, keyring: Keyring) -> Keyring:
    if settings.encryption_key is not None:
        raise UsageError(
            "the keys come from ENCRYPTION_KEY, and everything is sealed with the first of them: put a new one, id:base64 of 32"
            " random bytes, in front, restart everything, run this again, and take the old one away then"
        )
    rotated = keyring.with_new_active()
    SecretFolder(settings.archiver_data).write(CREDENTIALS_KEY_FILE, rotated.serialise())
    return rotated


def _is_unfinished(engine: Engine, keyring: Keyring) -> bool:
    """Something is sealed with a key that is not the first."""
    with engine.connect() as connection:
        return any(
            Keyring.sealed_with(bytes(value)) != keyring.active
            for sealed in SEALED
            for value in connection.execute(_all(sealed)).scalars()
        )


def _all(sealed: Sealed) -> TextClause:
    return text(f"SELECT {sealed.column} FROM {sealed.table} WHERE {sealed.column} IS NOT NULL")  # noqa: S608


def reseal(engine: Engine, keyring: Keyring, step: Callable[[], None] = lambda: None) -> int:
    """Seals with the active key what is sealed with another one; says how many values that were."""
    count = 0
    for sealed in SEALED:
        after = UUID(int=0)
        while True:
            with engine.begin() as connection:
                rows = connection.execute(_page(sealed), {"after": after, "most": _PAGE}).all()
                count += sum(_again(connection, keyring, sealed, row) for row in rows)
            step()
            if not rows:
                break
            after = rows[-1].id
    return count


def _page(sealed: Sealed) -> TextClause:
    return text(
        f"SELECT id, {sealed.column} AS value FROM {sealed.table}"  # noqa: S608
        f" WHERE {sealed.column} IS NOT NULL AND id > :after ORDER BY id LIMIT :most FOR NO KEY UPDATE"
    )


def _again(connection: Connection, keyring: Keyring, sealed: Sealed, row: Any) -> bool:
    value, purpose = bytes(row.value), sealed.purpose(row.id)
    if Keyring.sealed_with(value) == keyring.active:
        return False
    fresh = keyring.seal(keyring.unseal(value, purpose), purpose)
    statement = text(f"UPDATE {sealed.table} SET {sealed.column} = :value WHERE id = :id")  # noqa: S608
    connection.execute(statement, {"value": fresh, "id": row.id})
    return True
