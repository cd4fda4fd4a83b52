"""A process that works on an archive until it is done, or killed: `python -m … write URL PACKS MAILBOX N`."""

from __future__ import annotations

import hashlib
import resource
import sys
from pathlib import Path
from uuid import UUID

from sqlalchemy import Engine

from archiver.db.engine import make_engine
from archiver.maintenance.recovery.rebuild import rebuild
from archiver.secrets import Keyring
from archiver.store.archive import Archive
from archiver.store.dictionaries import Trainer
from archiver.store.keys import PackKeys
from archiver.store.local import LocalPacks
from archiver.store.open import DatabasePlaces
from archiver.sync.ingest.store_batch import Ingest, load_origin
from connectors.base import Batch, RawMessage
from tests.support.store_world import mail

KEYRING = Keyring({"test": b"k" * 32})
BATCH = 10


def message(number: int) -> bytes:
    return mail(number, attachment=bytes([number % 5]) * 20_000 if number % 4 == 0 else None)


def open_world(engine: Engine, folder: Path, limit_bytes: int = 300_000) -> tuple[Ingest, Archive]:
    keys, trainer, places = PackKeys(KEYRING), Trainer(), DatabasePlaces(engine)
    archive = Archive(LocalPacks(folder, keys, trainer, places.known_end, limit_bytes=limit_bytes), keys, trainer, places)
    return Ingest(engine, archive), archive


def write(url: str, folder: Path, mailbox_id: UUID, total: int) -> None:
    """Goes on where the sync state says, as a sync would."""
    engine = make_engine(url, "writer")
    ingest, _ = open_world(engine, folder)
    with engine.connect() as connection:
        origin = load_origin(connection, mailbox_id)
        row = connection.exec_driver_sql("SELECT sync_state FROM mailboxes WHERE id = %s", (mailbox_id,)).one()
    start = row.sync_state.get("next", 0)
    while start < total:
        items = tuple(RawMessage(f"k{number}", message(number)) for number in range(start, min(total, start + BATCH)))
        start += BATCH
        ingest.store_batch(origin, Batch(items, state={"next": start}))
        sys.stdout.write(f"{start}\n")
        sys.stdout.flush()


def store_large(url: str, folder: Path, mailbox_id: UUID, path: Path) -> None:
    """One spooled message in and out again; prints the most memory that it took, in KiB."""
    engine = make_engine(url, "writer")
    ingest, archive = open_world(engine, folder)
    with engine.connect() as connection:
        origin = load_origin(connection, mailbox_id)
    result = ingest.store_batch(origin, Batch((RawMessage("large", path=path),)))
    assert result.archived == 1, result
    with engine.connect() as connection:
        sha256 = bytes(connection.exec_driver_sql("SELECT sha256 FROM messages").scalar_one())
    digest = hashlib.sha256()
    for piece in archive.stream(sha256):
        digest.update(piece)
    assert digest.digest() == sha256
    sys.stdout.write(f"{peak_kib()}\n")


def rebuild_all(url: str, folder: Path, processes: int) -> None:
    engine = make_engine(url, "writer")
    _, archive = open_world(engine, folder)
    result = rebuild(engine, archive, processes=processes)
    sys.stdout.write(f"{result.messages}\n")


def peak_kib() -> int:
    """Of this program alone: ru_maxrss begins with what the process that started it had."""
    try:
        lines = Path("/proc/self/status").read_text().splitlines()
        return next(int(line.split()[1]) for line in lines if line.startswith("VmHWM:"))
    except FileNotFoundError:
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss


if __name__ == "__main__":
    what, url, folder, mailbox, argument = sys.argv[1:]
    if what == "write":
        write(url, Path(folder), UUID(mailbox), int(argument))
    elif what == "rebuild":
        rebuild_all(url, Path(folder), int(argument))
    else:
        store_large(url, Path(folder), UUID(mailbox), Path(argument))
