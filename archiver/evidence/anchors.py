"""The head of the audit log, stored where the database's owner can't change it: in the packs, a file and a syslog server.

An anchor is a MAC over the number and hash of the last entry, computed with the storage key. An attacker who rewrites or
truncates the log can't forge a matching anchor. (docs/access.md explains why the key is not in the database.)
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path

from sqlalchemy import Connection, Engine

from archiver.access import audit
from archiver.access.principal import LOCAL_OPERATOR, Principal
from archiver.db import sql
from archiver.db.engine import autocommit
from archiver.evidence import syslog
from archiver.logs import get_logger
from archiver.store.anchors import Anchor
from archiver.store.archive import Archive, entries
from archiver.store.errors import Damage
from archiver.store.frames import FrameKind
from archiver.store.pack import PackLocation
from archiver.sync.ingest import statements

FILE = "audit-head.json"
_HEAD = "SELECT id, hash FROM audit_log ORDER BY id DESC LIMIT 1"
_HASH = "SELECT hash FROM audit_log WHERE id = :id"

_SYSTEM = replace(LOCAL_OPERATOR, name="archiver", rights=frozenset())
"""The program itself: the check at the start found the gap."""

log = get_logger("audit")


@dataclass(frozen=True, slots=True)
class AuditHead:
    id: int
    hash: bytes


@dataclass(frozen=True, slots=True)
class Anchors:
    engine: Engine
    archive: Archive
    data: Path
    syslog_url: str | None = None

    def write(self, accepts: str | None = None) -> Anchor | None:
        """Anchors the head; None if it is already anchored."""
        with self.engine.connect() as connection:
            head = sql.query_optional(connection, _HEAD, AuditHead)
        last = self._read_file()
        if head is None or (accepts is None and last is not None and last.entry == head.id and last.hash == head.hash):
            return None
        with autocommit(self.engine) as connection:
            audit.flush(connection)  # an anchor must never be more durable than what it anchors
        anchor = Anchor.create(self.archive.keys, datetime.now(UTC), head.id, head.hash, accepts)
        with self.engine.begin() as connection:
            _append(connection, self.archive, anchor)
        self._write_file(anchor)
        if self.syslog_url is not None:
            syslog.send(self.syslog_url, f"audit head {anchor.head} key {anchor.key} mac {anchor.mac.hex()}")
        return anchor

    def check(self) -> Anchor | None:
        """The newest anchor, if the log does not match it: it was truncated or rewritten. That is recorded in the log, too."""
        newest = self._read_file() or max(self.read_all(), key=lambda anchor: anchor.at, default=None)
        if newest is None:
            return None
        with self.engine.begin() as connection:
            if sql.query_optional(connection, _HASH, bytes, id=newest.entry) == newest.hash:
                return None
            head = sql.query_optional(connection, _HEAD, AuditHead)
            there = f"{head.id}:{head.hash.hex()}" if head else "0:"
            audit.record(connection, _SYSTEM, "audit.gap_found", "audit", anchored=newest.head, found=there)
        log.error("audit_log_cut", anchored=newest.head, anchored_at=newest.at.isoformat(), found=there)
        return newest

    def accept(self, principal: Principal, reason: str) -> Anchor:
        """Declares that the log need not match its anchors so far. Requires the storage key, and is itself audited."""
        with self.engine.begin() as connection:
            audit.record(connection, principal, "audit.accepted", "audit", reason=reason)
        anchor = self.write(accepts=reason)
        assert anchor is not None
        return anchor

    def read_all(self) -> Iterator[Anchor]:
        """The anchors in the packs, in no particular order. Damaged frames are reported by `archiver verify`."""
        for pack_id in self.archive.backend.packs():
            try:
                pack = self.archive.backend.open(pack_id)
                found = [entry for entry in entries(pack, self.archive.frames) if entry.kind == FrameKind.AUDIT_ANCHOR]
            except Damage:
                continue
            for entry in found:
                try:
                    yield Anchor.decode(self.archive.frames.open(PackLocation(pack_id, entry.offset, entry.length)).bytes())
                except (Damage, ValueError) as error:
                    log.warning("audit_anchor_unreadable", pack=pack.name, offset=entry.offset, error=str(error))

    def _read_file(self) -> Anchor | None:
        """Avoids reading all packs. A forged file counts as missing."""
        try:
            anchor = Anchor.decode((self.data / FILE).read_bytes())
        except (FileNotFoundError, ValueError):
            return None
        return anchor if anchor.is_genuine(self.archive.keys) else None

    def _write_file(self, anchor: Anchor) -> None:
        temporary = self.data / f".{FILE}.{os.getpid()}"
        descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        with os.fdopen(descriptor, "wb") as file:
            file.write(anchor.encode() + b"\n")
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(self.data / FILE)


def _append(connection: Connection, archive: Archive, anchor: Anchor) -> None:
    written = archive.append([anchor.record()])
    sql.run(connection, statements.ADD_PACK, id=written.batch.pack_id, name=written.batch.pack_name)
    statements.record_pack(connection, written)
