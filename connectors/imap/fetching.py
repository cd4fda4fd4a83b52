"""Fetches one mailbox from an IMAP server: folder by folder, batch by batch."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from connectors.base import BATCH_MESSAGES, Batch, ChangeKind, Context, CopyChange, FolderListing, Json, Known, Skipped
from connectors.batching import Packer
from connectors.errors import Throttled, Unavailable
from connectors.imap.bodies import Again, Bodies, Got
from connectors.imap.cursor import ImapCursor, folder_of, read_cursor, state_key
from connectors.imap.errors import Broken, CommandRefused, Dropped, FolderClosed, FolderGone, throttling
from connectors.imap.folders import ImapFolder, Status
from connectors.imap.keys import GMAIL, Keys, id_key, uid_key
from connectors.imap.message import MessageFetcher, Meta
from connectors.imap.plan import finish_cursor, needs_listing, once_each, start_cursor, wanted_folders
from connectors.imap.session import ImapSession
from connectors.imap.settings import ImapSettings
from connectors.imap.uids import Uids
from connectors.selection import FolderRole, date_rule, folder_rule, rules_digest

_WINDOW = 1000
_ID_WINDOW = 5000
_CHANGES = 1000
_NAMES = 5
_NEWEST = 100
_MEASURED_BYTES = 2 << 20
_SLOW_BYTES_PER_SECOND = 3 << 20

Step = Got | Skipped


@dataclass(slots=True)
class ImapMailboxFetch:
    """Fetches everything new since a state."""

    address: str
    session: ImapSession
    settings: ImapSettings
    context: Context
    known: Known
    day: int = field(default_factory=lambda: int(time.time() // 86400))
    _cursors: dict[str, ImapCursor] = field(default_factory=dict)
    _suspects: dict[tuple[str, int], dict[int, int]] = field(default_factory=dict)

    def batches(self, state: Mapping[str, Json]) -> Iterator[Batch]:
        listed = self.session.folders()
        chosen = wanted_folders(listed, self.session.wire.capabilities, self.settings)
        self.context.progress(0, sum(folder.status.messages for folder in chosen if folder.status))
        self._cursors = {folder.name: read_cursor(state, self.address, folder.name) for folder in chosen}
        for folder in chosen:
            if folder.role in (FolderRole.INBOX, FolderRole.SENT) or "\\all" in folder.attributes:
                yield from self._newest(folder)
        closed = []
        for folder in chosen:
            try:
                yield from self._folder(folder)
            except FolderClosed as reason:
                closed.append(str(reason))
        yield from self._gone_folders(state, {folder.name for folder in listed})
        if closed:
            named = "; ".join(closed[:_NAMES]) + (f" and {len(closed) - _NAMES} more" if len(closed) > _NAMES else "")
            raise Unavailable(
                f"{len(closed)} of {len(chosen)} folders can't be opened (exclude them with folders_out): {named}"
            )

    def _newest(self, folder: ImapFolder) -> Iterator[Batch]:
        """The newest mail of a long folder comes first, so that people see at once that the source works."""
        try:
            yield from FolderFetch(self, folder).newest()
        except Dropped as dropped:
            self.session.on_disconnect(dropped)
        except (Again, FolderGone, FolderClosed, CommandRefused):
            self.context.progress()  # what is wrong with the folder is reported when its turn comes

    def _gone_folders(self, state: Mapping[str, Json], names: set[str]) -> Iterator[Batch]:
        """Reports everything in them as gone at the source; it stays in the archive."""
        for key, value in state.items():
            name = folder_of(key, self.address)
            if name is not None and value is not None and name not in names:
                yield Batch(listings=(FolderListing(name, ()),), state={key: None})

    def _folder(self, folder: ImapFolder) -> Iterator[Batch]:
        """Fetches the folder completely, reconnecting as often as necessary."""
        while True:
            try:
                yield from FolderFetch(self, folder).batches()
                return
            except Again:
                self.context.progress()
            except FolderGone:
                return  # the next listing will lack it, and report that
            except Dropped as dropped:
                self.session.on_disconnect(dropped)
            except CommandRefused as refused:
                reason = f"{folder.name}: {refused}"
                raise throttling(refused.code, refused.text) or FolderClosed(reason) from refused

    def cursor(self, folder: ImapFolder) -> ImapCursor:
        return self._cursors[folder.name]

    def moved(self, folder: ImapFolder, cursor: ImapCursor) -> dict[str, Json]:
        """The state that is true once its batch is stored; also remembered here."""
        self._cursors[folder.name] = cursor
        return {state_key(self.address, folder.name): cursor.as_json()}

    def suspects(self, folder: ImapFolder, validity: int) -> dict[int, int]:
        return self._suspects.setdefault((folder.name, validity), {})


class FolderFetch:
    """One pass over one folder: what is new, what has changed and, after a full listing, everything there is."""

    def __init__(self, mailbox: ImapMailboxFetch, folder: ImapFolder) -> None:
        self._mailbox, self._folder = mailbox, folder
        self._session, self._settings = mailbox.session, mailbox.settings
        self._unwanted = folder_rule(mailbox.settings, folder.name, folder.role)
        self._packer = Packer(BATCH_MESSAGES)
        self._at: ImapCursor | None = None
        """The cursor that is true once the packer's content is stored; None while reading messages before our position."""
        self._is_ahead = False
        """The messages being read come before their turn."""
        self._vanished: set[int] = set()
        self._endings: list[str] = []
        """The ids of the messages passed so far, if keys are built from ids."""
        self._gone_endings: set[str] = set()

    def newest(self) -> Iterator[Batch]:
        """The last messages of a folder that was never read and has many more."""
        cursor, status = self._mailbox.cursor(self._folder), self._folder.status
        if self._unwanted or cursor.uid or cursor.ahead or status is None or status.messages <= 2 * _NEWEST:
            return
        cursor, opened = self._open(cursor)
        newest = self._session.search(b"%d:*" % max(1, opened.messages - _NEWEST + 1))
        if newest and not cursor.uid:
            self._at, self._is_ahead = replace(cursor, ahead=newest.ranges[0][0]), True
            try:
                yield from self._walk(newest)
            except Throttled:
                if not self._packer.empty:
                    yield self._take()
                raise
            yield self._take()

    def batches(self) -> Iterator[Batch]:
        cursor = self._mailbox.cursor(self._folder)
        if cursor.is_unchanged(self._folder.status, rules_digest(self._settings), self._mailbox.day):
            return
        cursor, opened = self._open(cursor)
        try:
            yield from self._inspect(cursor, opened)
        except (Again, Dropped, Throttled):
            if not self._packer.empty:  # what arrived before the error is not fetched again
                yield self._take()
            raise

    def _open(self, cursor: ImapCursor) -> tuple[ImapCursor, Status]:
        opened = self._session.examine(self._folder)
        wire = self._session.wire
        cursor = start_cursor(cursor, opened, rules_digest(self._settings), wire.capabilities, wire.server_name)
        self._asker = MessageFetcher(self._folder.name, opened.uid_validity, "" if self._unwanted else cursor.ids)
        suspects = self._mailbox.suspects(self._folder, opened.uid_validity)
        self._bodies = Bodies(self._session, self._mailbox.context, suspects)
        return cursor, opened

    def _inspect(self, cursor: ImapCursor, opened: Status) -> Iterator[Batch]:
        first = cursor.count < 0
        new = Uids() if first else self._session.search(b"UID %d:*" % (cursor.uid + 1)).after(cursor.uid)
        listed = None
        if needs_listing(cursor, opened, len(new), self._mailbox.day):
            listed = self._session.search(b"ALL")
            if opened.messages and not listed:
                raise Broken(f"{self._folder.name} has {opened.messages} messages, but the server lists none of them")
            new = listed.after(cursor.uid)
        if not first and not self._unwanted:
            yield from self._changes(cursor, opened)
            if listed is not None:
                yield from self._walk(listed.up_to(cursor.uid))
        self._at = cursor
        yield from self._walk(new)
        last = new.ranges[-1][1] if new else cursor.uid
        done = finish_cursor(cursor, opened, last, self._at.count)
        listing = None
        if listed is not None:
            done = replace(done, count=len(listed) - len(self._vanished), day=self._mailbox.day)
            keys = self._keys(listed, cursor.uid if first else 0)
            listing = FolderListing(self._folder.name, keys, is_whole=self._shows_everything(opened, listed))
        if done != self._mailbox.cursor(self._folder) or not self._packer.empty:
            self._at = done
            yield self._take(listing)

    def _shows_everything(self, opened: Status, listed: Uids) -> bool:
        """Otherwise a message that is not listed may still be there: the server lists fewer than it counts, or the provider
        shows only the newest."""
        provider = self._session.wire.provider
        is_cut = provider is not None and 0 < provider.newest_only <= opened.messages
        return len(listed) >= opened.messages and not is_cut

    def _changes(self, cursor: ImapCursor, opened: Status) -> Iterator[Batch]:
        """Changed flags and labels of messages seen before, if the server tracks them (CONDSTORE)."""
        if not cursor.modseq or not opened.modseq or opened.modseq <= cursor.modseq or not cursor.uid:
            return
        changes = []
        try:
            for meta in self._asker.changed(self._session.wire, cursor.uid, cursor.modseq):
                labels = meta.labels if cursor.ids == GMAIL else None
                changes.append(CopyChange(ChangeKind.RELABELLED, meta.key, flags=meta.flags, labels=labels))
                if len(changes) >= _CHANGES:
                    yield Batch(changes=tuple(changes))
                    changes = []
        except CommandRefused:
            pass  # it does not track this folder, despite its capabilities
        if changes:
            yield Batch(changes=tuple(changes))

    def _walk(self, uids: Uids) -> Iterator[Batch]:
        """Fetches unknown messages. The cursor advances, unless these UIDs are before it."""
        size = min(_WINDOW, self._session.wire.message_limit)
        for window in uids.windows(size):
            self._compress_where_useful()
            for uid, got in self._skip(window) if self._unwanted else self._window(window):
                if isinstance(got, Skipped):
                    self._packer.skip(got)
                elif got is not None:
                    if not self._packer.room_for(got):
                        yield self._take()
                    self._packer.put(got)
                if self._at is not None and self._is_ahead:
                    self._at = replace(self._at, ahead_to=uid)
                elif self._at is not None:
                    here = self._at.count >= 0 and uid not in self._vanished
                    self._at = replace(self._at, uid=uid, count=self._at.count + here)
                if self._packer.full:
                    yield self._take()
            self._mailbox.context.progress()
            if self._packer.empty and self._at is not None and len(window) == size:
                yield self._take()

    def _skip(self, window: Sequence[int]) -> Iterator[tuple[int, Step]]:
        assert self._unwanted is not None
        for uid in window:
            key = uid_key(self._folder.name, self._asker.validity, uid)
            yield uid, Skipped(key, self._unwanted, self._folder.name)

    def _window(self, window: Sequence[int]) -> Iterator[tuple[int, Step]]:
        """Each UID once, in order, with its result: nothing if it is known."""
        metas, there = self._ask(window)
        self._suspect_silence(window, metas, there)
        rules = {meta.uid: rule for meta in metas.values() if (rule := date_rule(self._settings, meta.received_at))}
        bodies = self._bodies.fetch([meta for meta in metas.values() if meta.uid not in rules])
        for uid in window:
            meta = metas.get(uid)
            if meta is None:
                if uid not in there:
                    self._vanished.add(uid)
                yield uid, None
            elif uid in rules:
                yield uid, Skipped(meta.key, rules[uid], self._folder.name)
            else:
                fetched, got = next(bodies)
                assert fetched.uid == uid, "given in order"
                if got is None:
                    self._vanished.add(uid)
                    self._gone_endings.add(meta.key[len(self._prefix) :])
                yield uid, got

    def _suspect_silence(self, window: Sequence[int], metas: dict[int, Meta], there: set[int]) -> None:
        """A listed message that the server does not describe was deleted since, or is withheld: then it has failed."""
        silent = [uid for uid in window if uid not in there]
        for uid in self._session.search(b"UID " + Uids.of(silent).encoded()) if silent else ():
            key = uid_key(self._folder.name, self._asker.validity, uid)
            metas[uid] = Meta(uid, key, self._folder.name, trouble="the server lists it but does not return it")
            if self._asker.ids:
                self._endings.append(key[len(self._prefix) :])
        if silent:
            ordered = sorted(metas.items())
            metas.clear()
            metas.update(ordered)

    def _ask(self, window: Sequence[int]) -> tuple[dict[int, Meta], set[int]]:
        """The messages to fetch, in order, and the UIDs that exist."""
        wire, asker = self._session.wire, self._asker
        if not asker.ids:
            keys = {uid_key(self._folder.name, asker.validity, uid): uid for uid in window}
            there = {keys[key] for key in self._mailbox.known(keys)} | {uid for uid in window if self._was_ahead(uid)}
            metas = asker.metas(wire, [uid for uid in window if uid not in there])
            return {meta.uid: meta for meta in metas}, there | {meta.uid for meta in metas}
        known: set[str] = set()
        there = set()
        if self._at is None:  # most messages are known, so ids are enough
            ids = {uid: value for uid, value in asker.id_values(wire, window).items() if value}
            by_key = {id_key(self._folder.name, asker.ids, value): uid for uid, value in ids.items()}
            self._endings.extend(ids.values())
            known = self._mailbox.known(by_key)
            there = set(ids)
            unknown = {uid for key, uid in by_key.items() if key not in known}
            metas = asker.metas(wire, [uid for uid in window if uid not in ids or uid in unknown])
            self._endings.extend(meta.key[len(self._prefix) :] for meta in metas if meta.uid not in ids)
        else:
            metas = asker.metas(wire, window)
            self._endings.extend(meta.key[len(self._prefix) :] for meta in metas)
            known = {*self._mailbox.known([meta.key for meta in metas])}
            known |= {meta.key for meta in metas if self._was_ahead(meta.uid)}
        there |= {meta.uid for meta in metas}
        return once_each(metas, known), there

    def _was_ahead(self, uid: int) -> bool:
        """Whether it was fetched before its turn."""
        return self._at is not None and not self._is_ahead and self._at.ahead <= uid <= self._at.ahead_to

    def _keys(self, listed: Uids, walked_from: int) -> Keys:
        """The keys of all messages in the folder."""
        if not self._asker.ids:
            return Keys(self._prefix, listed, frozenset(self._vanished))
        for window in listed.up_to(walked_from).windows(min(_ID_WINDOW, self._session.wire.message_limit)):
            self._endings.extend(filter(None, self._asker.id_values(self._session.wire, window).values()))
            self._mailbox.context.progress()
        return Keys(self._prefix, tuple(dict.fromkeys(ending for ending in self._endings if ending not in self._gone_endings)))

    def _compress_where_useful(self) -> None:
        """On a fast connection, compression would only cost both sides time."""
        wire = self._session.wire
        slow = wire.received_bytes > _MEASURED_BYTES and wire.received_bytes < _SLOW_BYTES_PER_SECOND * wire.reading_seconds
        if self._settings.compress == "auto" and slow and "COMPRESS=DEFLATE" in wire.capabilities:
            wire.compress()

    @property
    def _prefix(self) -> str:
        """The common prefix of all keys of this folder."""
        if self._asker.ids:
            return id_key(self._folder.name, self._asker.ids, "")
        return uid_key(self._folder.name, self._asker.validity, 0)[:-1]

    def _take(self, listing: FolderListing | None = None) -> Batch:
        state = self._mailbox.moved(self._folder, self._at) if self._at is not None else {}
        return self._packer.take(state, listing)
