"""Fetches one mailbox: its folders, the changes in each, and the new messages."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import accumulate

from connectors.base import BATCH_MESSAGES, Batch, ChangeKind, Context, CopyChange, FolderListing, Json, Known, Skipped
from connectors.batching import Packer
from connectors.errors import ConnectorError, StateLost, Unavailable
from connectors.microsoft.cursor import MicrosoftCursor, cursor_key, read_cursor
from connectors.microsoft.downloads import GraphDownloads
from connectors.microsoft.folders import MAIL, GraphFolder, Tree, read_tree, update
from connectors.microsoft.graph import BATCH_REQUESTS, Graph, GraphRefused, Sub, segment
from connectors.microsoft.metadata import FIELDS, IMMUTABLE, PREFER, MessageMetadata, change_of, read_entries
from connectors.microsoft.settings import GraphSettings
from connectors.selection import date_rule, folder_rule, rules_digest

_FEW_MESSAGES = 50
_IDS_PER_PAGE = 1000
_LISTED_AT_MOST = 250_000
"""Limit of a folder's keys in memory. In a longer one, messages that disappeared while the state was lost go unnoticed."""


@dataclass(slots=True)
class GraphMailboxFetch:
    graph: Graph
    downloads: GraphDownloads
    context: Context
    settings: GraphSettings
    base: str
    """`/users/ID`, or `/me`."""
    address: str
    _tree: Tree = field(default_factory=Tree)
    _pending: dict[str, Json] = field(default_factory=dict)
    """State that is already true and is stored with the next batch: unchanged folders cost no batch of their own."""

    def batches(self, state: Mapping[str, Json], known: Known) -> Iterator[Batch]:
        try:
            yield from self._folders(state, known)
        except ConnectorError:
            if self._pending:
                yield Batch(state=self._take_state({}))
            raise
        if self._pending:
            yield Batch(state=self._take_state({}))

    def _folders(self, state: Mapping[str, Json], known: Known) -> Iterator[Batch]:
        """One call requests the changes in the tree and in the first folders, or in all of them if all were finished. Otherwise
        unfinished folders come first, because a throttled job starts here again and again."""
        before = read_tree(state, self.address, self.settings.include_hidden)
        folders = before.folders() if before.link else []
        first = _few(self._unfinished(folders, state)) or folders[: BATCH_REQUESTS - 1]
        links = [before.link, *(self._link(folder, state) for folder in first)] if first else []
        answers = self.graph.batch(links, MAIL, PREFER) if links else []
        heard = {folder.id: answer for folder, answer in zip(first, answers[1:], strict=True)}
        changed = update(self.graph, self.base, self.address, before, state, answers[0] if answers else None)
        self._tree = changed.tree
        self._pending.update(changed.patch)
        for path in changed.removed.values():
            yield Batch(listings=(FolderListing(path, ()),), state=self._take_state({}))
        folders = self._tree.folders()
        unfinished = self._unfinished(folders, state)
        settled = [folder for folder in folders if folder not in unfinished]
        if unfinished:
            self.context.progress(0, sum(folder.total for folder in folders))
        while stretch := _few(unfinished) or settled[:BATCH_REQUESTS]:
            heard.update(self._ask([folder for folder in stretch if folder.id not in heard], state))
            for folder in stretch:
                yield from self._folder(folder, self._place(state, folder.id), known, heard.pop(folder.id, None))
            if unfinished:
                del unfinished[: len(stretch)]
            else:
                del settled[: len(stretch)]

    def _unfinished(self, folders: Sequence[GraphFolder], state: Mapping[str, Json]) -> list[GraphFolder]:
        """Empty folders first: they are stored with the next batch."""
        found = [folder for folder in folders if self._place(state, folder.id).is_full]
        return sorted(found, key=lambda folder: folder.total > 0)

    def _ask(self, folders: Sequence[GraphFolder], state: Mapping[str, Json]) -> dict[str, Sub]:
        """Requests the changes in several folders in one call."""
        if len(folders) < 2:
            return {}
        answers = self.graph.batch([self._link(folder, state) for folder in folders], MAIL, PREFER)
        return {folder.id: answer for folder, answer in zip(folders, answers, strict=True)}

    def _folder(self, folder: GraphFolder, place: MicrosoftCursor, known: Known, heard: Sub | None) -> Iterator[Batch]:
        if place.path and place.path != folder.path:
            yield from self._record_rename(folder, place, known)
            place = replace(place, path=folder.path)
        page = heard.body if heard and heard.status == 200 else None
        restarted = False
        while True:
            try:
                page = page or self.graph.get(place.link or self._start(folder), MAIL, prefer=PREFER)
            except GraphRefused as refused:
                if refused.status == 404:
                    return  # the folder was deleted in the meantime: the next update of the tree reports it
                if not refused.state_is_lost:
                    raise Unavailable(f"the folder {folder.path} can't be read: {refused}") from refused
                if restarted or not place.link:
                    raise StateLost(f"the folder {folder.path} can't be read from the start") from refused
                place, restarted = MicrosoftCursor(rules=place.rules, path=place.path, is_again=True), True
                continue
            following = _next_cursor(place, page, folder)
            if place.is_again and place.link and not following.is_full:
                whole = self._whole(folder)
                yield Batch(listings=(whole,) if whole else (), state=self._take_state({}))
            yield from self._page(folder, place, read_entries(page), following, known)
            if not following.is_full and "@odata.deltaLink" in page:
                return
            place, page = following, None

    def _page(
        self,
        folder: GraphFolder,
        place: MicrosoftCursor,
        entries: list[MessageMetadata],
        following: MicrosoftCursor,
        known: Known,
    ) -> Iterator[Batch]:
        """One page of a folder, from the cursor on."""
        start = _resume_at(entries, place)
        held = known([entry.key for entry in entries[start:]]) if entries[start:] else set()
        changes = tuple(self._changes(folder, entries[start:], held))
        skipped, wanted = self._sort(folder, place, entries[start:], held)
        run = self.downloads.run(self.base, [(entry, folder.path) for entry in wanted.values()])
        packer = Packer(BATCH_MESSAGES)
        for number, entry in enumerate(entries[start:], start):
            here = replace(place, done=number, last=entries[number - 1].key if number else "")
            if entry.key in skipped:
                packer.skip(skipped[entry.key])
            elif entry.key in wanted:
                found = None
                try:
                    while (found := run.take()) is None:
                        if packer.full or (self.context.should_stop() and not packer.empty):
                            yield self._batch(packer, folder, here, changes)
                            changes = ()
                        elif self.context.should_stop():
                            raise Unavailable("the worker is stopping")
                except ConnectorError:
                    for beside in run.rest():
                        if not packer.room_for(beside):
                            yield self._batch(packer, folder, here, changes)
                            changes = ()
                        packer.put(beside)
                    if not packer.empty:
                        yield self._batch(packer, folder, here, changes)
                    raise
                if not packer.room_for(found):
                    yield self._batch(packer, folder, here, changes)
                    changes = ()
                packer.put(found)
            if packer.full and number + 1 < len(entries):
                yield self._batch(packer, folder, replace(place, done=number + 1, last=entry.key), changes)
                changes = ()
        listing = _listing(folder, place, entries, following)
        state = {cursor_key(self.address, folder.id): following.as_json()}
        if packer.empty and not changes and listing is None:
            if following != place:
                self._pending.update(state)
            return
        self._report_progress(packer)
        yield packer.take(self._take_state(state), listing, changes)

    def _changes(self, folder: GraphFolder, entries: Sequence[MessageMetadata], held: set[str]) -> Iterator[CopyChange]:
        """Changes to archived copies."""
        yield from (change_of(entry, folder.path) for entry in entries if entry.key in held and not entry.is_removed)
        left = [entry.key for entry in entries if entry.is_removed and entry.key in held]
        for start in range(0, len(left), BATCH_REQUESTS):
            keys = left[start : start + BATCH_REQUESTS]
            paths = [f"{self.base}/messages/{segment(key)}?$select=parentFolderId" for key in keys]
            for key, path, answer in zip(keys, paths, self.graph.batch(paths, MAIL, IMMUTABLE), strict=True):
                now = self._tree.path(self._whereabouts(path, answer))
                if now != folder.path:  # if it is back by now, that will be reported again
                    yield CopyChange(ChangeKind.MOVED, key, now) if now else CopyChange(ChangeKind.GONE, key)

    def _whereabouts(self, path: str, answer: Sub) -> str:
        """The id of the folder that a message is in now; empty if it was deleted."""
        if answer.status in (404, 400):
            return ""
        try:
            body = answer.body if answer.status == 200 else self.graph.get(path, MAIL, prefer=IMMUTABLE)
        except GraphRefused as refused:
            if refused.is_gone or refused.status == 404:
                return ""
            raise Unavailable(f"a message that was moved can't be found: {refused}") from refused
        return str(body.get("parentFolderId") or "")

    def _sort(
        self, folder: GraphFolder, place: MicrosoftCursor, entries: Sequence[MessageMetadata], held: set[str]
    ) -> tuple[dict[str, Skipped], dict[str, MessageMetadata]]:
        """The messages that a rule excludes, and those to download. A changed draft has new bytes."""
        unwanted = folder_rule(self.settings, folder.path, folder.role)
        skipped, wanted = {}, {}
        for entry in entries:
            if entry.is_removed or (entry.key in held and (place.is_full or not entry.is_draft)):
                continue
            rule = unwanted or date_rule(self.settings, entry.received_at)
            if rule is None:
                wanted[entry.key] = entry
            elif entry.key not in held:
                skipped[entry.key] = Skipped(entry.key, rule, folder.path)
        return skipped, wanted

    def _whole(self, folder: GraphFolder) -> FolderListing | None:
        """All keys of a folder that was listed in several pages, to find what is gone. Requests only ids."""
        keys: list[str] = []
        for page in self._ids(folder):
            keys += page
            if len(keys) > _LISTED_AT_MOST:
                return None
        return FolderListing(folder.path, keys)

    def _ids(self, folder: GraphFolder) -> Iterator[list[str]]:
        link: str | None = f"{self.base}/mailFolders/{segment(folder.id)}/messages?$select=id&$top={_IDS_PER_PAGE}"
        while link:
            try:
                page = self.graph.get(link, MAIL, prefer=IMMUTABLE)
            except GraphRefused as refused:
                raise Unavailable(f"the folder {folder.path} can't be read: {refused}") from refused
            self.context.progress()
            yield [entry.key for entry in read_entries(page)]
            link = page.get("@odata.nextLink")

    def _record_rename(self, folder: GraphFolder, place: MicrosoftCursor, known: Known) -> Iterator[Batch]:
        """Records the folder's new name in its archived copies. Requests only ids, and the cursor stays."""
        for number, keys in enumerate(self._ids(folder)):
            held = known(keys) if keys else set()
            moved = tuple(CopyChange(ChangeKind.MOVED, key, folder.path) for key in keys if key in held)
            listing = FolderListing(folder.path, keys, is_continued=number > 0, is_whole=False)
            yield Batch(changes=moved, listings=() if place.is_full else (listing,), state=self._take_state({}))
        state = {cursor_key(self.address, folder.id): replace(place, path=folder.path).as_json()}
        is_free = place.path not in {other.path for other in self._tree.folders()}
        yield Batch(listings=(FolderListing(place.path, ()),) if is_free else (), state=self._take_state(state))

    def _batch(self, packer: Packer, folder: GraphFolder, place: MicrosoftCursor, changes: tuple[CopyChange, ...]) -> Batch:
        self._report_progress(packer)
        here = replace(place, path=folder.path)
        return packer.take(self._take_state({cursor_key(self.address, folder.id): here.as_json()}), None, changes)

    def _report_progress(self, packer: Packer) -> None:
        self.context.progress(len(packer.messages) + len(packer.skipped) + len(packer.failed))

    def _take_state(self, state: dict[str, Json]) -> dict[str, Json]:
        taken = {**self._pending, **state}
        self._pending.clear()
        return taken

    def _place(self, state: Mapping[str, Json], folder_id: str) -> MicrosoftCursor:
        """If the rules have changed, the folder starts over."""
        place, rules = read_cursor(state, self.address, folder_id), rules_digest(self.settings)
        return place if place.rules == rules else MicrosoftCursor(rules=rules, path=place.path, is_again=bool(place.path))

    def _link(self, folder: GraphFolder, state: Mapping[str, Json]) -> str:
        return self._place(state, folder.id).link or self._start(folder)

    def _start(self, folder: GraphFolder) -> str:
        return f"{self.base}/mailFolders/{segment(folder.id)}/messages/delta?{FIELDS}"


def _few(folders: Sequence[GraphFolder]) -> list[GraphFolder]:
    """The first folder, and the following ones while they have few messages in total. What a throttled job requests too early
    has to be requested again by the next one."""
    totals = accumulate(folder.total for folder in folders)
    enough = next((number for number, total in enumerate(totals) if total > _FEW_MESSAGES), len(folders))
    return list(folders[: min(max(enough, 1), BATCH_REQUESTS - 1)])


def _next_cursor(place: MicrosoftCursor, page: Mapping[str, Json], folder: GraphFolder) -> MicrosoftCursor:
    """The cursor after a page."""
    if more := page.get("@odata.nextLink"):
        return replace(place, link=str(more), done=0, last="", path=folder.path)
    if end := page.get("@odata.deltaLink"):
        return replace(place, link=str(end), done=0, last="", path=folder.path, is_full=False, is_again=False)
    raise Unavailable("Microsoft Graph returned no link to the next page of messages")


def _listing(
    folder: GraphFolder, place: MicrosoftCursor, entries: Sequence[MessageMetadata], following: MicrosoftCursor
) -> FolderListing | None:
    """A page's contribution to the listing of the folder, which may be too long for memory."""
    is_first, is_last = not place.link, not following.is_full
    keys = tuple(entry.key for entry in entries if not entry.is_removed)
    if not place.is_full or (place.is_again and is_last and not is_first):  # (the whole listing was reported before)
        return None
    if not keys and not place.is_again:
        return None
    return FolderListing(folder.path, keys, is_continued=not is_first, is_whole=is_first and is_last)


def _resume_at(entries: Sequence[MessageMetadata], place: MicrosoftCursor) -> int:
    """How many entries are done. If the page has changed, those up to the last known one, or none."""
    if place.done <= len(entries) and place.done and entries[place.done - 1].key == place.last:
        return place.done
    return next((number for number, entry in enumerate(entries, 1) if entry.key == place.last), 0) if place.done else 0
