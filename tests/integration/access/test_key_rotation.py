"""A new ENCRYPTION_KEY: everything is sealed again, and a run that was killed anywhere goes on."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Callable, Iterator

import orjson
import pytest
from sqlalchemy import Engine, text

from archiver.access.login import totp
from archiver.access.principal import LOCAL_OPERATOR
from archiver.config import Settings
from archiver.db.tables import uuid7
from archiver.errors import UsageError, WrongKey
from archiver.maintenance import reseal
from archiver.secrets import Keyring, create_missing_keys, credentials_keyring
from archiver.store.archive import Archive
from archiver.store.open import open_archive

SOURCES = 5


class Killed(BaseException):
    """As if the process had ended here."""


def dying_after(steps: int) -> Callable[[], None]:
    left = itertools.count(steps, -1)

    def step() -> None:
        if next(left) == 0:
            raise Killed

    return step


@pytest.fixture
def archive(settings: Settings, engine: Engine) -> Iterator[Archive]:
    create_missing_keys(settings)
    opened = open_archive(settings, engine)
    yield opened
    opened.close()


def fill(engine: Engine, keyring: Keyring) -> None:
    with engine.begin() as connection:
        for number in range(SOURCES):
            source_id, sealed = uuid7(), orjson.dumps({"password": f"p{number}"})
            connection.execute(
                text("INSERT INTO ingestion_sources (id, kind, name, credentials) VALUES (:i, 'imap', :n, :c)"),
                {"i": source_id, "n": f"s{number}", "c": keyring.seal(sealed, source_id.bytes)},
            )
        user_id = uuid7()
        connection.execute(text("INSERT INTO users (id, email) VALUES (:i, 'eve@x.org')"), {"i": user_id})
        totp.begin(connection, keyring, dataclasses.replace(LOCAL_OPERATOR, user_id=user_id))


def opened(engine: Engine, keyring: Keyring) -> list[bytes]:
    """Raises WrongKey if a value does not open."""
    with engine.connect() as connection:
        sources = connection.execute(text("SELECT id, credentials FROM ingestion_sources ORDER BY name")).all()
        users = connection.execute(text("SELECT id, totp_secret FROM users")).all()
    found = [keyring.unseal(bytes(row.credentials), row.id.bytes) for row in sources]
    return found + [keyring.unseal(bytes(row.totp_secret), totp.purpose(row.id)) for row in users]


def test_everything_is_sealed_again(settings: Settings, engine: Engine, archive: Archive) -> None:
    old = credentials_keyring(settings)
    fill(engine, old)
    before = opened(engine, old)
    done = reseal.rotate(engine, archive, settings, forget=True)
    assert (done.resealed, done.forgotten) == (SOURCES + 1, (old.active,))
    new = credentials_keyring(settings)
    assert list(new.keys) == [done.active] != [old.active]
    assert opened(engine, new) == before
    with pytest.raises(WrongKey):
        opened(engine, old)


def test_a_run_that_is_killed_anywhere_goes_on(
    settings: Settings, engine: Engine, archive: Archive, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reseal, "_PAGE", 2)
    fill(engine, credentials_keyring(settings))
    before = opened(engine, credentials_keyring(settings))
    killed_at = 0
    while True:
        keys = len(credentials_keyring(settings).keys)
        try:
            reseal.rotate(engine, archive, settings, step=dying_after(killed_at))
            break
        except Killed:
            assert opened(engine, credentials_keyring(settings)) == before
            assert len(credentials_keyring(settings).keys) <= keys + 1
        done = reseal.rotate(engine, archive, settings, forget=True)
        assert opened(engine, credentials_keyring(settings).only_active()) == before
        assert list(credentials_keyring(settings).keys) == [done.active]
        killed_at += 1
    assert killed_at > 4


def test_keys_from_the_environment(settings: Settings, engine: Engine, archive: Archive) -> None:
    old = Keyring.generate()
    fill(engine, old)
    given = Settings.model_validate({**settings.model_dump(), "encryption_key": old.serialise()})
    with pytest.raises(UsageError, match="put a new one"):
        reseal.rotate(engine, archive, given)
    new = old.with_new_active()
    both = Settings.model_validate({**settings.model_dump(), "encryption_key": new.serialise()})
    assert reseal.rotate(engine, archive, both).resealed == SOURCES + 1
    assert opened(engine, new.only_active())


def test_every_sealed_column_is_known(engine: Engine) -> None:
    """A new one has to be added to reseal.SEALED, or a rotation would leave it behind."""
    with engine.connect() as connection:
        columns = connection.execute(
            text(
                "SELECT table_name, column_name FROM information_schema.columns WHERE data_type = 'bytea'"
                " AND table_schema = 'public' AND column_name !~ 'sha256|hash|public_key|signature'"
            )
        ).all()
    assert {tuple(row) for row in columns} == {(sealed.table, sealed.column) for sealed in reseal.SEALED}
