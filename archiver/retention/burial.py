"""Applies the tombstones of the packs: a message is deleted in a mailbox, whatever its provider key there."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import replace
from typing import Any
from uuid import UUID

from sqlalchemy import Connection

from archiver.db import sql
from archiver.db.ids import message_uuid, uuid7
from archiver.retention import holds, tombstones
from archiver.store.journal import Change, Tombstones
from archiver.sync.ingest.provider_keys import version_key

Grave = dict[str, Any]
"""A copy without a row, because its message is gone: the fields of its occurrence and of the changes after it."""

_BURY = """
    UPDATE message_copies c SET deleted_at = coalesce(c.deleted_at, :at), deleted_reason = :reason,
        deleted_sha256 = decode(x.h, 'hex'), message_id = NULL
    FROM json_to_recordset(:rows::json) AS x(b uuid, m uuid, h text)
    WHERE c.mailbox_id = x.b AND c.message_id = x.m"""
_DIG = """
    INSERT INTO message_copies (id, mailbox_id, provider_key, folder, flags, labels, received_at, created_at, deleted_at,
        deleted_reason, deleted_sha256)
    SELECT i, b, k, coalesce(f, ''), coalesce(g, '{{}}'), coalesce(l, '{{}}'), r, :at, :at, :reason, decode(h, 'hex')
    FROM json_to_recordset(:rows::json) AS x(i uuid, b uuid, k text, f text, g text[], l text[], r timestamptz, h text)
    {unless} ON CONFLICT (mailbox_id, provider_key) DO NOTHING"""
# Without a row, the next sync would archive it again.
_DIG_UNDER_KEY = _DIG.format(unless="")
_DIG_ELSEWHERE = _DIG.format(
    unless="WHERE NOT EXISTS (SELECT 1 FROM message_copies c WHERE c.mailbox_id = b AND c.deleted_sha256 = decode(h, 'hex'))"
)


class Burial:
    def __init__(self, found: Sequence[Tombstones]) -> None:
        """`found`: all tombstones of the packs, in order."""
        confirmed = {deletion.id for deletion in found if deletion.is_confirmed}
        whole = {
            deletion.id: deletion for deletion in found if deletion.id and deletion.copies
        }  # the intention has the same content
        counting = [deletion for deletion in whole.values() if deletion.id in confirmed]
        self.tombstones = [deletion for deletion in found if deletion.id is None] + [
            replace(deletion, is_confirmed=True) for deletion in counting
        ]
        self.intended = [deletion for deletion in whole.values() if deletion.id not in confirmed]
        self._buried = {
            (mailbox_id, message_uuid(sha256)) for deletion in self.tombstones for mailbox_id, _, sha256 in deletion.copies
        }
        self._graves: dict[tuple[UUID, str], Grave] = {}

    def covers(self, mailbox_id: UUID, message_id: UUID) -> bool:
        return (mailbox_id, message_id) in self._buried

    def remember(self, mailbox_id: UUID, grave: Grave) -> None:
        self._graves[mailbox_id, grave["k"]] = grave

    def change(self, mailbox_id: UUID, changes: Sequence[Change]) -> None:
        """If a copy was moved before it was deleted, its row stays under its last key."""
        for change in changes:
            grave = self._graves.pop((mailbox_id, change.provider_key), None)
            if grave is not None:
                self.remember(mailbox_id, _apply_change(grave, change))

    def carry_out(self, connection: Connection) -> int:
        """Returns the number of copies that it deletes."""
        connection.execute(holds.REPLAYS)
        graves: dict[tuple[UUID, UUID], list[Grave]] = defaultdict(list)
        for (mailbox_id, _), grave in self._graves.items():
            graves[mailbox_id, grave["m"]].append(grave)
        return sum(_bury(connection, deletion, graves) for deletion in self.tombstones)


def _apply_change(grave: Grave, change: Change) -> Grave:
    values = {"f": change.folder, "g": change.flags, "l": change.labels, "k": change.new_provider_key}
    return {**grave, **{name: value for name, value in values.items() if value is not None}}


def _bury(connection: Connection, deletion: Tombstones, graves: dict[tuple[UUID, UUID], list[Grave]]) -> int:
    tombstones.remember(connection, deletion)
    values = {"at": deletion.at, "reason": deletion.reason.replace("\0", "\ufffd")}
    buried = sorted({(mailbox_id, sha256) for mailbox_id, _, sha256 in deletion.copies})
    pairs = [{"b": mailbox_id, "m": message_uuid(sha256), "h": sha256.hex()} for mailbox_id, sha256 in buried]
    under_keys: dict[tuple[UUID, str], Grave] = {
        (mailbox_id, key): {"i": uuid7(), "k": key, "h": sha256.hex()} for mailbox_id, key, sha256 in deletion.copies
    }
    for mailbox_id, sha256 in buried:
        for grave in graves.get((mailbox_id, message_uuid(sha256)), ()):
            under_keys[mailbox_id, grave["k"]] = {**grave, "i": uuid7(), "h": sha256.hex()}
    rows = [{**row, "b": mailbox_id} for (mailbox_id, _), row in sorted(under_keys.items())]
    elsewhere = [{**row, "i": uuid7(), "k": version_key(row["k"], bytes.fromhex(row["h"]))} for row in rows]
    done = sql.run(connection, _BURY, rows=sql.rows(pairs), **values)
    dug = sql.run(connection, _DIG_UNDER_KEY, rows=sql.rows(rows), **values)
    dug_elsewhere = sql.run(connection, _DIG_ELSEWHERE, rows=sql.rows(elsewhere), **values)
    return done + dug + dug_elsewhere
