"""Updates documents: leases messages that are behind, builds their documents, sends them, and records what was sent.

Several processes share the work through leases. Leasing ahead, parsing, sending and waiting overlap. A process that dies in
between leaves a lease that expires, and the work is repeated: a document that arrives twice is the same document.
"""

from __future__ import annotations

import math
import time
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from threading import BoundedSemaphore
from uuid import UUID

from sqlalchemy import Connection, Engine

from archiver.db import sql
from archiver.db.ids import uuid7
from archiver.db.poison_rows import PoisonRow, read_rows
from archiver.db.states import SearchState
from archiver.indexing import statements
from archiver.indexing.documents import DocumentMaker, Extract, Ready, UnreadableDocument
from archiver.indexing.indexes import Indexes, ensure_live, load_indexes
from archiver.indexing.leases import ATTACHMENTS, BODY, Counts, Lease
from archiver.indexing.rows import DueMessage
from archiver.indexing.threads import hold_threads, join_threads
from archiver.logs import get_logger
from archiver.mail.message import PARSER_VERSION
from archiver.mail.thread_groups import own_key
from archiver.parsing.readers import MailReaders
from archiver.search.index import REQUEST_BYTES, SearchRefused, SearchServer
from archiver.store.archive import Archive

_BATCH_BYTES = 96 << 20
"""Of raw mail in a lease. Attachments that are stored apart are not read, and documents are sent as they are made."""
_REQUESTS_UNDER_WAY = 4
_BATCHES_UNDER_WAY = 2
_RENEW_SECONDS = statements.LEASE_SECONDS / 3

log = get_logger("indexing")


class _UnderWay:
    """The batches of one run: the one leased ahead, the current one, and those sent but not yet confirmed."""

    def __init__(self, ahead: Future[Lease | None]) -> None:
        self.ahead = ahead
        self.lease: Lease | None = None
        self.finishing: deque[tuple[Lease, Future[Counts]]] = deque()
        self.counts = Counts()

    def settle(self, limit: int) -> None:
        """Waits until at most `limit` batches are unconfirmed."""
        while len(self.finishing) > limit:
            self.counts.add(self.finishing[0][1].result())
            self.finishing.popleft()

    def leases(self) -> list[Lease]:
        """The leases that are still held after an error."""
        held = [self.lease, *(lease for lease, _ in self.finishing)]
        try:
            held.append(self.ahead.result())
        except Exception:  # noqa: BLE001  (then nothing was leased)
            log.debug("nothing_leased_ahead")
        return [lease for lease in held if lease is not None]


class Indexer:
    """One per process and stage; only one thread at a time may call `run`."""

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
        """`patience`: how many seconds to let arriving mail accumulate after a lease of less than half a batch."""
        self._engine = engine
        self._server = server
        self._batch = batch
        self._patience = patience
        self._maker = DocumentMaker(engine, archive, readers)
        self._room = BoundedSemaphore(_REQUESTS_UNDER_WAY)
        self.mail = self._maker.mail

    def run(self, should_stop: Callable[[], bool] = lambda: False) -> Counts:
        """Runs until nothing is left to lease, or `should_stop`. Raises SearchUnavailable: retry later, nothing is lost."""
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
                self._release(under_way.leases())
                raise

    def lease(self) -> Lease | None:
        """Leases the next messages, in pack order, with the thread of each."""
        return self._lease(statements.BEHIND, {"limit": self._batch}, BODY)

    def _lease_next(self, last: int) -> Lease | None:
        """Waits for a fuller batch: many small commits cost the search server more than a few large ones."""
        if last < self._batch // 2:
            time.sleep(self._patience)
        return self.lease()

    def lease_unread(self, limit: int, smallest: int, largest: int) -> Lease | None:
        """Leases messages of this size with unread attachments. Their documents get a new version."""
        sizes = {"smallest": smallest, "largest": largest}
        return self._lease(statements.UNREAD, {"limit": limit, **sizes}, ATTACHMENTS)

    def index(self, lease: Lease, extract: Extract) -> Counts:
        """Processes one lease from beginning to end."""
        with ThreadPoolExecutor(1, "send") as sending:
            try:
                return self._finish(lease, *self._make(lease, sending, extract))
            except BaseException:
                self._release([lease])
                raise

    def fill(
        self, batches: Iterable[Sequence[DueMessage]], indexes: Indexes, done: Callable[[Sequence[DueMessage]], None]
    ) -> None:
        """Sends documents of messages that are not leased to these indexes; calls `done` for each batch that has arrived."""
        under_way: deque[tuple[Sequence[DueMessage], list[Future[list[UnreadableDocument]]]]] = deque()

        def settle(limit: int) -> None:
            while len(under_way) > limit:
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
            # A generic plan does not know how few messages are behind, and would read all of them.
            sql.run(connection, "SET LOCAL plan_cache_mode = force_custom_plan")
            sql.run(connection, statements.LEASE_ALONE)
            sql.run(connection, statements.DROP_ENDED)
            rows = limit_bytes(self._rows(connection, statement, raised=raised, **parameters))
            if not rows:
                return None
            lease_id, ids = uuid7(), [row.id for row in rows]
            taken = {"id": lease_id, "ids": sql.uuids(ids), "stage": stage}
            sql.run(connection, statements.TAKE, seconds=statements.LEASE_SECONDS, **taken)
            if raised:
                sql.run(connection, statements.RAISE, ids=ids)
        # In a transaction of its own: joining threads takes longer, and other processes wait for the lock above.
        with self._engine.begin() as connection:
            indexes = load_indexes(connection)
            threads = join_threads(connection, rows)
        return Lease(lease_id, sorted(rows, key=_place), indexes, threads, stage)

    def _rows(self, connection: Connection, statement: str, *, raised: int, **parameters: int) -> Sequence[DueMessage]:
        """A row that can't be read becomes `failed`, and the others continue."""

        def give_up(poison: list[PoisonRow]) -> None:
            rows = [replace(row, version=row.version - raised) for row in poison]
            _write_failed(connection, [UnreadableDocument(row, row.reason) for row in rows])

        return read_rows(connection, statement, statements.ALONE, DueMessage, give_up, raised=raised, **parameters)

    # building and sending

    def _make(
        self, lease: Lease, sending: ThreadPoolExecutor, extract: Extract | None = None
    ) -> tuple[list[Ready], list[UnreadableDocument], list[Future[list[UnreadableDocument]]]]:
        """Documents are sent as soon as a request is full, so that only a few are in memory."""
        arrived: list[Ready] = []
        unreadable: list[UnreadableDocument] = []
        requests: list[Future[list[UnreadableDocument]]] = []
        request: list[Ready] = []
        size = 0

        def flush() -> None:
            nonlocal request, size
            if request:
                # Bounds the requests in memory when the search server is slower than we are.
                self._room.acquire()
                requests.append(sending.submit(self._send, lease.indexes, request))
                arrived.extend(_light(ready) for ready in request)
                request, size = [], 0

        begin, tick = partial(self._begin, lease), partial(self.renew, lease)
        for made in self._maker.make(lease.rows, lease.threads, extract, begin, tick):
            if isinstance(made, UnreadableDocument):
                unreadable.append(made)
                continue
            if size + len(made.document) > REQUEST_BYTES:
                flush()
            request.append(made)
            size += len(made.document)
            self.renew(lease)
        flush()
        self._begin(lease, ())
        return arrived, unreadable, requests

    def _begin(self, lease: Lease, rows: Sequence[DueMessage]) -> None:
        """Recorded before messages are read: if this process dies, they may be the cause."""
        if lease.renewed == math.inf:  # not leased
            return
        with self._engine.begin() as connection:
            sql.run(connection, statements.READ, id=lease.id, ids=sql.uuids(row.id for row in rows))

    def _send(self, indexes: Indexes, request: list[Ready]) -> list[UnreadableDocument]:
        """Returns the documents that the server rejects."""
        try:
            try:
                self.deliver(indexes.uids, [ready.document for ready in request])
                return []
            except SearchRefused:
                return self._send_alone(indexes, request)
        finally:
            self._room.release()

    def _send_alone(self, indexes: Indexes, request: list[Ready]) -> list[UnreadableDocument]:
        refused = []
        for ready in request:
            try:
                self.deliver(indexes.uids, [ready.document])
            except SearchRefused as error:
                log.warning("document_refused", message=str(ready.row.id), error=str(error))
                refused.append(UnreadableDocument(ready.row, f"the search server rejected the document: {error}"))
        return refused

    def deliver(self, uids: Sequence[str], documents: Sequence[bytes]) -> None:
        for task in [self._server.add(uid, documents) for uid in uids]:
            self._server.wait(task)

    # what has arrived

    def _finish(
        self,
        lease: Lease,
        arrived: list[Ready],
        unreadable: list[UnreadableDocument],
        requests: list[Future[list[UnreadableDocument]]],
    ) -> Counts:
        for request in requests:
            while True:
                try:
                    unreadable += request.result(timeout=_RENEW_SECONDS / 2)
                    break
                except TimeoutError:
                    self.renew(lease)
        failed = {item.row.id for item in unreadable}
        arrived = [ready for ready in arrived if ready.row.id not in failed]
        with self._engine.begin() as connection:
            hold_threads(connection)
            is_held = bool(sql.query(connection, statements.RELEASE, UUID, id=lease.id))
            done = _write_arrived(connection, arrived) | _write_failed(connection, unreadable) if is_held else set()
            suspected = [row.id for row in lease.rows if row.attempts and row.id in done]
            if suspected:
                ids = sql.uuids(suspected)
                sql.run(connection, statements.FORGET_ATTEMPTS, ids=ids, stage=lease.stage)
            lost = sorted({row.id for row in lease.rows} - done)
            if load_indexes(connection).ids != lease.indexes.ids:  # a reindex has begun or ended in the meantime
                lost = lease.ids
            gone = set(lost) - set(sql.query(connection, statements.RAISE, UUID, ids=lost)) if lost else set()
        if gone:  # deleted while their documents were in transit
            self.remove([str(message_id) for message_id in sorted(gone)])
        counts = Counts(len(arrived), len(unreadable), sum(ready.state is SearchState.BODY for ready in arrived))
        log.info("batch_indexed", messages=counts.indexed, failed=counts.failed, waiting=counts.waiting, again=len(lost))
        return counts

    def remove(self, ids: Sequence[str]) -> None:
        """Removes the documents of deleted messages."""
        indexes = ensure_live(self._engine, self._server)
        for task in [self._server.delete(uid, ids) for uid in indexes.uids]:
            self._server.wait(task)

    # leases

    def renew(self, lease: Lease) -> None:
        """Renews a long-held lease, so that no other process sends the same documents while the server is slow."""
        if time.monotonic() - lease.renewed < _RENEW_SECONDS:
            return
        lease.renewed = time.monotonic()
        with self._engine.begin() as connection:
            sql.run(connection, statements.RENEW, id=lease.id, seconds=statements.LEASE_SECONDS)

    def _release(self, leases: Sequence[Lease]) -> None:
        """Lets other processes lease the messages at once. Best effort: leases also expire."""
        for lease in leases:
            try:
                with self._engine.begin() as connection:
                    sql.run(connection, statements.RELEASE, id=lease.id)
            except Exception as error:  # noqa: BLE001  (the original error matters more)
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
    done = set(sql.query(connection, statements.FINISH, UUID, rows=sql.rows(rows)))
    sql.run(connection, statements.DROP_DEAD_LETTERS, ids=sql.uuids(done))
    new = [ready for ready in arrived if ready.attachments is not None and ready.row.id in done]
    stale = sorted(ready.row.id for ready in new if ready.row.parser_version)
    if stale:
        sql.run(connection, statements.DROP_ATTACHMENTS, ids=stale)
    attachments = [entry for ready in new for entry in ready.attachments or ()]
    if attachments:
        once = {entry["h"]: entry for entry in attachments} | {
            entry["h"]: entry for entry in attachments if entry["s"] == "pending"
        }
        contents = [{name: entry[name] for name in "hbts"} for _, entry in sorted(once.items())]
        sql.run(connection, statements.ADD_ATTACHMENTS, rows=sql.rows(contents))
        sql.run(connection, statements.ADD_MESSAGE_ATTACHMENTS, rows=sql.rows(attachments))
    return done


def _write_failed(connection: Connection, failed: Sequence[UnreadableDocument]) -> set[UUID]:
    if not failed:
        return set()
    rows = [
        {"i": item.row.id, "v": item.row.version, "r": [{"file": "", "state": "failed", "reason": item.reason}]}
        for item in failed
    ]
    done = set(sql.query(connection, statements.FAIL, UUID, rows=sql.rows(rows)))
    letters = [{"i": uuid7(), "m": item.row.id, "r": item.reason} for item in failed if item.row.id in done]
    sql.run(connection, statements.ADD_DEAD_LETTERS, rows=sql.rows(letters), parser=statements.PARSER_MARK)
    return done


def limit_bytes(rows: Sequence[DueMessage]) -> list[DueMessage]:
    """As many rows as fit into a batch's bytes, and at least one."""
    size = 0
    for number, row in enumerate(rows):
        size += row.size_bytes
        if size > _BATCH_BYTES and number:
            return list(rows[:number])
    return list(rows)


def _place(row: DueMessage) -> tuple[int, int]:
    return (row.pack_id.int, row.position or 0) if row.pack_id is not None else (0, 0)


def _light(ready: Ready) -> Ready:
    """Without the document, which has been sent."""
    return replace(ready, document=b"")
