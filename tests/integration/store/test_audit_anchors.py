"""Anchors of the audit log: a log that was cut or written anew is found, whatever its chain says."""

from __future__ import annotations

import dataclasses
import hashlib
import socket
import threading
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path

import pytest
from sqlalchemy import Engine, text

from archiver.access import audit
from archiver.access.principal import LOCAL_OPERATOR
from archiver.evidence.anchors import FILE, Anchors
from archiver.evidence.proof import prove
from archiver.maintenance.checks.verify import verify
from archiver.maintenance.compact import compact
from archiver.maintenance.recovery.rebuild import rebuild
from archiver.secrets import Keyring
from connectors.base import Batch, RawMessage
from tests.integration.store.conftest import World
from tests.support.store_world import mail
from tests.support.waiting import DEADLINE_SECONDS
from workers.anchoring import Anchoring

WHO = dataclasses.replace(LOCAL_OPERATOR, name="alice@example.org")


def write(engine: Engine, count: int) -> None:
    for number in range(count):
        with engine.begin() as connection:
            audit.record(connection, WHO, "message.read", "message", number)


def rewrite(engine: Engine, statement: str) -> None:
    """As the owner of the database would who knows how the chain is made: every hash fits afterwards."""
    with engine.begin() as connection:
        connection.execute(text("ALTER TABLE audit_log DISABLE TRIGGER ALL"))
        connection.execute(text(statement))
        rows = connection.execute(text(str(audit._CHAIN)), {"after": 0, "page": 10_000}).all()
        last = b""
        for row in rows:
            digest = hashlib.sha256(last + row.hashed.encode()).digest()
            values = {"previous": last, "hash": digest, "id": row.id}
            connection.execute(text("UPDATE audit_log SET previous_hash = :previous, hash = :hash WHERE id = :id"), values)
            last = digest
        connection.execute(text("ALTER TABLE audit_log ENABLE TRIGGER ALL"))
    assert audit.verify(engine).broken == (), "the chain itself knows nothing"


@pytest.fixture
def anchors(world: World, tmp_path: Path) -> Anchors:
    world.open()
    return Anchors(world.engine, world.archive, tmp_path)


@pytest.mark.parametrize(
    "statement",
    ["DELETE FROM audit_log WHERE id > 7", "UPDATE audit_log SET actor = 'bob' WHERE id = 3", "DELETE FROM audit_log"],
)
def test_what_the_owner_of_the_database_does_to_the_log_is_found(anchors: Anchors, statement: str) -> None:
    write(anchors.engine, 10)
    assert anchors.write() is not None
    assert anchors.write() is None, "nothing new to anchor"
    assert prove(anchors).broken == ()
    assert prove(anchors).anchored_entries == 10
    assert anchors.check() is None
    rewrite(anchors.engine, statement)
    assert "does not match" in prove(anchors).broken[0]
    newest = anchors.check()
    assert newest is not None
    assert newest.entry == 10
    with anchors.engine.connect() as connection:
        noted = audit.list_entries(connection, limit=1)[0]
    assert (noted.action, noted.detail["anchored"]) == ("audit.gap_found", newest.head)
    write(anchors.engine, 20)
    assert anchors.write() is not None
    assert "does not match" in prove(anchors).broken[0], "it can't be grown over"


def test_it_is_found_without_the_file_as_well(anchors: Anchors) -> None:
    write(anchors.engine, 3)
    anchors.write()
    write(anchors.engine, 3)
    anchors.write()
    (anchors.data / FILE).unlink()
    rewrite(anchors.engine, "DELETE FROM audit_log WHERE id > 5")
    newest = anchors.check()
    assert newest is not None
    assert newest.entry == 6


def test_a_file_that_somebody_else_wrote_counts_for_nothing(anchors: Anchors) -> None:
    write(anchors.engine, 3)
    anchor = anchors.write()
    assert anchor is not None
    rewrite(anchors.engine, "DELETE FROM audit_log WHERE id > 2")
    with anchors.engine.connect() as connection:
        head = connection.execute(text("SELECT id, hash FROM audit_log ORDER BY id DESC LIMIT 1")).one()
    forged = dataclasses.replace(anchor, entry=head.id, hash=bytes(head.hash))
    (anchors.data / FILE).write_bytes(forged.encode())
    assert anchors.check() is not None


def test_anchors_survive_compaction_new_keys_and_a_rebuild(
    world: World, new_world: Callable[..., World], tmp_path: Path
) -> None:
    ingest = world.open()
    ingest.store_batch(world.origin(), Batch((RawMessage("k1", mail(1), folder="INBOX"),)))
    anchors = Anchors(world.engine, world.archive, tmp_path)
    write(world.engine, 5)
    anchors.write()
    world.archive.close()
    world.keyring = Keyring({**Keyring.generate().keys, **world.keyring.keys})
    world.open()
    for _ in range(2):
        compact(world.engine, world.archive, tmp_path / "scratch", rekey=True, keep_retired=timedelta(0), rest_seconds=0)
    world.archive.close()
    world.keyring = Keyring({world.keyring.active: world.keyring.keys[world.keyring.active]})
    world.open()
    proof = prove(Anchors(world.engine, world.archive, tmp_path))
    assert (proof.anchors, proof.anchored_entries, proof.broken) == (1, 5, ())
    assert verify(world.engine, world.archive, full=True).problems == []
    world.archive.close()

    rebuilt = new_world(empty=True, folder=world.folder)
    rebuilt.keyring = world.keyring
    rebuilt.open()
    done = rebuild(rebuilt.engine, rebuilt.archive)
    assert (done.messages, done.damage) == (1, [])
    anchors = Anchors(rebuilt.engine, rebuilt.archive, tmp_path)
    assert "does not match" in prove(anchors).broken[0], "the log is not in the packs"
    anchors.accept(LOCAL_OPERATOR, "the database was rebuilt")
    proof = prove(anchors)
    assert proof.broken == ()
    assert proof.accepted[0].endswith("accepted: the database was rebuilt")
    assert anchors.check() is None
    write(rebuilt.engine, 3)
    anchors.write()
    rewrite(rebuilt.engine, "DELETE FROM audit_log WHERE id > 2")
    assert "does not match" in prove(anchors).broken[0], "what was accepted is the past, not the future"


def test_the_head_goes_to_syslog(anchors: Anchors, tmp_path: Path) -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as server:
        server.bind(("127.0.0.1", 0))
        server.settimeout(10)
        told = dataclasses.replace(anchors, syslog_url=f"udp://127.0.0.1:{server.getsockname()[1]}")
        write(anchors.engine, 2)
        anchor = told.write()
        assert anchor is not None
        line = server.recv(4096).decode()
    assert line.startswith("<85>1 ")
    assert f"audit head {anchor.head} key {anchor.key} mac {anchor.mac.hex()}" in line
    with socket.create_server(("127.0.0.1", 0)) as listener:
        told = dataclasses.replace(anchors, syslog_url=f"tcp://127.0.0.1:{listener.getsockname()[1]}")
        write(anchors.engine, 1)
        assert told.write() is not None
        connection, _ = listener.accept()
        with connection:
            length, _, rest = connection.recv(4096).partition(b" ")
            assert int(length) == len(rest)
    write(anchors.engine, 1)
    assert dataclasses.replace(anchors, syslog_url=f"unix://{tmp_path}/none").write() is not None, "one that is away"


def test_a_worker_anchors_when_it_starts_and_when_it_stops(anchors: Anchors) -> None:
    write(anchors.engine, 2)
    stopping = threading.Event()
    thread = Anchoring(anchors, stopping).start()
    stopping.set()
    thread.join(DEADLINE_SECONDS)
    assert not thread.is_alive()
    assert prove(anchors).anchored_entries == 2
    write(anchors.engine, 1)
    thread = Anchoring(anchors, stopping).start()
    thread.join(DEADLINE_SECONDS)
    assert prove(anchors).anchored_entries == 3
