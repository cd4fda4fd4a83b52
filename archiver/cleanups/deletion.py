"""Deletes the messages of one mailbox at the source, in small batches: conditions, our copy, the server's copy, the trash."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from pathlib import Path
from uuid import UUID

from sqlalchemy import Connection

from archiver.access import audit
from archiver.access.principal import Principal
from archiver.cleanups import statements as sql
from archiver.cleanups.conditions import SecondPlace, find_obstacles, read_back
from archiver.cleanups.rows import CleanupCopy, CleanupJob
from archiver.errors import UsageError
from archiver.logs import get_logger
from archiver.sources import access
from archiver.sources.rows import Source
from archiver.store.errors import StoreError
from archiver.workflows.step_run import StepRun
from connectors.base import Connector, MailboxRef, RawMessage
from connectors.errors import ConnectorError
from connectors.target import SourceTrash

BATCH = 20

log = get_logger("cleanups")


class CleanupStopped(UsageError):
    """Something is not as expected: nothing more is deleted until a person has looked."""


@dataclass(slots=True)
class MailboxCleanup:
    run: StepRun
    job: CleanupJob
    source: Source
    mailbox_id: UUID
    ref: MailboxRef
    second: SecondPlace | None
    principal: Principal

    def run_to_end(self) -> None:
        resources = self.run.resources
        try:
            with (
                access.open_mailbox(resources.engine, resources.keyring, self.source) as connector,
                access.open_trash(resources.engine, resources.keyring, self.source, self.ref) as trash,
            ):
                while copies := self._next():
                    self.run.report(self._done(), self.job.ready)
                    self._delete(connector, trash, copies)
        except ConnectorError as error:
            raise CleanupStopped(f"{self.ref.address}: {error}") from error

    def _next(self) -> list[CleanupCopy]:
        with self.run.resources.engine.connect() as connection:
            return sql.ready(connection, self.job, self.mailbox_id, 0, BATCH)

    def _done(self) -> int:
        with self.run.resources.engine.connect() as connection:
            job = sql.load(connection, self.job.id)
        return job.deleted + job.gone if job else 0

    def _delete(self, connector: Connector, trash: SourceTrash, copies: list[CleanupCopy]) -> None:
        free = self._free(copies)
        for copy in free:
            self._compare_own(copy)
        there = self._compare_server(connector, free)
        self._note("deleting", dict.fromkeys((copy.number for copy in there), None))
        with self.run.resources.engine.begin() as connection:  # no hold is placed between the last check and the move
            obstacles = self._obstacles(connection, there)
            if obstacles:
                raise CleanupStopped(f"message {there[0].message_id}: {next(iter(obstacles.values()))}")
            moved = trash.move([copy.provider_key for copy in there]) if there else set()
            self._log(connection, [copy for copy in there if copy.provider_key in moved])
            lost = [copy.number for copy in there if copy.provider_key not in moved]
            sql.record(connection, self.job.id, "gone", dict.fromkeys(lost, "no longer at the source"))

    def _free(self, copies: list[CleanupCopy]) -> list[CleanupCopy]:
        """Those whose conditions are still true; the others are kept, with the reason."""
        with self.run.resources.engine.begin() as connection:
            obstacles = self._obstacles(connection, copies)
            sql.record(connection, self.job.id, "kept", dict(obstacles))
        return [copy for copy in copies if copy.number not in obstacles]

    def _obstacles(self, connection: Connection, copies: list[CleanupCopy]) -> dict[int, str]:
        resources = self.run.resources
        return find_obstacles(connection, resources.engine, resources.archive, copies, self.second)

    def _compare_own(self, copy: CleanupCopy) -> None:
        assert copy.sha256 is not None
        try:
            is_same = read_back(self.run.resources.archive, copy) == copy.sha256.hex()
        except (StoreError, OSError) as error:
            raise CleanupStopped(f"message {copy.message_id} can't be read from the archive: {error}") from error
        if not is_same:
            raise CleanupStopped(f"message {copy.message_id} is not what was archived")

    def _compare_server(self, connector: Connector, copies: list[CleanupCopy]) -> list[CleanupCopy]:
        """Those that the server still has, byte for byte as archived."""
        found: dict[str, str] = {}
        missing: dict[str, str] = {}
        keys = [copy.provider_key for copy in copies]
        for batch in connector.refetch(self.ref, keys) if keys else ():
            found |= {one.provider_key: _digest(one) for one in batch.messages}
            missing |= {one.provider_key: one.reason for one in batch.failed}
        gone, there = {}, []
        for copy in copies:
            assert copy.sha256 is not None
            if copy.provider_key not in found:
                gone[copy.number] = missing.get(copy.provider_key, "no longer at the source")
            elif found[copy.provider_key] != copy.sha256.hex():
                raise CleanupStopped(f"message {copy.message_id} differs at the source from what is archived")
            else:
                there.append(copy)
        self._note_gone(gone)
        return there

    def _note_gone(self, gone: dict[int, str]) -> None:
        """A message that this run had begun to delete before it was interrupted was deleted by it."""
        with self.run.resources.engine.begin() as connection:
            begun = {one.number for one in sql.entries_of(connection, self.job.id, "deleting", list(gone))}
            sql.record(connection, self.job.id, "deleted", {number: None for number in gone if number in begun})
            sql.record(connection, self.job.id, "gone", {number: why for number, why in gone.items() if number not in begun})

    def _note(self, outcome: str, reasons: dict[int, None]) -> None:
        with self.run.resources.engine.begin() as connection:
            sql.record(connection, self.job.id, outcome, reasons)

    def _log(self, connection: Connection, copies: list[CleanupCopy]) -> None:
        if not copies:
            return
        sql.record(connection, self.job.id, "deleted", dict.fromkeys((copy.number for copy in copies), None))
        for copy in copies:
            log.info("deleted_at_source", cleanup=str(self.job.id), message=str(copy.message_id), mailbox=str(self.mailbox_id))
        ids = [str(copy.message_id) for copy in copies]
        audit.record(
            connection, self.principal, "cleanup.deleted", "source", self.source.id, mailbox=self.ref.address, messages=ids
        )


def _digest(message: RawMessage) -> str:
    if message.data is not None:
        return hashlib.sha256(message.data).hexdigest()
    assert message.path is not None
    try:
        with Path(message.path).open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    finally:
        Path(message.path).unlink(missing_ok=True)
