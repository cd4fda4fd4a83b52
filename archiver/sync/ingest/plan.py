"""Decides what is new in a batch. No I/O except reading the messages themselves."""

from __future__ import annotations

import hashlib
from collections.abc import Container, Iterable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from datetime import datetime
from typing import NamedTuple
from uuid import UUID

from archiver.db.ids import message_uuid
from archiver.store.content import MemoryContent, Spooled, sha256_of
from archiver.store.encoder import Record
from archiver.store.frames import FrameKind
from archiver.store.journal import Change, Changes, Occurrence, OccurrenceBatch, Origin, Stamp
from archiver.store.recipe import CutMessage, cut_message
from archiver.sync.ingest.provider_keys import fit_key, version_key
from connectors.base import Batch, ChangeKind, CopyChange, FailedMessage, RawMessage

MAX_FOLDER_CHARS = 600


@dataclass(frozen=True, slots=True)
class KnownCopy:
    """A copy of this mailbox, as the archive has it."""

    provider_key: str
    message_id: UUID | None
    folder: str
    flags: list[str]
    labels: list[str]
    gone_at: datetime | None
    deleted_at: datetime | None
    deleted_sha256: bytes | None


class DeletedContent(NamedTuple):
    """Was deleted in this mailbox, and stays deleted there."""

    deleted_sha256: bytes
    deleted_reason: str | None


class StoredObject(NamedTuple):
    """Is in the packs, and need not be written again."""

    sha256: bytes
    kind: str


class Item(NamedTuple):
    """A message of the batch with its bytes."""

    key: str
    message: RawMessage
    raw: MemoryContent | Spooled
    sha256: bytes

    @property
    def folder(self) -> str:
        return self.message.folder[:MAX_FOLDER_CHARS]

    def occurrence(self) -> Occurrence:
        message = self.message
        fields = (message.flags, message.labels, message.received_at, message.recipients)
        return Occurrence(self.sha256, self.key, self.folder, *fields)


@dataclass(frozen=True, slots=True)
class Intake:
    """The messages of a batch that could be read, and those that could not."""

    items: tuple[Item, ...]
    failed: tuple[FailedMessage, ...]

    @property
    def failed_hashes(self) -> list[bytes]:
        return [hashlib.sha256(failed.data).digest() for failed in self.failed if failed.data is not None]

    def failed_records(self, stored: set[StoredObject]) -> list[Record]:
        """The bytes of dead letters are stored like those of messages. Adds to `stored`."""
        records = []
        for failed in self.failed:
            if failed.data is not None:
                sha256 = hashlib.sha256(failed.data).digest()
                if StoredObject(sha256, FrameKind.MESSAGE.label) not in stored:
                    stored.add(StoredObject(sha256, FrameKind.MESSAGE.label))
                    records.append(Record(FrameKind.MESSAGE, sha256, MemoryContent(failed.data)))
        return records


def read_batch(batch: Batch, opened: ExitStack) -> Intake:
    """Hashes every message. Spooled files stay open until `opened` is closed."""
    items: list[Item] = []
    failed = list(batch.failed)
    for message in batch.messages:
        try:
            raw = MemoryContent(message.data) if message.data is not None else opened.enter_context(_spooled(message))
            sha256 = hashlib.sha256(raw.data).digest() if isinstance(raw, MemoryContent) else sha256_of(raw)
        except OSError as error:
            reason = f"the spooled file can't be read: {error.strerror or error}"
            failed.append(FailedMessage(message.provider_key, reason, message.folder))
            continue
        items.append(Item(fit_key(message.provider_key), message, raw, sha256))
    return Intake(tuple(items), tuple(failed))


def _spooled(message: RawMessage) -> Spooled:
    assert message.path is not None, "a message is either in memory or in a file"
    return Spooled(message.path)


def version_keys(items: Iterable[Item], known: Mapping[str, KnownCopy]) -> set[str]:
    """The keys under which bytes that differ from the known copy would be stored."""
    return {
        version_key(item.key, item.sha256) for item in items if item.key in known and _is_other(known[item.key], item.sha256)
    }


def _is_other(copy: KnownCopy, sha256: bytes) -> bool:
    """Whether the known copy belongs to another message. False for an old deletion that did not record what was deleted."""
    if copy.deleted_at is not None:
        return copy.deleted_sha256 is not None and copy.deleted_sha256 != sha256
    return copy.message_id != message_uuid(sha256)


class Sorted(NamedTuple):
    """The messages of a batch, sorted into new copies and deleted ones."""

    new: list[Item]
    """New copies. Different bytes under a known key get a key of their own."""
    left_out: list[Item]
    """Deleted in this mailbox, whatever key they have now."""


def sort_items(items: Iterable[Item], known: Mapping[str, KnownCopy], deleted: Container[bytes]) -> Sorted:
    """`deleted`: the hashes that were deleted in this mailbox."""
    taken: dict[str, UUID | None] = {key: copy.message_id for key, copy in known.items()}
    found = Sorted([], [])
    for item in items:
        copy = known.get(item.key)
        is_other = copy is not None and _is_other(copy, item.sha256)
        if item.sha256 in deleted or (copy is not None and copy.deleted_at is not None and not is_other):
            found.left_out.append(item)
            continue
        message_id = message_uuid(item.sha256)
        if is_other or (item.key in taken and taken[item.key] != message_id):
            item = item._replace(key=version_key(item.key, item.sha256))
        if item.key not in taken:
            taken[item.key] = message_id
            found.new.append(item)
    return found


def effective_changes(batch: Batch, items: Iterable[Item], known: Mapping[str, KnownCopy]) -> list[Change]:
    """The changes that have an effect, at most one per copy. A gone copy that is delivered again is back."""
    arriving = {item.key for item in items}
    merged: dict[str, Change] = {}
    for change in batch.changes:
        key = fit_key(change.provider_key)
        merged[key] = _merge(merged.get(key), change, key)
    for key in arriving & known.keys():
        if known[key].gone_at is not None and key not in merged:
            merged[key] = Change(ChangeKind.BACK, key)
    targets: set[str] = set()
    result = []
    for key, merged_change in merged.items():
        target = merged_change.new_provider_key
        if target is not None and target in targets:  # two copies can't become one
            merged_change = Change(ChangeKind.GONE, key)
        if key in arriving - known.keys() or (key in known and _differs(merged_change, known[key])):
            result.append(merged_change)
            if target is not None:
                targets.add(target)
    return sorted(result, key=lambda change: change.provider_key)


def _merge(before: Change | None, change: CopyChange, key: str) -> Change:
    folder = change.folder[:MAX_FOLDER_CHARS] if change.folder is not None else None
    new_key = fit_key(change.new_provider_key) if change.new_provider_key is not None else None
    kind: str = change.kind
    if before is None:
        return Change(kind, key, folder, change.flags, change.labels, new_key)
    return Change(
        kind if kind in (ChangeKind.GONE, ChangeKind.BACK) else before.kind,
        key,
        before.folder if folder is None else folder,
        before.flags if change.flags is None else change.flags,
        before.labels if change.labels is None else change.labels,
        before.new_provider_key if new_key is None else new_key,
    )


def _differs(change: Change, copy: KnownCopy) -> bool:
    if copy.deleted_at is not None:
        return False
    return (
        (change.kind == ChangeKind.GONE and copy.gone_at is None)
        or (change.kind == ChangeKind.BACK and copy.gone_at is not None)
        or (change.folder is not None and change.folder != copy.folder)
        or (change.flags is not None and list(change.flags) != copy.flags)
        or (change.labels is not None and list(change.labels) != copy.labels)
        or (change.new_provider_key is not None and change.new_provider_key != change.provider_key)
    )


class PreparedMessage(NamedTuple):
    """A new message, with its large parts cut out where that saves space."""

    item: Item
    cut: CutMessage | None

    @property
    def part_hashes(self) -> set[bytes]:
        return {sha256 for sha256, _ in self.cut.parts} if self.cut else set()

    def records(self, stored: set[StoredObject]) -> list[Record]:
        """The records to write: neither those already stored nor those returned earlier. Adds to `stored`."""
        result = []
        if self.cut:
            for (sha256, content), cut in zip(self.cut.parts, self.cut.cuts, strict=True):
                if StoredObject(sha256, FrameKind.PART.label) not in stored:
                    stored.add(StoredObject(sha256, FrameKind.PART.label))
                    result.append(Record(FrameKind.PART, sha256, content, is_text=cut.lines is None))
        if StoredObject(self.item.sha256, FrameKind.MESSAGE.label) not in stored:
            stored.add(StoredObject(self.item.sha256, FrameKind.MESSAGE.label))
            result.append(
                Record(FrameKind.MESSAGE, self.item.sha256, self.cut or self.item.raw, is_recipe=self.cut is not None)
            )
        return result


def prepare(items: Iterable[Item]) -> list[PreparedMessage]:
    """Each message once, in order of arrival."""
    once = {item.sha256: item for item in reversed(list(items))}
    return [PreparedMessage(item, cut_message(item.raw)) for item in reversed(once.values())]


@dataclass(frozen=True, slots=True)
class KnownContent:
    """What the archive has of a batch already."""

    copies: Mapping[str, KnownCopy]
    """By provider key."""
    messages: set[bytes]
    deleted: Mapping[bytes, str | None]
    """What was deleted in this mailbox, with the reason."""


@dataclass(frozen=True, slots=True)
class BatchPlan:
    """What storing a batch will do."""

    copies: list[Item]
    left_out: list[Item]
    buried: list[Item]
    """Of those left out, each that has no row yet, once."""
    changes: list[Change]
    prepared: list[PreparedMessage]
    """The new messages of the copies, sorted by hash."""

    @property
    def hashes(self) -> set[bytes]:
        """Of all messages and parts that may have to be written."""
        return {one.item.sha256 for one in self.prepared}.union(*(one.part_hashes for one in self.prepared))

    def journal(self, at: datetime, origin: Origin, run_id: UUID | None, stamp: Stamp) -> list[Record]:
        found = []
        occurrences = tuple(item.occurrence() for item in (*self.copies, *self.buried))
        if occurrences:
            found.append(OccurrenceBatch(at, origin, run_id, occurrences, stamp).record())
        if self.changes:
            found.append(Changes(at, origin, tuple(self.changes), stamp).record())
        return found


def plan_batch(batch: Batch, intake: Intake, known: KnownContent) -> BatchPlan:
    copies, left_out = sort_items(intake.items, known.copies, known.deleted)
    buried = {item.key: item for item in left_out if item.key not in known.copies}
    changes = effective_changes(batch, intake.items, known.copies)
    prepared = sorted(prepare(item for item in copies if item.sha256 not in known.messages), key=lambda one: one.item.sha256)
    return BatchPlan(copies, left_out, list(buried.values()), changes, prepared)
