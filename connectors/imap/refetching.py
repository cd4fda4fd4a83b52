"""Fetches single messages again by key: dead letters and gaps."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass, field

from connectors.base import BATCH_MESSAGES, Batch, Context, FailedMessage
from connectors.batching import Packer
from connectors.errors import Throttled
from connectors.imap.bodies import Again, Bodies, Got
from connectors.imap.errors import CommandRefused, Dropped, FolderClosed, FolderGone, throttling
from connectors.imap.folders import ImapFolder
from connectors.imap.keys import Wanted, folder_part, kind_of_ids, parse_key
from connectors.imap.message import MessageFetcher
from connectors.imap.plan import wanted_folders
from connectors.imap.session import ImapSession
from connectors.imap.settings import ImapSettings
from connectors.imap.wire import quoted

_FEW = 10
_WINDOW = 1000


@dataclass(slots=True)
class ImapRefetch:
    session: ImapSession
    settings: ImapSettings
    context: Context
    _packer: Packer = field(default_factory=lambda: Packer(BATCH_MESSAGES))
    _left: dict[str, Wanted | None] = field(default_factory=dict)
    """The keys that were neither delivered nor given up yet."""
    _suspects: dict[tuple[str, int], dict[int, int]] = field(default_factory=dict)

    def batches(self, keys: Collection[str]) -> Iterator[Batch]:
        """One result per key: the message, or why there is none."""
        self._left = {key: parse_key(key) for key in keys}
        if not self._left:
            return
        try:
            for folder in wanted_folders(self.session.folders(), self.session.wire.capabilities, self.settings):
                yield from self._folder(folder)
        except Throttled:
            if not self._packer.empty:  # otherwise a small quota could prevent any progress
                yield self._packer.take()
            raise
        for key in self._left:
            yield from self._put(FailedMessage(key, "no longer at the source"))
        if not self._packer.empty:
            yield self._packer.take()

    def _folder(self, folder: ImapFolder) -> Iterator[Batch]:
        while True:
            names = ("", folder_part(folder.name))
            wanted = {key: parsed for key, parsed in self._left.items() if parsed and parsed.folder in names}
            if not wanted:
                return
            try:
                for key, got in self._messages(folder, wanted):
                    self._left.pop(key, None)
                    if got is not None:
                        yield from self._put(got)
                return
            except Again:
                self.context.progress()
            except FolderGone:
                return
            except Dropped as dropped:
                self.session.on_disconnect(dropped)
            except (FolderClosed, CommandRefused) as closed:
                if isinstance(closed, CommandRefused) and (pause := throttling(closed.code, closed.text)):
                    raise pause from closed
                for key in wanted:
                    self._left.pop(key)
                    yield from self._put(FailedMessage(key, f"the folder can't be opened: {closed}", folder.name))
                return

    def locate(self, folder: ImapFolder, wanted: dict[str, Wanted]) -> tuple[MessageFetcher, dict[int, str]]:
        """Opens the folder; UID → key of the messages that are in it."""
        opened = self.session.examine(folder)
        wire = self.session.wire
        ids = kind_of_ids(wire.capabilities, wire.server_name)
        asker = MessageFetcher(folder.name, opened.uid_validity, ids)
        uids = {parsed.uid: key for key, parsed in wanted.items() if parsed.uid and parsed.validity == opened.uid_validity}
        values = {parsed.id: key for key, parsed in wanted.items() if parsed.id}
        if values and ids:
            uids |= self._find(asker, values)
        return asker, uids

    def _messages(self, folder: ImapFolder, wanted: dict[str, Wanted]) -> Iterator[tuple[str, Got]]:
        asker, uids = self.locate(folder, wanted)
        wire = self.session.wire
        metas = [meta._replace(key=uids[meta.uid]) for meta in asker.metas(wire, sorted(uids))]
        suspects = self._suspects.setdefault((folder.name, asker.validity), {})
        for meta, got in Bodies(self.session, self.context, suspects).fetch(metas):
            yield meta.key, got or meta.failed("no longer at the source")

    def _find(self, asker: MessageFetcher, values: dict[str, str]) -> dict[int, str]:
        """UID → key. A few ids are searched for; for many, reading all ids is faster."""
        if len(values) <= _FEW:
            found = {}
            for value, key in values.items():
                for uid in self.session.search(asker.ids.encode() + b" " + quoted(value)):
                    found[uid] = key
                    break
            return found
        found = {}
        for window in self.session.search(b"ALL").windows(min(_WINDOW, self.session.wire.message_limit)):
            for uid, value in asker.id_values(self.session.wire, window).items():
                if value in values:
                    found[uid] = values.pop(value)
            self.context.progress()
        return found

    def _put(self, got: Got) -> Iterator[Batch]:
        if got is None:
            return
        if not self._packer.room_for(got):
            yield self._packer.take()
        self._packer.put(got)
