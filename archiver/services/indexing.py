"""Brings documents up to date: leases messages that are behind, makes their documents, sends them, and notes what was sent.

Several processes share the work by leases. Leasing ahead, parsing, sending and waiting overlap. Whatever dies in between leaves
a lease that ends, and the same work is done again: a document that comes twice is the same document.
"""

from __future__ import annotations

import math
import time
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from functools import partial
from threading import BoundedSemaphore
from uuid import UUID

from sqlalchemy import Connection, Engine

from archiver.logs import get_logger
from archiver.mail.message import PARSER_VERSION
from archiver.models.ids import uuid7
from archiver.models.states import SearchState
from archiver.search.index import REQUEST_BYTES, Refused, SearchServer
from archiver.services import batch_sql, indexing_sql
from archiver.services.documents import DocumentMaker, Extract, Ready, Row, Unreadable
from archiver.services.mail_readers import MailReaders
from archiver.services.poison_rows import PoisonRow, read_rows
from archiver.services.search_indexes import Indexes, ensure_live, load_indexes
from archiver.services.threads import hold_threads, join_threads, own_key
from archiver.store.archive import Archive

_BATCH_BYTES = 24 << 20
_REQUESTS_UNDER_WAY = 4
_BATCHES_UNDER_WAY = 2
_RENEW_SECONDS = indexing_sql.LEASE_SECONDS / 3

BODY, ATTACHMENTS = "body", "attachments"

log = get_logger("indexing")


@dataclass(slots=True)
class Lease:
    """Messages that are ours as long as `index_leases` has it, with the indexes that their documents go to."""

    id: UUID
    rows: Sequence[Row]
    indexes: Indexes
    threads: Mapping[UUID, UUID | None]
    stage: str = BODY
    renewed: float = field(default_factory=time.monotonic)

    @property
    def ids(self) -> list[UUID]:
        return sorted(row.id for row in self.rows)


@dataclass(slots=True)
class Counts:
    indexed: int = 0
    failed: int = 0
    waiting: int = 0
    """Of the indexed: those whose attachments are still to be read."""

    def add(self, other: Counts) -> None:
        self.indexed += other.indexed
        self.failed += other.failed
        self.waiting += other.waiting


class _UnderWay:
    """The batches of one run: the one leased ahead, the one in hand, and those that are waited for."""

    def __init__(self, ahead: Future[Lease | None]) -> None:
        self.ahead = ahead
        self.lease: Lease | None = None
        self.finishing: deque[tuple[Lease, Future[Counts]]] = deque()
        self.counts = Counts()

    def settle(self, most: int) -> None:
        """Until no more than so many are waited for."""
        while len(self.finishing) > most:
            self.counts.add(self.finishing[0][1].result())
            self.finishing.popleft()

    def leases(self) -> list[Lease]:
        """What is still held after an error."""
        held = [self.lease, *(lease for lease, _ in self.finishing)]
        try:
            held.append(self.ahead.result())
        except Exception:  # noqa: BLE001  (then it has leased nothing)
            log.debug("nothing_leased_ahead")
        return [lease for lease in held if lease is not None]


class Indexer:
    """One for a process and a kind of work; `run` by one thread at a time."""

    def __init__(
        self,
        engine: Engine,
        archive: Archive,
        server: SearchServer,
        batch: int,
        *,
        patience: float = 0.0,
        readers: MailReaders | None = None,
    ) -> None:
        """`patience`: seconds that mail which keeps coming has to gather while less than half a batch was there."""
        self._engine = engine
        self._server = server
        self._batch = batch
        self._patience = patience
        self._maker = DocumentMaker(engine, archive, readers)
        self._room = BoundedSemaphore(_REQUESTS_UNDER_WAY)
        self.mail = self._maker.mail

    def run(self, should_stop: Callable[[], bool] = lambda: False) -> Counts:
        """Until nothing is left to be leased, or `should_stop`. SearchUnavailable: try again later; nothing is lost."""
        ensure_live(self._engine, self._server)
        with ThreadPoolExecutor(4, "indexing") as threads:
            under_way = _UnderWay(threads.submit(self.lease))
            try:
                while True:
                    lease = under_way.lease = under_way.ahead.result()
                    is_last = lease is None or should_stop()
                    if lease is not None and not is_last:
                        under_way.ahead = threads.submit(self._lease_next, len(lease.rows))
                    if lease is not None:
                        made = self._make(lease, threads)
                        under_way.finishing.append((lease, threads.submit(self._finish, lease, *made)))
                    under_way.settle(0 if is_last else _BATCHES_UNDER_WAY)
                    if is_last:
                        return under_way.counts
            except BaseException:
                self._give_back(under_way.leases())
                raise

    def lease(self) -> Lease | None:
        """The next messages in the order of the packs, with the thread of each."""
        return self._lease(indexing_sql.BEHIND, {"limit": self._batch}, BODY)

    def _lease_next(self, last: int) -> Lease | None:
        """Many small commits cost the search server more than a few large ones. The batch in hand goes on meanwhile."""
        if last < self._batch // 2:
            time.sleep(self._patience)
        return self.lease()

    def lease_unread(self, most: int, smallest: int, largest: int) -> Lease | None:
        """Messages of this size whose attachments are to be read. Their documents get a new version."""
        sizes = {"smallest": smallest, "largest": largest}
        return self._lease(indexing_sql.UNREAD, {"limit": most, **sizes}, ATTACHMENTS)

    def index(self, lease: Lease, extract: Extract) -> Counts:
        """One lease from beginning to end."""
        with ThreadPoolExecutor(1, "send") as sending:
            try:
                return self._finish(lease, *self._make(lease, sending, extract))
            except BaseException:
                self._give_back([lease])
                raise

    def fill(self, batches: Iterable[Sequence[Row]], indexes: Indexes, done: Callable[[Sequence[Row]], None]) -> None:
        """Documents of messages that are not leased, into these indexes; `done` is told of each batch that has arrived."""
        under_way: deque[tuple[Sequence[Row], list[Future[list[Unreadable]]]]] = deque()

        def settle(most: int) -> None:
            while len(under_way) > most:
                rows, requests = under_way[0]
                for request in requests:
                    request.result()
                done(rows)
                under_way.popleft()

        with ThreadPoolExecutor(2, "fill") as threads:
            for rows in batches:
                lease = Lease(uuid7(), rows, indexes, {row.id: row.thread_id for row in rows}, renewed=math.inf)
                under_way.append((rows, self._make(lease, threads)[2]))
                settle(1)
            settle(0)

    def _lease(self, statement: str, parameters: dict[str, int], stage: str) -> Lease | None:
        raised = int(stage == ATTACHMENTS)
        with self._engine.begin() as connection:
            batch_sql.run(connection, "SET LOCAL plan_cache_mode = force_custom_plan")
            batch_sql.run(connection, indexing_sql.LEASE_ALONE)
            batch_sql.run(connection, indexing_sql.DROP_ENDED)
            rows = within(self._rows(connection, statement, raised=raised, **parameters))
            if not rows:
                return None
            lease_id, ids = uuid7(), [row.id for row in rows]
            taken = {"id": lease_id, "ids": batch_sql.uuids(ids), "stage": stage}
            batch_sql.run(connection, indexing_sql.TAKE, seconds=indexing_sql.LEASE_SECONDS, **taken)
            if raised:
                batch_sql.run(connection, indexing_sql.RAISE, ids=ids)
        with self._engine.begin() as connection:
            indexes = load_indexes(connection)
            threads = join_threads(connection, rows)
        return Lease(lease_id, sorted(rows, key=_place), indexes, threads, stage)

    def _rows(self, connection: Connection, statement: str, *, raised: int, **parameters: int) -> Sequence[Row]:
        """A row that can't be read is `failed`, and the others go on."""

        def give_up(poison: list[PoisonRow]) -> None:
            rows = [replace(row, version=row.version - raised) for row in poison]
            _write_failed(connection, [Unreadable(row, row.reason) for row in rows])

        return read_rows(connection, statement, indexing_sql.ALONE, give_up, raised=raised, **parameters)

    # making and sending

    def _make(
        self, lease: Lease, sending: ThreadPoolExecutor, extract: Extract | None = None
    ) -> tuple[list[Ready], list[Unreadable], list[Future[list[Unreadable]]]]:
        """Documents are sent in requests as they are made; no more than a few are in memory."""
        arrived: list[Ready] = []
        unreadable: list[Unreadable] = []
        requests: list[Future[list[Unreadable]]] = []
        request: list[Ready] = []
        size = 0

        def flush() -> None:
            nonlocal request, size
            if request:
                self._room.acquire()
                requests.append(sending.submit(self._send, lease.indexes, request))
                arrived.extend(_light(ready) for ready in request)
                request, size = [], 0

        begin, tick = partial(self._begin, lease), partial(self.keep, lease)
        for made in self._maker.make(lease.rows, lease.threads, extract, begin, tick):
            if isinstance(made, Unreadable):
                unreadable.append(made)
                continue
            if size + len(made.document) > REQUEST_BYTES:
                flush()
            request.append(made)
            size += len(made.document)
            self.keep(lease)
        flush()
        self._begin(lease, ())
        return arrived, unreadable, requests

    def _begin(self, lease: Lease, rows: Sequence[Row]) -> None:
        """Before messages are read: if we are not heard of again, it may be because of them."""
        if lease.renewed == math.inf:  # not leased
            return
        with self._engine.begin() as connection:
            batch_sql.run(connection, indexing_sql.READ, id=lease.id, ids=batch_sql.uuids(row.id for row in rows))

    def _send(self, indexes: Indexes, request: list[Ready]) -> list[Unreadable]:
        """Gives those that the server refuses."""
        try:
            try:
                self.deliver(indexes.uids, [ready.document for ready in request])
                return []
            except Refused:
                return self._send_alone(indexes, request)
        finally:
            self._room.release()

    def _send_alone(self, indexes: Indexes, request: list[Ready]) -> list[Unreadable]:
        refused = []
        for ready in request:
            try:
                self.deliver(indexes.uids, [ready.document])
            except Refused as error:
                log.warning("document_refused", message=str(ready.row.id), error=str(error))
                refused.append(Unreadable(ready.row, f"the search server refuses the document: {error}"))
        return refused

    def deliver(self, uids: Sequence[str], documents: Sequence[bytes]) -> None:
        for task in [self._server.add(uid, documents) for uid in uids]:
            self._server.wait(task)

    # what has arrived

    def _finish(
        self, lease: Lease, arrived: list[Ready], unreadable: list[Unreadable], requests: list[Future[list[Unreadable]]]
    ) -> Counts:
        for request in requests:
            while True:
                try:
                    unreadable += request.result(timeout=_RENEW_SECONDS / 2)
                    break
                except TimeoutError:
                    self.keep(lease)
        failed = {item.row.id for item in unreadable}
        arrived = [ready for ready in arrived if ready.row.id not in failed]
        with self._engine.begin() as connection:
            hold_threads(connection)
            is_held = bool(batch_sql.run(connection, indexing_sql.RELEASE, id=lease.id))
            done = _write_arrived(connection, arrived) | _write_failed(connection, unreadable) if is_held else set()
            suspected = [row.id for row in lease.rows if row.attempts and row.id in done]
            if suspected:
                ids = batch_sql.uuids(suspected)
                batch_sql.run(connection, indexing_sql.FORGET_ATTEMPTS, ids=ids, stage=lease.stage)
            lost = sorted({row.id for row in lease.rows} - done)
            if load_indexes(connection).ids != lease.indexes.ids:  # a reindex has begun or ended meanwhile
                lost = lease.ids
            gone = set(lost) - {row.id for row in batch_sql.run(connection, indexing_sql.RAISE, ids=lost)} if lost else set()
        if gone:  # deleted while their documents were under way
            self.remove([str(message_id) for message_id in sorted(gone)])
        counts = Counts(len(arrived), len(unreadable), sum(ready.state is SearchState.BODY for ready in arrived))
        log.info("batch_indexed", messages=counts.indexed, failed=counts.failed, waiting=counts.waiting, again=len(lost))
        return counts

    def remove(self, ids: Sequence[str]) -> None:
        """Documents of messages that are deleted."""
        indexes = ensure_live(self._engine, self._server)
        for task in [self._server.delete(uid, ids) for uid in indexes.uids]:
            self._server.wait(task)

    # leases

    def keep(self, lease: Lease) -> None:
        """Renews what is held for long: behind a slow server, nobody should send the same again."""
        if time.monotonic() - lease.renewed < _RENEW_SECONDS:
            return
        lease.renewed = time.monotonic()
        with self._engine.begin() as connection:
            batch_sql.run(connection, indexing_sql.RENEW, id=lease.id, seconds=indexing_sql.LEASE_SECONDS)

    def _give_back(self, leases: Sequence[Lease]) -> None:
        """So that nobody has to wait for their end. Best effort: they end by themselves."""
        for lease in leases:
            try:
                with self._engine.begin() as connection:
                    batch_sql.run(connection, indexing_sql.RELEASE, id=lease.id)
            except Exception as error:  # noqa: BLE001  (what brought us here is what matters)
                log.warning("lease_not_given_back", error=type(error).__name__)


def _write_arrived(connection: Connection, arrived: Sequence[Ready]) -> set[UUID]:
    rows = [
        {
            "i": ready.row.id,
            "v": ready.row.version,
            "s": ready.state,
            "r": ready.reasons,
            "p": PARSER_VERSION,
            "a": ready.has_attachments,
            "t": ready.thread_id,
            "k": own_key(ready.row),
        }
        for ready in arrived
    ]
    if not rows:
        return set()
    done = {row.id for row in batch_sql.run(connection, indexing_sql.FINISH, rows=batch_sql.rows(rows))}
    batch_sql.run(connection, indexing_sql.DROP_DEAD_LETTERS, ids=batch_sql.uuids(done))
    new = [ready for ready in arrived if ready.attachments is not None and ready.row.id in done]
    stale = sorted(ready.row.id for ready in new if ready.row.parser_version)
    if stale:
        batch_sql.run(connection, indexing_sql.DROP_ATTACHMENTS, ids=stale)
    attachments = [entry for ready in new for entry in ready.attachments or ()]
    if attachments:
        once = {entry["h"]: entry for entry in attachments} | {
            entry["h"]: entry for entry in attachments if entry["s"] == "pending"
        }
        contents = [{name: entry[name] for name in "hbts"} for _, entry in sorted(once.items())]
        batch_sql.run(connection, indexing_sql.ADD_ATTACHMENTS, rows=batch_sql.rows(contents))
        batch_sql.run(connection, indexing_sql.ADD_MESSAGE_ATTACHMENTS, rows=batch_sql.rows(attachments))
    return done


def _write_failed(connection: Connection, failed: Sequence[Unreadable]) -> set[UUID]:
    if not failed:
        return set()
    rows = [
        {"i": item.row.id, "v": item.row.version, "r": [{"file": "", "state": "failed", "reason": item.reason}]}
        for item in failed
    ]
    done = {row.id for row in batch_sql.run(connection, indexing_sql.FAIL, rows=batch_sql.rows(rows))}
    letters = [{"i": uuid7(), "m": item.row.id, "r": item.reason} for item in failed if item.row.id in done]
    batch_sql.run(connection, indexing_sql.ADD_DEAD_LETTERS, rows=batch_sql.rows(letters))
    return done


def within(rows: Sequence[Row]) -> list[Row]:
    """As many as fit into a batch's bytes, and one in any case."""
    size = 0
    for number, row in enumerate(rows):
        size += row.size_bytes
        if size > _BATCH_BYTES and number:
            return list(rows[:number])
    return list(rows)


def _place(row: Row) -> tuple[int, int]:
    return (row.pack_id.int, row.position) if row.pack_id is not None else (0, 0)


def _light(ready: Ready) -> Ready:
    """Without the document, which is under way."""
    return replace(ready, document=b"")
