"""What happened, as frames: which copies were archived, how they changed, what was deleted. A rebuild replays them.

One frame holds all entries of a batch: they compress together. The content is JSON, as docs/pack-format.md describes it.
Version 2 carries a stamp, which puts the frames in order; version 1 had only the time, and stays readable.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any, NamedTuple
from uuid import UUID

import orjson

from archiver.store.content import MemoryContent
from archiver.store.encoder import Record
from archiver.store.frames import FrameKind

VERSION = 2


class Stamp(NamedTuple):
    """The position of a frame in the order of all frames, independent of the clock."""

    generation: int
    """Of the database: it rises with each rebuild, restore and adoption. Frames of version 1 are before all generations."""
    number: int
    """From the sequence `journal_numbers`, which never goes back, not even when a transaction is rolled back."""


BEFORE_STAMPS = Stamp(0, 0)
"""Of frames of version 1: among themselves they are ordered by time."""


@dataclass(frozen=True, slots=True)
class Origin:
    """The mailbox of a batch, with everything that a rebuild needs to know about it and its source."""

    source_id: UUID
    source_kind: str
    source_name: str
    mailbox_id: UUID
    address: str
    display_name: str | None = None
    provider_id: str | None = None

    def encode(self) -> dict[str, Any]:
        return {
            "source": {"id": str(self.source_id), "kind": self.source_kind, "name": self.source_name},
            "mailbox": {
                "id": str(self.mailbox_id),
                "address": self.address,
                "display_name": self.display_name,
                "provider_id": self.provider_id,
            },
        }

    @classmethod
    def decode(cls, data: dict[str, Any]) -> Origin:
        source, mailbox = data["source"], data["mailbox"]
        return cls(
            UUID(source["id"]),
            source["kind"],
            source["name"],
            UUID(mailbox["id"]),
            mailbox["address"],
            mailbox["display_name"],
            mailbox["provider_id"],
        )


class Occurrence(NamedTuple):
    """A copy as it was when it was archived."""

    sha256: bytes
    provider_key: str
    folder: str
    flags: tuple[str, ...]
    labels: tuple[str, ...]
    received_at: datetime | None
    recipients: tuple[str, ...] = ()

    def encode(self) -> list[Any]:
        fields = [self.sha256.hex(), self.provider_key, self.folder, self.flags, self.labels, self.received_at]
        return [*fields, self.recipients] if self.recipients else fields

    @classmethod
    def decode(cls, fields: list[Any]) -> Occurrence:
        sha256, key, folder, flags, labels, received_at, *more = fields
        when = datetime.fromisoformat(received_at) if received_at else None
        return cls(bytes.fromhex(sha256), key, folder, tuple(flags), tuple(labels), when, tuple(more[0]) if more else ())


@dataclass(frozen=True, slots=True)
class OccurrenceBatch:
    at: datetime
    origin: Origin
    run_id: UUID | None
    copies: tuple[Occurrence, ...]
    stamp: Stamp = BEFORE_STAMPS

    def record(self) -> Record:
        run_id = str(self.run_id) if self.run_id else None
        content = {"run_id": run_id, "copies": [copy.encode() for copy in self.copies], **self.origin.encode()}
        return _record(FrameKind.OCCURRENCE, self.at, self.stamp, content)

    @classmethod
    def decode(cls, content: bytes) -> OccurrenceBatch:
        data = _load(content)
        run_id = UUID(data["run_id"]) if data["run_id"] else None
        copies = tuple(Occurrence.decode(fields) for fields in data["copies"])
        return cls(_time(data), Origin.decode(data), run_id, copies, _stamp(data))


@dataclass(frozen=True, slots=True)
class Change:
    """What the source did to a copy; None leaves a field as it was."""

    kind: str
    provider_key: str
    folder: str | None = None
    flags: tuple[str, ...] | None = None
    labels: tuple[str, ...] | None = None
    new_provider_key: str | None = None


@dataclass(frozen=True, slots=True)
class Changes:
    at: datetime
    origin: Origin
    changes: tuple[Change, ...]
    stamp: Stamp = BEFORE_STAMPS

    def record(self) -> Record:
        entries = [
            {
                "kind": change.kind,
                "key": change.provider_key,
                "folder": change.folder,
                "flags": change.flags,
                "labels": change.labels,
                "new_key": change.new_provider_key,
            }
            for change in self.changes
        ]
        return _record(FrameKind.COPY_CHANGE, self.at, self.stamp, {"changes": entries, **self.origin.encode()})

    @classmethod
    def decode(cls, content: bytes) -> Changes:
        data = _load(content)
        changes = tuple(
            Change(
                entry["kind"],
                entry["key"],
                entry["folder"],
                None if entry["flags"] is None else tuple(entry["flags"]),
                None if entry["labels"] is None else tuple(entry["labels"]),
                entry["new_key"],
            )
            for entry in data["changes"]
        )
        return cls(_time(data), Origin.decode(data), changes, _stamp(data))


@dataclass(frozen=True, slots=True)
class Tombstones:
    """Copies that were permanently deleted, by whom and why.

    Written twice: as an intention before the deletion is committed, and as a confirmation afterwards. Only confirmed tombstones
    count, so a deletion that was rolled back never does. Those of version 1 were written once, and count.
    """

    at: datetime
    reason: str
    actor: str
    copies: tuple[tuple[UUID, str, bytes], ...]
    """Mailbox, provider key, and the SHA-256 of the message. Mailbox and SHA-256 identify what is deleted, whatever its key."""
    id: UUID | None = None
    stamp: Stamp = BEFORE_STAMPS
    is_confirmed: bool = False

    def record(self) -> Record:
        copies = [[str(mailbox_id), key, sha256.hex()] for mailbox_id, key, sha256 in self.copies]
        kind = FrameKind.TOMBSTONE_CONFIRMED if self.is_confirmed and self.id else FrameKind.TOMBSTONE
        content = {"id": str(self.id) if self.id else None, "reason": self.reason, "actor": self.actor, "copies": copies}
        return _record(kind, self.at, self.stamp, content)

    def mark(self) -> Tombstones:
        """Repeats the confirmation in few bytes, so that one damaged frame does not undo a deletion."""
        return replace(self, copies=(), is_confirmed=True)

    @classmethod
    def decode(cls, content: bytes) -> Tombstones:
        """Of a TOMBSTONE frame."""
        data = _load(content)
        copies = tuple((UUID(mailbox_id), key, bytes.fromhex(sha256)) for mailbox_id, key, sha256 in data["copies"])
        known_id = UUID(data["id"]) if data.get("id") else None
        return cls(_time(data), data["reason"], data["actor"], copies, known_id, _stamp(data), data["v"] == 1)

    @classmethod
    def decode_confirmed(cls, content: bytes) -> Tombstones:
        """Of a TOMBSTONE_CONFIRMED frame."""
        return replace(cls.decode(content), is_confirmed=True)


class LabelChange(NamedTuple):
    """A retention label that was put on a message, changed or removed."""

    sha256: bytes
    label: str
    is_removed: bool = False
    keep_until: datetime | None = None
    reason: str = ""


@dataclass(frozen=True, slots=True)
class LabelChanges:
    """What one person did to the labels of messages. Put on: written before the commit; removed: after it. So what a rebuild
    finds keeps at least what the database kept."""

    at: datetime
    by: str
    by_id: UUID | None
    changes: tuple[LabelChange, ...]
    stamp: Stamp = BEFORE_STAMPS

    def record(self) -> Record:
        entries = [[one.sha256.hex(), one.label, one.is_removed, one.keep_until, one.reason] for one in self.changes]
        content = {"by": self.by, "by_id": str(self.by_id) if self.by_id else None, "labels": entries}
        return _record(FrameKind.MESSAGE_LABELS, self.at, self.stamp, content)

    @classmethod
    def decode(cls, content: bytes) -> LabelChanges:
        data = _load(content)
        changes = tuple(
            LabelChange(bytes.fromhex(sha256), label, removed, datetime.fromisoformat(until) if until else None, reason)
            for sha256, label, removed, until, reason in data["labels"]
        )
        return cls(_time(data), data["by"], UUID(data["by_id"]) if data["by_id"] else None, changes, _stamp(data))


@dataclass(frozen=True, slots=True)
class Config:
    """A snapshot of the configuration: sources, mailboxes, users, grants. The newest one counts."""

    at: datetime
    tables: dict[str, list[dict[str, Any]]]
    stamp: Stamp = BEFORE_STAMPS
    archive_id: UUID | None = None
    """Of the archive that it is of; earlier versions did not write it."""

    def record(self) -> Record:
        archive = {"archive": str(self.archive_id)} if self.archive_id else {}
        return _record(FrameKind.CONFIG, self.at, self.stamp, {**archive, "tables": self.tables})

    @classmethod
    def decode(cls, content: bytes) -> Config:
        data = _load(content)
        archive = data.get("archive")
        return cls(_time(data), data["tables"], _stamp(data), UUID(archive) if archive else None)


def order_of(content: bytes) -> tuple[Stamp, datetime]:
    """The position of an entry of any kind in the journal; cheaper than decoding it."""
    data = _load(content)
    return _stamp(data), _time(data)


def _record(kind: FrameKind, at: datetime, stamp: Stamp, content: dict[str, Any]) -> Record:
    order = {"v": VERSION, "g": stamp.generation, "n": stamp.number} if stamp != BEFORE_STAMPS else {"v": 1}
    data = _dump({**order, "at": at, **content})
    return Record(kind, hashlib.sha256(data).digest(), MemoryContent(data))


def _dump(content: dict[str, Any]) -> bytes:
    try:
        return orjson.dumps(content)
    except TypeError:  # a lone surrogate, which is not valid text; `json` writes it as an escape
        return json.dumps(content, default=lambda value: value.isoformat()).encode()


def _load(content: bytes) -> dict[str, Any]:
    try:
        data = orjson.loads(content)
    except orjson.JSONDecodeError:
        data = json.loads(content)
    if data["v"] not in (1, VERSION):
        raise ValueError(f"a journal frame of version {data['v']}; this program reads versions 1 and {VERSION}")
    result: dict[str, Any] = data
    return result


def _stamp(data: dict[str, Any]) -> Stamp:
    return Stamp(data["g"], data["n"]) if data["v"] > 1 else BEFORE_STAMPS


def _time(data: dict[str, Any]) -> datetime:
    return datetime.fromisoformat(data["at"])
