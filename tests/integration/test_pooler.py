"""Behind a pooler that shares connections between transactions: locks hold, nothing is left behind, and it is noticed."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from sqlalchemy import Engine, text

import archiver
from archiver.db import schema
from archiver.db.engine import held_lock, make_engine, shares_connections
from tests.support.transaction_pooler import transaction_pooler

_ROOT = Path(archiver.__file__).parents[1]
_LOCKS = "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND database = (SELECT oid FROM pg_database"
LOCKS = text(f"{_LOCKS} WHERE datname = current_database())")


@pytest.fixture
def pooled(database_url: str) -> Iterator[Engine]:
    with transaction_pooler(database_url) as pooler:
        engine = make_engine(pooler.url, "test")
        yield engine
        engine.dispose()


def _locks(engine: Engine) -> int:
    with engine.connect() as connection:
        return int(connection.execute(LOCKS).scalar_one())


def test_a_pooler_is_noticed_and_a_server_is_none(pooled: Engine, engine: Engine) -> None:
    assert shares_connections(pooled)
    assert not shares_connections(engine)


def test_a_lock_is_held_by_one_and_let_go_behind_a_pooler(pooled: Engine, engine: Engine) -> None:
    with held_lock(pooled, "job") as first, held_lock(pooled, "job") as second, held_lock(engine, "job") as direct:
        assert (first, second, direct) == (True, False, False)
        with held_lock(pooled, "another") as other:
            assert other
    assert _locks(engine) == 0
    with held_lock(engine, "job") as again:
        assert again


def test_a_lock_ends_with_an_error_inside(pooled: Engine, engine: Engine) -> None:
    with pytest.raises(ZeroDivisionError), held_lock(pooled, "job"):
        _ = 1 / 0
    assert _locks(engine) == 0


def test_a_database_is_migrated_behind_a_pooler(empty_database_url: str) -> None:
    with transaction_pooler(empty_database_url) as pooler:
        engine = make_engine(pooler.url, "test")
        assert schema.migrate(engine)
        with engine.connect() as connection:
            assert connection.execute(text("SHOW lock_timeout")).scalar_one() == "0", "nothing is left for the next one"
        assert _locks(engine) == 0
        engine.dispose()


def test_nothing_is_prepared_behind_a_pooler(pooled: Engine, engine: Engine) -> None:
    for number in range(20):
        with pooled.connect() as connection:
            assert connection.execute(text("SELECT CAST(:n AS int)"), {"n": number}).scalar_one() == number
            assert connection.execute(text("SELECT count(*) FROM pg_prepared_statements")).scalar_one() == 0


def test_no_lock_belongs_to_a_session() -> None:
    """A session's lock is left with whoever gets its connection next."""
    for folder in ("archiver", "workers", "migrations"):
        for path in (_ROOT / folder).rglob("*.py"):
            found = path.read_text().replace("pg_advisory_xact_lock", "").replace("pg_try_advisory_xact_lock", "")
            assert "pg_advisory_" not in found, path
            assert "pg_try_advisory_" not in found, path
