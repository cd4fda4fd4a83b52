"""Brings what the spool holds into the archive: packs and Postgres first, then the file is removed.

A file that is delivered twice, after a crash, changes nothing: its messages have the same keys.
"""

from __future__ import annotations

import shutil
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from uuid import UUID

from sqlalchemy import Engine

from archiver.db.counters import Counters
from archiver.db.engine import DATABASE_ERRORS
from archiver.errors import ArchiverError, UsageError
from archiver.journal import statements
from archiver.journal.activity import add_arrivals
from archiver.journal.assignment import OwnDomains
from archiver.journal.received import AssignedMail, ReceivedMail, assign_all
from archiver.journal.spool import JournalSpool
from archiver.logs import get_logger
from archiver.parsing.readers import MailReaders
from archiver.store.errors import Damage
from archiver.store.journal import Origin
from archiver.sync.ingest.store_batch import Ingest, load_origin
from connectors.base import BATCH_BYTES, BATCH_MESSAGES, Batch, RawMessage

_FILES = 1000
_THREADS = 4
_PAUSES = (1.0, 2.0, 5.0, 10.0, 30.0)
_IDLE_SECONDS = 1.0

log = get_logger("journal")


@dataclass(slots=True)
class JournalDelivery:
    spool: JournalSpool
    engine: Engine
    ingest: Ingest
    readers: MailReaders
    own: OwnDomains
    unwraps: bool
    scratch: Path
    counters: Counters
    stopping: threading.Event
    may_work: Callable[[], bool] = lambda: True
    """False while a migration needs all writers to pause."""
    _origins: dict[str, Origin] = field(default_factory=dict)
    _source_id: UUID | None = None

    def run(self) -> None:
        """Until `stopping`. An outage of Postgres or the store costs time: the spool keeps what arrives."""
        failures = 0
        while not self.stopping.is_set():
            self.spool.arrived.clear()
            try:
                delivered = self.deliver() if self.may_work() else 0
                failures = 0
            except (ArchiverError, OSError, *DATABASE_ERRORS) as error:
                pause = _PAUSES[min(failures, len(_PAUSES) - 1)]
                failures += 1
                self._origins.clear()
                self._source_id = None
                log.warning("journal_delivery_waits", seconds=pause, reason=str(error).splitlines()[0][:300])
                self.stopping.wait(pause)
                continue
            if not delivered and not self.stopping.is_set():
                self.spool.arrived.wait(_IDLE_SECONDS)

    def deliver(self) -> int:
        """One round, oldest first; returns the number of messages."""
        files, mails, size = [], list[ReceivedMail](), 0
        shutil.rmtree(self.scratch, ignore_errors=True)
        self.scratch.mkdir(mode=0o700, parents=True)
        for path in self.spool.waiting()[:_FILES]:
            try:
                found = self._read(path)
            except Damage as damage:
                log.error("journal_file_damaged", file=self.spool.set_aside(path).name, reason=str(damage))
                continue
            files.append(path)
            mails += found
            size += sum(mail.size for mail in found)
            if len(mails) >= BATCH_MESSAGES or size >= BATCH_BYTES:
                break
        if mails:
            self._archive(mails)
        for path in files:
            self.spool.remove(path)
        return len(mails)

    def _read(self, path: Path) -> list[ReceivedMail]:
        entries = enumerate(self.spool.read(path))
        return [ReceivedMail.receive(one, pieces, self.scratch / f"{path.stem}-{n}") for n, (one, pieces) in entries]

    def _archive(self, mails: Sequence[ReceivedMail]) -> None:
        started = time.monotonic()
        assigned = assign_all(mails, self.own, self.readers, unwrap=self.unwraps)
        boxes = _by_mailbox(assigned)
        with ThreadPoolExecutor(_THREADS, "journal-delivery") as pool:
            for done in [pool.submit(self._store, address, messages) for address, messages in boxes.items()]:
                done.result()
        self._record([mail.envelope.received_at for mail in mails])
        self.counters.add("archiver_journal_delivered_messages", len(mails))
        self.counters.observe("archiver_journal_delivery_seconds", time.monotonic() - started)

    def _store(self, address: str, messages: Sequence[RawMessage]) -> None:
        try:
            self.ingest.store_batch(self._origin(address), Batch(messages=tuple(messages)))
        except UsageError:  # the mailbox was removed with its source: the next round creates another
            self._origins.clear()
            raise

    def _origin(self, address: str) -> Origin:
        if (known := self._origins.get(address)) is None:
            with self.engine.begin() as connection:
                mailbox_id = statements.ensure_mailbox(connection, self._source(), address)
                known = self._origins[address] = load_origin(connection, mailbox_id)
        return known

    def _source(self) -> UUID:
        if self._source_id is None:
            with self.engine.begin() as connection:
                self._source_id = statements.ensure_source(connection)
        return self._source_id

    def _record(self, arrivals: list[datetime]) -> None:
        with self.engine.begin() as connection:
            row = statements.load_activity(connection)
            minutes = add_arrivals(row.state.get("minutes", {}) if row else {}, arrivals)
            statements.record_activity(connection, self._source(), max(arrivals), minutes)


def _by_mailbox(assigned: Sequence[AssignedMail]) -> dict[str, list[RawMessage]]:
    boxes: dict[str, list[RawMessage]] = {}
    for mail in assigned:
        for assignment in mail.assignments:
            boxes.setdefault(assignment.mailbox, []).append(mail.for_mailbox(assignment))
    return boxes
