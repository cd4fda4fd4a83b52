"""Carries out the policies: deletes what is due, in batches, and leaves a signed receipt.

Each batch is one transaction, which evaluates the policies in SQL once its messages are locked, and remembers how far the run
has come: a killed run goes on where it was. No policy changes during a batch; if one has changed since the run began, the run
ends with its receipt, and the next run applies the new policies.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, fields
from datetime import UTC, datetime
from typing import Any
from uuid import UUID

import orjson
import structlog
from sqlalchemy import Connection, Engine, text

from archiver.access import audit
from archiver.access.principal import LOCAL_OPERATOR, Principal
from archiver.db import sql
from archiver.db.engine import held_lock
from archiver.db.ids import uuid7
from archiver.errors import ArchiverError, NotFound
from archiver.retention import policies
from archiver.retention.delete import LOCK_MESSAGES, Deletion, confirm
from archiver.retention.rules import RuleBook
from archiver.store.archive import Archive
from archiver.sync.ingest.archive_state import archive_id

_log = structlog.get_logger(__name__)
BATCH = 5_000
_NIL = UUID(int=0)

_COLUMNS = """id, started_at, finished_at, version_ids, after_id, copies, messages, size_bytes, held, unclear, tombstone_ids,
    error, receipt, signature, key"""
_OPEN = text(f"SELECT {_COLUMNS} FROM retention_runs WHERE finished_at IS NULL")  # noqa: S608
_LIST = text(f"SELECT {_COLUMNS} FROM retention_runs ORDER BY id DESC LIMIT :limit")  # noqa: S608
_LOAD = text(f"SELECT {_COLUMNS} FROM retention_runs WHERE id = :id")  # noqa: S608
_BEGIN = text("INSERT INTO retention_runs (id, started_at, version_ids) VALUES (:id, :at, :version_ids)")
_ADVANCE = text("""
    UPDATE retention_runs SET after_id = :after, copies = copies + :copies, messages = messages + :messages,
        size_bytes = size_bytes + :bytes, held = held + :held, unclear = unclear + :unclear,
        tombstone_ids = tombstone_ids || CAST(:tombstones AS uuid[]) WHERE id = :id""")
_FINISH = text("""
    UPDATE retention_runs SET finished_at = :at, error = :error, receipt = :receipt, signature = :signature, key = :key
    WHERE id = :id AND finished_at IS NULL""")
# In portions of the table, whether something is due in them or not: the copies are visited once per run.
_PORTION = text("""
    SELECT (array_agg(id ORDER BY id DESC))[1] AS last, count(*) AS found FROM (
        SELECT id FROM message_copies WHERE id > :after ORDER BY id LIMIT :limit) AS portion""")
# OFFSET 0: copy by copy. A batch is a small share of the tables, all of which would be read otherwise.
_DUE_MESSAGE = "LATERAL (SELECT * FROM messages m WHERE m.id = c.message_id AND {due} OFFSET 0) AS found"
_DUE = f"""
    SELECT c.id, c.message_id FROM message_copies c, {_DUE_MESSAGE}
    WHERE c.deleted_at IS NULL AND c.id > :after AND c.id <= :last ORDER BY c.id"""  # noqa: S608
_STILL_DUE = f"""
    SELECT c.id, found.size_bytes FROM message_copies c, {_DUE_MESSAGE}
    WHERE c.deleted_at IS NULL AND c.id = ANY(CAST(:ids AS uuid[]))"""  # noqa: S608
# A bitmap for the few rows of each copy costs more than it saves.
_ROW_BY_ROW = text("SET LOCAL enable_bitmapscan = off")
_FORGET = text("DELETE FROM retention_runs WHERE id = :id")
_DELETED = text("""
    SELECT x.copy ->> 0 AS mailbox, x.copy ->> 2 AS sha256 FROM tombstones t, jsonb_array_elements(t.copies) AS x(copy)
    WHERE t.id = ANY(:ids) ORDER BY (x.copy ->> 0) COLLATE "C", (x.copy ->> 2) COLLATE "C\"""")

SUBJECT = "archiver retention receipt v1"
Sign = Callable[[str, bytes], tuple[str, bytes]]
"""Signs the digest of something as a subject. Returns the id of the key, and the signature."""

SYSTEM = Principal("archiver", LOCAL_OPERATOR.role, frozenset())
"""The program itself, when the schedule starts a run."""


@dataclass(frozen=True, slots=True)
class RetentionRun:
    id: UUID
    started_at: datetime
    finished_at: datetime | None
    version_ids: list[UUID]
    after_id: UUID | None
    copies: int
    messages: int
    size_bytes: int
    held: int
    unclear: int
    tombstone_ids: list[UUID]
    error: str | None
    receipt: str | None
    signature: bytes | None
    key: str | None


@dataclass(frozen=True, slots=True)
class DueCopy:
    id: UUID
    message_id: UUID


class _Changed(Exception):
    """The policies are no longer those with which the run began."""


@dataclass(frozen=True, slots=True)
class Executor:
    engine: Engine
    archive: Archive
    sign: Sign
    clock: Callable[[], datetime] = lambda: datetime.now(UTC)
    principal: Principal = SYSTEM
    batch: int = BATCH

    def run(self, limit: int, stopping: Callable[[], bool] = lambda: False) -> RetentionRun | None:
        """Continues the interrupted run, or begins one. Deletes about `limit` copies at most; None if there is nothing to do,
        or another process does it."""
        with held_lock(self.engine, "archiver:retention") as got:
            run = self._open_or_begin() if got else None
            if run is None:
                return None
            error = None
            try:
                self._work(run.id, limit, stopping)
            except _Changed:
                _log.info("retention_policies_changed", run=str(run.id))
            except ArchiverError as failed:
                error = str(failed)
                _log.error("retention_run_failed", run=str(run.id), error=error)
            return run if stopping() else self._finish(run.id, error)

    def _open_or_begin(self) -> RetentionRun | None:
        with self.engine.begin() as connection:
            row = connection.execute(_OPEN).one_or_none()
            if row is not None:
                return RetentionRun(*row)
            versions = policies.in_force(connection)
            if not any(version.delete_after for version in versions):
                return None
            run_id = uuid7()
            ids = [version.id for version in versions]
            connection.execute(_BEGIN, {"id": run_id, "at": self.clock(), "version_ids": ids})
            return load(connection, run_id)

    def _work(self, run_id: UUID, limit: int, stopping: Callable[[], bool]) -> None:
        done = 0
        while done < limit and not stopping():
            with self.engine.connect() as connection:
                after = load(connection, run_id).after_id or _NIL
                portion = connection.execute(_PORTION, {"after": after, "limit": 4 * self.batch}).one()
                book = self._book(connection, run_id)
            if not portion.found:
                return
            within = {"after": after, "last": portion.last}
            unclear = book.decide(self.engine, self.archive, "c.id > :after AND c.id <= :last", within)
            with self.engine.connect() as connection:
                connection.execute(_ROW_BY_ROW)
                statement = text(_DUE.format(due=book.due))
                due = [DueCopy(*row) for row in connection.execute(statement, {**book.values, **within})]
            done += self._delete_portion(run_id, due, portion.last, unclear, limit - done, stopping)

    def _delete_portion(
        self, run_id: UUID, due: list[DueCopy], last: UUID, unclear: int, limit: int, stopping: Callable[[], bool]
    ) -> int:
        """In batches, up to `limit` copies or a few more. Returns how many were due in the batches that it tried."""
        for start in range(0, max(1, len(due)), self.batch):
            some = due[start : start + self.batch]
            end = start + len(some)
            self._delete_some(run_id, some, last if end >= len(due) else some[-1].id, unclear if start == 0 else 0)
            if end >= limit or stopping():
                return end
        return len(due)

    def _book(self, connection: Connection, run_id: UUID) -> RuleBook:
        versions = policies.in_force(connection)
        if {version.id for version in versions} != set(load(connection, run_id).version_ids):
            raise _Changed
        return RuleBook.compile(self.engine, versions, self.clock())

    def _delete_some(self, run_id: UUID, found: list[DueCopy], after: UUID, unclear: int) -> None:
        """Deletes those of the copies that are still due, and remembers that the run has come to `after`."""
        with self.engine.begin() as connection:
            connection.execute(_ROW_BY_ROW)
            connection.execute(policies.LOCK_SHARED)
            book = self._book(connection, run_id)
            progress: dict[str, Any] = dict.fromkeys(("copies", "messages", "bytes", "held"), 0)
            progress |= {"id": run_id, "after": after, "unclear": unclear, "tombstones": []}
            if found:
                progress |= self._delete(connection, run_id, book, found)
            connection.execute(_ADVANCE, progress)
            if progress["copies"]:
                audit.record(
                    connection, self.principal, "retention.deleted", "retention_run", run_id, copies=progress["copies"]
                )
        if found:
            confirm(self.engine, self.archive)

    def _delete(self, connection: Connection, run_id: UUID, book: RuleBook, found: list[DueCopy]) -> dict[str, Any]:
        sql.run(connection, LOCK_MESSAGES, ids=sql.uuids({row.message_id for row in found}))
        statement = text(_STILL_DUE.format(due=book.due))
        due = connection.execute(statement, {**book.values, "ids": sql.uuids(row.id for row in found)}).all()
        tombstone_id = uuid7()
        deletion = Deletion(
            connection, self.engine, self.archive, f"retention run {run_id}", self.principal, tombstone_id, is_retention=True
        )
        done = deletion.delete([row.id for row in due])
        sizes = {row.id: row.size_bytes for row in due}
        return {
            "copies": done.copies, "messages": done.messages, "held": done.held,
            "bytes": sum(sizes[copy_id] for copy_id in deletion.copy_ids), "tombstones": [tombstone_id] if done.copies else [],
        }  # fmt: skip

    def _finish(self, run_id: UUID, error: str | None) -> RetentionRun | None:
        """A run that found nothing to do leaves no trace."""
        with self.engine.begin() as connection:
            run = load(connection, run_id)
            at = self.clock()
            if not (run.copies or run.held or run.unclear or error):
                connection.execute(_FORGET, {"id": run_id})
                return None
            receipt = write_receipt(connection, run, at, error)
            digest = hashlib.sha256(receipt.encode())
            key, signature = self.sign(SUBJECT, digest.digest())
            connection.execute(
                _FINISH, {"id": run_id, "at": at, "error": error, "receipt": receipt, "signature": signature, "key": key}
            )
            audit.record(
                connection, self.principal, "retention.run_finished", "retention_run", run_id, copies=run.copies,
                messages=run.messages, error=error, receipt_sha256=digest.hexdigest(),
            )  # fmt: skip
            return load(connection, run_id)


def load(connection: Connection, run_id: UUID) -> RetentionRun:
    row = connection.execute(_LOAD, {"id": run_id}).one_or_none()
    if row is None:
        raise NotFound(f"there is no retention run {run_id}")
    return RetentionRun(*row)


def list_runs(connection: Connection, limit: int = 100) -> list[RetentionRun]:
    """Newest first."""
    return [RetentionRun(*row) for row in connection.execute(_LIST, {"limit": limit})]


def deleted_units(connection: Connection, run: RetentionRun) -> Iterator[str]:
    """What the run deleted, one line each, in a fixed order: mailbox and SHA-256 of the message."""
    for row in connection.execute(_DELETED, {"ids": run.tombstone_ids}):
        yield f"{row.mailbox} {row.sha256}"


def write_receipt(connection: Connection, run: RetentionRun, at: datetime, error: str | None) -> str:
    """The text that is signed: who decided what, and what was deleted, as counts and as the hash of the list."""
    digest, units = hashlib.sha256(), 0
    for line in deleted_units(connection, run):
        digest.update(f"{line}\n".encode())
        units += 1
    versions = [policies.load_version(connection, version_id) for version_id in run.version_ids]
    wanted = [one.name for one in fields(policies.PolicyVersion) if not one.name.startswith(("simulation", "rejected"))]
    content = {
        "kind": "archiver retention receipt",
        "version": 1,
        "archive": archive_id(connection),
        "run": run.id,
        "started_at": run.started_at,
        "finished_at": at,
        "policies": [{name: value for name, value in asdict(version).items() if name in wanted} for version in versions],
        "deleted_copies": run.copies,
        "deleted_messages": run.messages,
        "deleted_bytes": run.size_bytes,
        "kept_on_hold": run.held,
        "unclear": run.unclear,
        "listed": units,
        "list_sha256": digest.hexdigest(),
        "error": error,
    }
    return orjson.dumps(content, default=str, option=orjson.OPT_SORT_KEYS | orjson.OPT_INDENT_2).decode()


IsSigned = Callable[[str, bytes, bytes], bool]
"""Whether a signature over the digest of something as a subject is genuine."""


def faults(run: RetentionRun, is_signed: IsSigned, lines: Sequence[str]) -> list[str]:
    """What is wrong with a receipt; `lines`: what the run deleted, as `deleted_units` lists it."""
    if run.receipt is None or run.signature is None:
        return ["the run has no receipt yet"]
    found = []
    if not is_signed(SUBJECT, hashlib.sha256(run.receipt.encode()).digest(), run.signature):
        found.append("the signature does not fit the text of the receipt")
    listed = hashlib.sha256("".join(f"{line}\n" for line in lines).encode()).hexdigest()
    if orjson.loads(run.receipt)["list_sha256"] != listed:
        found.append("the list of what was deleted is not the one of the receipt")
    return found
