"""Fetches one mailbox of the fake: folder by folder, batch by batch."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, replace

from connectors.base import Batch, FailedMessage, FolderListing, Json, Known, Skipped
from connectors.batching import Got, Packer
from connectors.fake import changes
from connectors.fake.changes import FoundFakeMessage
from connectors.fake.cursor import FakeCursor, read_cursor, state_key
from connectors.fake.large_messages import enlarge, spool_if_large
from connectors.fake.mail import FakeFolder
from connectors.fake.settings import FakeSettings, Trouble
from connectors.selection import date_rule, folder_rule, rules_digest
from connectors.spool import Spool

_KEYS_PER_QUESTION = 1000


@dataclass(frozen=True, slots=True)
class FakeMailbox:
    """A mailbox with its configured trouble."""

    address: str
    folders: tuple[FakeFolder, ...]
    settings: FakeSettings
    trouble: Trouble
    spool: Spool

    def batches(self, state: Mapping[str, Json], known: Known) -> Iterator[Batch]:
        for folder in self.folders:
            yield from self._folder(folder, read_cursor(state, self.address, folder.name), known)

    def refetch(self, keys: Collection[str]) -> Iterator[Batch]:
        """The messages with these keys, once each. A message that no longer exists has failed."""
        packer = Packer(self.settings.batch_messages)
        for key in dict.fromkeys(keys):
            if key in self.trouble.gap and not self.trouble.gap_refetched:
                continue
            got = self._refetch_one(key)
            if not packer.room_for(got):
                yield packer.take()
            packer.put(got)
        if not packer.empty:
            yield packer.take()

    def _folder(self, folder: FakeFolder, stored: FakeCursor, known: Known) -> Iterator[Batch]:
        rules = rules_digest(self.settings)
        cursor = stored if stored.rules == rules else replace(stored, rules=rules, position=0)
        first_run = cursor.listed < 0
        absent = frozenset() if first_run else changes.absent(self.trouble)
        arrived = {} if first_run else changes.arrived(self.trouble, self.folders, folder)
        reported = "" if first_run else changes.digest(self.trouble)
        news = changes.changes(self.trouble, folder) if reported != cursor.reported else ()
        packer = Packer(self.settings.batch_messages)
        for start in range(cursor.position, folder.count(), _KEYS_PER_QUESTION):
            end = min(start + _KEYS_PER_QUESTION, folder.count())
            yield from self._stretch(folder, range(start, end), cursor, packer, known, absent)
        if reported != cursor.reported:
            yield from self._strangers(folder, arrived, packer, known)
        keys = (folder.key(position) for position in range(folder.count()))
        listing = FolderListing(folder.name, (*(key for key in keys if key not in absent), *arrived))
        cursor = replace(cursor, position=folder.count(), reported=reported, listed=len(listing.provider_keys))
        if cursor != stored or not packer.empty or self.settings.list_always:
            yield packer.take(self._state(folder, cursor), listing, news)

    def _strangers(
        self, folder: FakeFolder, arrived: Mapping[str, FoundFakeMessage], packer: Packer, known: Known
    ) -> Iterator[Batch]:
        """Messages that were moved here and are not archived under their old key either."""
        old_keys = {found.key: new_key for new_key, found in arrived.items()}
        held = known([*arrived, *old_keys])
        for old_key, new_key in old_keys.items():
            if old_key not in held and new_key not in held:
                found = arrived[new_key]
                got = self._download(found.folder, found.position)
                if not packer.room_for(got):
                    yield packer.take()
                packer.put(replace(got, provider_key=new_key, folder=folder.name))

    def _stretch(
        self, folder: FakeFolder, positions: range, cursor: FakeCursor, packer: Packer, known: Known, absent: Collection[str]
    ) -> Iterator[Batch]:
        """Fetches a range of positions. A single lookup finds those that are already archived."""
        unwanted = folder_rule(self.settings, folder.name, folder.role)
        keys = [folder.key(position) for position in positions]
        held = known(keys) if unwanted is None else set()
        for position, key in zip(positions, keys, strict=True):
            if key in held or key in absent:
                continue
            rule = unwanted or date_rule(self.settings, folder.received_at(position))
            if rule:
                packer.skip(Skipped(key, rule, folder.name))
            elif key not in self.trouble.gap:
                got = self._download(folder, position)
                if not packer.room_for(got):
                    yield packer.take(self._state(folder, replace(cursor, position=position)))
                packer.put(got)
            if packer.full:
                yield packer.take(self._state(folder, replace(cursor, position=position + 1)))
        if len(held) == _KEYS_PER_QUESTION:
            yield packer.take(self._state(folder, replace(cursor, position=positions.stop)))

    def _download(self, folder: FakeFolder, position: int, again: bool = False) -> Got:
        key = folder.key(position)
        reason = folder.unreadable(position)
        if reason:
            return FailedMessage(key, reason, folder.name)
        if not (again and self.trouble.poison_heals):
            if key in self.trouble.poison:
                return FailedMessage(key, "the server can't read this message", folder.name)
            if key in self.trouble.poison_with_bytes:
                data = folder.message(position).data
                return FailedMessage(key, "the server sent fewer bytes than it announced", folder.name, data)
        message = folder.message(position)
        if self.trouble.large_bytes and key == (self.trouble.large_key or self.folders[0].key(0)):
            message = enlarge(self.spool, message, self.trouble.large_bytes)
        return spool_if_large(self.spool, message)

    def _refetch_one(self, key: str) -> Got:
        moved = {changes.moved_key(old, target): old for old, target in self.trouble.moved.items()}
        found = changes.find(self.folders, moved.get(key, key))
        if found is None:
            return FailedMessage(key, "no longer at the source")
        return replace(self._download(found.folder, found.position, again=True), provider_key=key)

    def _state(self, folder: FakeFolder, cursor: FakeCursor) -> dict[str, Json]:
        return {state_key(self.address, folder.name): cursor.as_json()}
