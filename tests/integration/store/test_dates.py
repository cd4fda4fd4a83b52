"""Dates from elsewhere: none of them stops the index, an export or a page."""

from __future__ import annotations

import importlib
import json
import zipfile
from collections.abc import Callable
from datetime import UTC, datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pytest
from alembic.migration import MigrationContext
from alembic.operations import Operations
from sqlalchemy import Engine, Table, create_engine, text

from archiver.access.scope import EVERYTHING
from archiver.db.engine import driver_url
from archiver.db.tables.messages import MessageTable
from archiver.indexing.indexer import Indexer
from archiver.maintenance.recovery.rebuild import rebuild
from archiver.reading import messages
from archiver.reading.lookup import message_summary
from connectors.base import Batch, RawMessage
from tests.integration.store.conftest import MAILBOX, World
from tests.support.export_runs import export_file

EAST, WEST = timezone(timedelta(hours=14)), timezone(timedelta(hours=-14))
BEFORE_CHRIST, YEAR_10000 = datetime(1, 1, 1, tzinfo=EAST), datetime(9999, 12, 31, 23, tzinfo=WEST)
POISON = ["0005-01-01 00:00:00+00 BC", "20000-01-01 00:00:00+00", "infinity", "-infinity"]


def put(world: World, *messages: RawMessage) -> None:
    world.open().store_batch(world.origin(MAILBOX), Batch(messages))


def mail(subject: str, date: str = "Mon, 1 Jun 2026 12:00:00 +0000") -> bytes:
    return f"From: a@example.org\nSubject: {subject}\nDate: {date}\n\n{subject}\n".encode()


def rows(engine: Engine) -> dict[str, Any]:
    with engine.connect() as connection:
        return {row.subject: row for row in connection.execute(text("SELECT * FROM messages"))}


def loosen(engine: Engine) -> None:
    """As it was before there were constraints."""
    with engine.begin() as connection:
        for column in ("sent_at", "received_at", "sort_at"):
            connection.execute(text(f"ALTER TABLE messages DROP CONSTRAINT ck_messages_{column}_range"))
        connection.execute(text("ALTER TABLE message_copies DROP CONSTRAINT ck_message_copies_received_at_range"))


def poison(engine: Engine, subject: str, date: str) -> None:
    with engine.begin() as connection:
        connection.execute(text(f"UPDATE messages SET sort_at = '{date}' WHERE subject = :subject"), {"subject": subject})


def test_dates_out_of_range_are_absent_and_named(world: World) -> None:
    put(
        world,
        RawMessage("1", mail("far east", "Mon, 1 Jan 0001 00:00:00 +1400"), received_at=BEFORE_CHRIST),
        RawMessage("2", mail("far future", "Fri, 31 Dec 9999 23:00:00 -1400"), received_at=YEAR_10000),
        RawMessage("3", mail("moon", "Sun, 20 Jul 1969 20:17:40 +0000"), received_at=datetime(2026, 6, 1, 14, tzinfo=EAST)),
        RawMessage("4", mail("usual"), received_at=datetime(2200, 12, 31, 23, tzinfo=UTC)),
    )
    found = rows(world.engine)
    assert found["far east"].sort_at == datetime(1970, 1, 1, tzinfo=UTC)
    assert found["far east"].defects == [
        "unreadable_date: Mon, 1 Jan 0001 00:00:00 +1400",
        "server_date_out_of_range: 0001-01-01T00:00:00+14:00",
    ]
    assert (found["far future"].sent_at, found["far future"].received_at) == (None, None)
    assert found["moon"].received_at == datetime(2026, 6, 1, tzinfo=UTC)
    assert found["moon"].defects == ["date_out_of_range: Sun, 20 Jul 1969 20:17:40 +0000"]
    assert (found["usual"].defects, found["usual"].received_at.year) == ([], 2200)


def test_a_rebuild_reads_journals_with_any_date(world: World, new_world: Callable[..., World]) -> None:
    put(world, RawMessage("1", mail("far east"), received_at=BEFORE_CHRIST), RawMessage("2", mail("b"), received_at=YEAR_10000))
    before = world.content()
    world.archive.close()
    rebuilt = new_world(empty=True, folder=world.folder)
    rebuilt.open()
    rebuild(rebuilt.engine, rebuilt.archive)
    after = rebuilt.content()
    assert all(after[name] == before[name] for name in ("messages", "copies"))


def test_the_migration_mends_what_is_there(world: World) -> None:
    put(world, *(RawMessage(f"{n}", mail(f"m{n}"), received_at=datetime(2026, 6, 2, tzinfo=UTC)) for n in range(5)))
    loosen(world.engine)
    for number, date in enumerate(POISON):
        poison(world.engine, f"m{number}", date)
    with world.engine.begin() as connection:
        connection.execute(text("UPDATE messages SET sent_at = sort_at, received_at = sort_at WHERE subject IN ('m0', 'm1')"))
        connection.execute(text("UPDATE message_copies SET received_at = 'infinity' WHERE provider_key = '1'"))
        versions = {row[0]: row[1] for row in connection.execute(text("SELECT subject, index_version FROM messages"))}
        with Operations.context(MigrationContext.configure(connection)):
            importlib.import_module("migrations.versions.m0011_dates").upgrade()
    found = rows(world.engine)
    assert found["m0"].sort_at == datetime(1970, 1, 1, tzinfo=UTC)
    assert (found["m0"].sent_at, found["m0"].received_at, found["m0"].date_origin) == (None, None, "none")
    assert [defect.partition(":")[0] for defect in found["m0"].defects] == ["date_out_of_range", "server_date_out_of_range"]
    assert found["m2"].sort_at == datetime(2026, 6, 2, tzinfo=UTC)
    assert found["m4"].sort_at == datetime(2026, 6, 1, 12, tzinfo=UTC)
    raised = {subject for subject, row in found.items() if row.index_version > versions[subject]}
    assert raised == {"m0", "m1", "m2", "m3"}
    with world.engine.connect() as connection:
        assert connection.execute(text("SELECT count(*) FROM message_copies WHERE received_at IS NULL")).scalar_one() == 1
        valid = text("SELECT bool_and(convalidated) FROM pg_constraint WHERE conname LIKE 'ck_message%_range'")
        assert connection.execute(valid).scalar_one()


@pytest.mark.parametrize("date", POISON)
def test_lists_and_single_messages_are_shown_whatever_the_dates(world: World, date: str) -> None:
    put(world, *(RawMessage(f"{n}", mail(f"m{n}")) for n in range(3)))
    loosen(world.engine)
    poison(world.engine, "m1", date)
    with world.engine.connect() as connection:
        found = messages.listed(connection, EVERYTHING)
        assert {row.subject for row in found} == {"m0", "m1", "m2"}
        for row in found:
            assert messages.detail(connection, EVERYTHING, row.id).message.date.year in (1970, 2026, 2200)
            assert message_summary(world.engine, row.id)["subject"] == row.subject


@pytest.mark.parametrize("date", POISON)
@pytest.mark.parametrize("kind", ["zip", "mbox"])
def test_exports_hold_everything_whatever_the_dates(world: World, tmp_path: Path, date: str, kind: str) -> None:
    put(world, *(RawMessage(f"{n}", mail(f"m{n}")) for n in range(3)))
    loosen(world.engine)
    poison(world.engine, "m1", date)
    done = export_file(world.engine, world.archive, tmp_path / f"out.{kind}", kind)
    assert (done.messages, done.failed) == (3, [])


@pytest.mark.parametrize("kind", ["zip", "mbox"])
def test_an_export_names_what_it_could_not_write(world: World, tmp_path: Path, database_url: str, kind: str) -> None:
    """Through a connection that knows nothing of our dates, as a row that can't be read for any reason."""
    put(world, *(RawMessage(f"{n}", mail(f"m{n}")) for n in range(5)))
    loosen(world.engine)
    poison(world.engine, "m3", "infinity")
    plain = create_engine(driver_url(database_url))
    done = export_file(plain, world.archive, tmp_path / f"out.{kind}", kind)
    plain.dispose()
    bad = next(str(row.id) for subject, row in rows(world.engine).items() if subject == "m3")
    assert done.messages == 4
    assert [(one["id"], "can't be read" in one["error"]) for one in done.failed] == [(bad, True)]
    if kind == "zip":
        with zipfile.ZipFile(tmp_path / "out.zip") as archive:
            manifest = archive.read("manifest.jsonl").decode()
            assert len(archive.namelist()) == 4 + 3
    else:
        manifest = (tmp_path / "out.mbox.manifest.jsonl").read_text()
    assert [line["id"] for line in map(json.loads, manifest.splitlines()) if "error" in line] == [bad]


@pytest.mark.parametrize(("year", "shown"), [(1970, 1980), (1979, 1980), (2107, 2107), (2108, 2107), (2200, 2107)])
def test_zip_knows_fewer_years(world: World, tmp_path: Path, year: int, shown: int) -> None:
    put(world, RawMessage("1", mail("a", f"1 Jun {year} 12:00:00 +0000")))
    assert export_file(world.engine, world.archive, tmp_path / "out.zip", "zip").messages == 1
    with zipfile.ZipFile(tmp_path / "out.zip") as archive:
        name = next(name for name in archive.namelist() if name.endswith(".eml"))
        assert archive.getinfo(name).date_time[0] == shown
        assert name.startswith(f"{year}/06/")


def test_a_row_that_cannot_be_read_is_failed_and_the_others_are_leased(world: World, database_url: str) -> None:
    put(world, *(RawMessage(f"{n}", mail(f"m{n}")) for n in range(6)))
    loosen(world.engine)
    for subject in ("m0", "m1", "m4"):
        poison(world.engine, subject, "infinity")
    plain = create_engine(driver_url(database_url))
    indexer = Indexer(plain, world.archive, None, 2)  # type: ignore[arg-type]
    leased = []
    while (lease := indexer.lease()) is not None:
        leased += [row.subject or "" for row in lease.rows]
    plain.dispose()
    assert sorted(leased) == ["m2", "m3", "m5"]
    found = rows(world.engine)
    assert {subject for subject, row in found.items() if row.search_state == "failed"} == {"m0", "m1", "m4"}
    with world.engine.connect() as connection:
        reasons = connection.execute(text("SELECT reason FROM dead_letters WHERE kind = 'document'")).scalars().all()
    assert len(reasons) == 3
    assert all("can't be read" in reason for reason in reasons)


def test_constraints_refuse_what_python_cannot_read(world: World) -> None:
    put(world, RawMessage("1", mail("a")))
    table = MessageTable.__table__
    assert isinstance(table, Table)
    names = {constraint.name for constraint in table.constraints}
    assert {f"ck_messages_{column}_range" for column in ("sent_at", "received_at", "sort_at")} <= names
    for date in (*POISON, "1969-12-31 23:59:59+00", "2201-01-01 00:00:00+00"):
        with pytest.raises(Exception, match="ck_messages_sort_at_range"):
            poison(world.engine, "a", date)
