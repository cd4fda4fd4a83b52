"""How the rows of a batch are sent: one statement for each table, its rows sorted by key."""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any
from uuid import UUID

from sqlalchemy import Connection

from archiver.date_range import archivable
from archiver.db import sql
from archiver.db.ids import message_uuid, uuid7, uuid7s
from archiver.store.backend import Written
from archiver.store.errors import StoreUnavailable
from archiver.store.journal import Change, Origin
from archiver.sync.ingest import statements
from archiver.sync.ingest.object_rows import object_rows
from archiver.sync.ingest.plan import Item, PreparedMessage, StoredObject
from archiver.sync.ingest.provider_keys import fit_key
from archiver.sync.ingest.rows import describe_all
from connectors.base import FailedMessage, Json

_PORTION = 200


class BatchPipeline(sql.Pipeline):
    def __init__(self, connection: Connection, origin: Origin, run_id: UUID | None, at: datetime) -> None:
        ids = {"mailbox_id": origin.mailbox_id, "source_id": origin.source_id, "session_id": run_id, "run_id": run_id}
        super().__init__(connection, **ids, at=at)

    def _send_rows(self, statement: str, rows: Sequence[Any], **parameters: Any) -> sql.Sent:
        return [self.send(statement, rows=sql.rows(rows), **parameters)] if rows else []

    def fetch_ids(self, sent: sql.Sent) -> set[UUID]:
        return {found for one in sent for found in self.fetch(one, UUID)}

    def find_objects(self, hashes: Collection[bytes]) -> set[StoredObject]:
        return set(self.ask(statements.FIND_OBJECTS, StoredObject, hashes=sql.hashes(hashes))) if hashes else set()

    def add_messages(self, prepared: Sequence[PreparedMessage]) -> sql.Sent:
        """In portions, so that Postgres inserts one while we parse the headers of the next."""
        sent: sql.Sent = []
        for start in range(0, len(prepared), _PORTION):
            items = [one.item for one in prepared[start : start + _PORTION]]
            described = describe_all([(item.raw, item.sha256, item.message.received_at) for item in items])
            sent += self._send_rows(statements.ADD_MESSAGES, [row.message for row in described])
            self._send_rows(statements.ADD_PARTICIPANTS, [entry for row in described for entry in row.participants])
        parts = [(message_uuid(one.item.sha256), part.hex()) for one in prepared for part in sorted(one.part_hashes)]
        self._send_rows(statements.ADD_PARTS, [{"m": message_id, "h": part} for message_id, part in parts])
        return sent

    def hold_messages(self, prepared: Sequence[PreparedMessage], inserted: Collection[UUID]) -> None:
        """In place of a foreign key: messages that other transactions have just added stay until this batch is committed."""
        others = {one.item.sha256 for one in prepared if message_uuid(one.item.sha256) not in inserted}
        if others and len(self.ask(statements.FIND_MESSAGES, bytes, hashes=sql.hashes(others))) < len(others):
            raise StoreUnavailable("another process stored and deleted a message of this batch in the meantime: try again")

    def raise_versions(self, message_ids: Collection[UUID]) -> None:
        if message_ids:
            self.send(statements.RAISE_VERSIONS, ids=sorted(message_ids))

    def add_copies(self, copies: Sequence[Item]) -> sql.Sent:
        ordered = sorted(copies, key=lambda item: item.key)
        ids = uuid7s(len(ordered))
        rows = [{**_copy_row(item, id_), "m": message_uuid(item.sha256)} for item, id_ in zip(ordered, ids, strict=True)]
        sent = self._send_rows(statements.ADD_COPIES, rows)
        self._send_rows(statements.DROP_DEAD_LETTERS, [item.key for item in ordered])
        return sent

    def add_deleted_copies(self, buried: Iterable[Item], reasons: Mapping[bytes, str | None]) -> None:
        """A row for each deleted message whose key has none yet: the next sync of the source skips it."""
        ordered = sorted(buried, key=lambda item: item.key)
        rows = [{**_copy_row(item, uuid7()), "w": reasons.get(item.sha256), "h": item.sha256.hex()} for item in ordered]
        self._send_rows(statements.ADD_DELETED_COPIES, rows)
        self._send_rows(statements.DROP_DEAD_LETTERS, [item.key for item in ordered])

    def change_copies(self, changes: Sequence[Change]) -> sql.Sent:
        return self._send_rows(statements.CHANGE_COPIES, [_change_row(change) for change in changes])

    def add_dead_letters(self, failed: Iterable[FailedMessage]) -> None:
        once = {fit_key(one.provider_key): one for one in failed}
        self._send_rows(statements.ADD_DEAD_LETTERS, [_dead_letter(key, one) for key, one in sorted(once.items())])

    def merge_state(self, state: Mapping[str, Json]) -> None:
        if state:
            kept = {key: value for key, value in state.items() if value is not None}
            dropped = [key for key, value in state.items() if value is None]
            self.send(statements.MERGE_STATE, patch=sql.rows(kept), dropped=dropped)

    def add_objects(self, written: Written) -> None:
        self._send_rows(statements.ADD_OBJECTS, object_rows(written), pack_id=written.batch.pack_id)

    def extend_pack(self, written: Written) -> sql.SentStatement:
        self.send(statements.ADD_PACK, id=written.batch.pack_id, name=written.batch.pack_name)
        return self.send(statements.EXTEND_PACK, **statements.extension(written))


def _copy_row(item: Item, copy_id: UUID) -> dict[str, object]:
    message = item.message
    recorded = {"e": message.recipients} if message.recipients else {}
    return {
        **recorded,
        "i": copy_id,
        "k": item.key,
        "f": item.folder,
        "g": message.flags,
        "l": message.labels,
        "r": archivable(message.received_at),
    }


def _change_row(change: Change) -> dict[str, object]:
    return {
        "kind": change.kind,
        "key": change.provider_key,
        "folder": change.folder,
        "flags": change.flags,
        "labels": change.labels,
        "new_key": change.new_provider_key,
    }


def _dead_letter(key: str, failed: FailedMessage) -> dict[str, object]:
    sha256 = hashlib.sha256(failed.data).hexdigest() if failed.data is not None else None
    detail = {**failed.detail, "provider_key": failed.provider_key}
    return {"i": uuid7(), "k": key, "f": failed.folder, "d": detail, "h": sha256, "r": failed.reason}
