"""Carries out what the tombstones of the packs say: a message is deleted in a mailbox, under whatever key it lies there."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import replace
from typing import Any
from uuid import UUID

from sqlalchemy import Connection

from archiver.models.ids import message_uuid, uuid7
from archiver.services import batch_sql as sql
from archiver.services import tombstones
from archiver.services.provider_keys import version_key
from archiver.store.journal import Change, Tombstones

Grave = dict[str, Any]
"""A copy that has no row, as its message is gone: what an occurrence, and the changes after it, told of it."""

_BURY = """
    UPDATE message_copies c SET deleted_at = coalesce(c.deleted_at, %(at)s), deleted_reason = %(reason)s,
        deleted_sha256 = decode(x.h, 'hex'), message_id = NULL
    FROM json_to_recordset(%(rows)s::json) AS x(b uuid, m uuid, h text)
    WHERE c.mailbox_id = x.b AND c.message_id = x.m RETURNING 1"""
_DIG = """
    INSERT INTO message_copies (id, mailbox_id, provider_key, folder, flags, labels, received_at, created_at, deleted_at,
        deleted_reason, deleted_sha256)
    SELECT i, b, k, coalesce(f, ''), coalesce(g, '{{}}'), coalesce(l, '{{}}'), r, %(at)s, %(at)s, %(reason)s, decode(h, 'hex')
    FROM json_to_recordset(%(rows)s::json) AS x(i uuid, b uuid, k text, f text, g text[], l text[], r timestamptz, h text)
    {unless} ON CONFLICT (mailbox_id, provider_key) DO NOTHING RETURNING 1"""
# Without a row, the next sync would bring it back.
_DIG_UNDER_KEY = _DIG.format(unless="")
_DIG_ELSEWHERE = _DIG.format(
    unless="WHERE NOT EXISTS (SELECT 1 FROM message_copies c WHERE c.mailbox_id = b AND c.deleted_sha256 = decode(h, 'hex'))"
)


class Burial:
    def __init__(self, found: Sequence[Tombstones]) -> None:
        """`found`: all that is in the packs, in order."""
        confirmed = {one.id for one in found if one.is_confirmed}
        whole = {one.id: one for one in found if one.id and one.copies}  # the intention has the same content
        counting = [one for one in whole.values() if one.id in confirmed]
        self.tombstones = [one for one in found if one.id is None] + [replace(one, is_confirmed=True) for one in counting]
        self.intended = [one for one in whole.values() if one.id not in confirmed]
        self._buried = {(mailbox_id, message_uuid(sha256)) for one in self.tombstones for mailbox_id, _, sha256 in one.copies}
        self._graves: dict[tuple[UUID, str], Grave] = {}

    def holds(self, mailbox_id: UUID, message_id: UUID) -> bool:
        return (mailbox_id, message_id) in self._buried

    def remember(self, mailbox_id: UUID, grave: Grave) -> None:
        self._graves[mailbox_id, grave["k"]] = grave

    def change(self, mailbox_id: UUID, changes: Sequence[Change]) -> None:
        """A copy was moved before it was deleted: its row stays under its last key."""
        for change in changes:
            grave = self._graves.pop((mailbox_id, change.provider_key), None)
            if grave is not None:
                self.remember(mailbox_id, _changed(grave, change))

    def carry_out(self, connection: Connection) -> int:
        """Returns how many copies are deleted by it."""
        graves: dict[tuple[UUID, UUID], list[Grave]] = defaultdict(list)
        for (mailbox_id, _), grave in self._graves.items():
            graves[mailbox_id, grave["m"]].append(grave)
        return sum(_bury(connection, one, graves) for one in self.tombstones)


def _changed(grave: Grave, change: Change) -> Grave:
    told = {"f": change.folder, "g": change.flags, "l": change.labels, "k": change.new_provider_key}
    return {**grave, **{name: value for name, value in told.items() if value is not None}}


def _bury(connection: Connection, one: Tombstones, graves: dict[tuple[UUID, UUID], list[Grave]]) -> int:
    tombstones.remember(connection, one)
    told = {"at": one.at, "reason": one.reason.replace("\0", "\ufffd")}
    buried = sorted({(mailbox_id, sha256) for mailbox_id, _, sha256 in one.copies})
    pairs = [{"b": mailbox_id, "m": message_uuid(sha256), "h": sha256.hex()} for mailbox_id, sha256 in buried]
    under_keys: dict[tuple[UUID, str], Grave] = {
        (mailbox_id, key): {"i": uuid7(), "k": key, "h": sha256.hex()} for mailbox_id, key, sha256 in one.copies
    }
    for mailbox_id, sha256 in buried:
        for grave in graves.get((mailbox_id, message_uuid(sha256)), ()):
            under_keys[mailbox_id, grave["k"]] = {**grave, "i": uuid7(), "h": sha256.hex()}
    rows = [{**row, "b": mailbox_id} for (mailbox_id, _), row in sorted(under_keys.items())]
    elsewhere = [{**row, "i": uuid7(), "k": version_key(row["k"], bytes.fromhex(row["h"]))} for row in rows]
    done = sql.run(connection, _BURY, rows=sql.rows(pairs), **told)
    dug = sql.run(connection, _DIG_UNDER_KEY, rows=sql.rows(rows), **told)
    dug_elsewhere = sql.run(connection, _DIG_ELSEWHERE, rows=sql.rows(elsewhere), **told)
    return len(done) + len(dug) + len(dug_elsewhere)
