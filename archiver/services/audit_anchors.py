"""The head of the audit log, kept where the database's owner can't change it: in the packs, in a file, and at a syslog server.

An anchor is a MAC over the number and hash of the last entry, made with the storage key. Whoever rewrites the log, or cuts its
end off, can't make an anchor that fits. (docs/access.md says why the key is not in the database.)
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path

from sqlalchemy import Connection, Engine, text

from archiver.db import autocommit
from archiver.logs import get_logger
from archiver.services import audit, batch_sql, syslog
from archiver.services.principal import LOCAL_OPERATOR, Principal
from archiver.store.anchors import Anchor
from archiver.store.archive import Archive, entries
from archiver.store.errors import Damage
from archiver.store.frames import Kind
from archiver.store.pack import Place

FILE = "audit-head.json"
_HEAD = text("SELECT id, hash FROM audit_log ORDER BY id DESC LIMIT 1")
_HASH = text("SELECT hash FROM audit_log WHERE id = :id")

_WATCHMAN = replace(LOCAL_OPERATOR, name="archiver", rights=frozenset())
"""Nobody did it: a start has found it."""

log = get_logger("audit")


@dataclass(frozen=True, slots=True)
class Anchors:
    engine: Engine
    archive: Archive
    data: Path
    syslog_url: str | None = None

    def write(self, accepts: str | None = None) -> Anchor | None:
        """Anchors the head; None if it is anchored already."""
        with self.engine.connect() as connection:
            head = connection.execute(_HEAD).one_or_none()
        last = self._read_file()
        if head is None or (accepts is None and last is not None and last.entry == head.id and last.hash == bytes(head.hash)):
            return None
        with autocommit(self.engine) as connection:
            audit.flush(connection)  # an anchor must never be more durable than what it anchors
        anchor = Anchor.make(self.archive.keys, datetime.now(UTC), head.id, bytes(head.hash), accepts)
        with self.engine.begin() as connection:
            _append(connection, self.archive, anchor)
        self._write_file(anchor)
        if self.syslog_url is not None:
            syslog.send(self.syslog_url, f"audit head {anchor.head} key {anchor.key} mac {anchor.mac.hex()}")
        return anchor

    def check(self) -> Anchor | None:
        """The newest anchor, if the log does not fit it: its end was cut off, or it was written anew. That goes on record."""
        newest = self._read_file() or max(self.read_all(), key=lambda anchor: anchor.at, default=None)
        if newest is None:
            return None
        with self.engine.begin() as connection:
            found = connection.execute(_HASH, {"id": newest.entry}).scalar_one_or_none()
            if found is not None and bytes(found) == newest.hash:
                return None
            head = connection.execute(_HEAD).one_or_none()
            there = f"{head.id}:{bytes(head.hash).hex()}" if head else "0:"
            audit.record(connection, _WATCHMAN, "audit.gap_found", "audit", anchored=newest.head, found=there)
        log.error("audit_log_cut", anchored=newest.head, anchored_at=newest.at.isoformat(), found=there)
        return newest

    def accept(self, who: Principal, reason: str) -> Anchor:
        """Declares that what the anchors so far say of the log counts no more. Takes the storage key, and is on record."""
        with self.engine.begin() as connection:
            audit.record(connection, who, "audit.accepted", "audit", reason=reason)
        anchor = self.write(accepts=reason)
        assert anchor is not None
        return anchor

    def read_all(self) -> Iterator[Anchor]:
        """Those in the packs, in no particular order. A frame that is damaged is for `archiver verify` to report."""
        for pack_id in self.archive.backend.packs():
            try:
                pack = self.archive.backend.open(pack_id)
                found = [entry for entry in entries(pack, self.archive.frames) if entry.kind == Kind.AUDIT_ANCHOR]
            except Damage:
                continue
            for entry in found:
                try:
                    yield Anchor.decode(self.archive.frames.open(Place(pack_id, entry.offset, entry.length)).bytes())
                except (Damage, ValueError) as error:
                    log.warning("audit_anchor_unreadable", pack=pack.name, offset=entry.offset, error=str(error))

    def _read_file(self) -> Anchor | None:
        """So that not all packs have to be read. A file that is not genuine counts as none."""
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
    batch_sql.run(connection, batch_sql.ADD_PACK, id=written.batch.pack_id, name=written.batch.pack_name)
    batch_sql.record_pack(connection, written)
