"""Fetches one mailbox: its folders, the changes in each, and the new messages."""

from __future__ import annotations

from collections.abc import Generator, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from connectors.base import BATCH_MESSAGES, Batch, ChangeKind, Context, CopyChange, FolderListing, Json, Known
from connectors.batching import Got, Packer
from connectors.errors import ConnectorError, StateLost, Unavailable
from connectors.microsoft.cursor import MicrosoftCursor, cursor_key, read_cursor
from connectors.microsoft.downloads import DownloadRun, GraphDownloads
from connectors.microsoft.folders import MAIL, GraphFolder, Tree, read_tree, update
from connectors.microsoft.graph import BATCH_REQUESTS, Graph, GraphRefused, Sub, segment
from connectors.microsoft.metadata import FIELDS, IMMUTABLE, PREFER, MessageMetadata, read_entries
from connectors.microsoft.plan import PagePlan, first_few, next_cursor, page_listing, plan_page, resume_at
from connectors.microsoft.settings import GraphSettings
from connectors.selection import rules_digest

_IDS_PER_PAGE = 1000
_NEWEST_FIRST = "$orderby=receivedDateTime%20desc"
"""The only order that Graph has for the first round: people see at once that it works."""
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
        first = first_few(self._unfinished(folders, state)) or folders[: BATCH_REQUESTS - 1]
        links = [before.link, *(self._link(folder, state) for folder in first)] if first else []
        answers = self.graph.batch(links, MAIL, PREFER) if links else []
        heard = {folder.id: answer for folder, answer in zip(first, answers[1:], strict=True)}
        changed = update(
            self.graph,
            self.base,
            self.address,
            before,
            state,
            answers[0] if answers else None,
            with_recoverable=self.settings.include_recoverable,
        )
        self._tree = changed.tree
        self._pending.update(changed.patch)
        # Folders before messages: a moved message names its new folder, whose path must be known by then.
        for path in changed.removed.values():
            yield Batch(listings=(FolderListing(path, ()),), state=self._take_state({}))
        folders = self._tree.folders()
        unfinished = self._unfinished(folders, state)
        settled = [folder for folder in folders if folder not in unfinished]
        if unfinished:
            self.context.progress(0, sum(folder.total for folder in folders))
        while some := first_few(unfinished) or settled[:BATCH_REQUESTS]:
            heard.update(self._ask([folder for folder in some if folder.id not in heard], state))
            for folder in some:
                yield from self._folder(folder, self._cursor(state, folder.id), known, heard.pop(folder.id, None))
            if unfinished:
                del unfinished[: len(some)]
            else:
                del settled[: len(some)]

    def _unfinished(self, folders: Sequence[GraphFolder], state: Mapping[str, Json]) -> list[GraphFolder]:
        """Empty folders first: they are stored with the next batch."""
        found = [folder for folder in folders if self._cursor(state, folder.id).is_full]
        return sorted(found, key=lambda folder: folder.total > 0)

    def _ask(self, folders: Sequence[GraphFolder], state: Mapping[str, Json]) -> dict[str, Sub]:
        """Requests the changes in several folders in one call."""
        if len(folders) < 2:
            return {}
        answers = self.graph.batch([self._link(folder, state) for folder in folders], MAIL, PREFER)
        return {folder.id: answer for folder, answer in zip(folders, answers, strict=True)}

    def _folder(self, folder: GraphFolder, cursor: MicrosoftCursor, known: Known, heard: Sub | None) -> Iterator[Batch]:
        if cursor.path and cursor.path != folder.path:
            yield from self._record_rename(folder, cursor, known)
            cursor = replace(cursor, path=folder.path)
        page = heard.body if heard and heard.status == 200 else None
        restarted = False
        while True:
            try:
                page = page or self.graph.get(cursor.link or self._start(folder), MAIL, prefer=PREFER)
            except GraphRefused as refused:
                if refused.status == 404:
                    return  # the folder was deleted in the meantime: the next update of the tree reports it
                if not refused.state_is_lost:
                    raise Unavailable(f"the folder {folder.path} can't be read: {refused}") from refused
                # A delta token expires (410, or resyncRequired). The folder is listed again once; archived messages are not
                # downloaded.
                if restarted or not cursor.link:
                    raise StateLost(f"the folder {folder.path} can't be read from the start") from refused
                cursor, restarted = MicrosoftCursor(rules=cursor.rules, path=cursor.path, is_again=True), True
                continue
            following = next_cursor(cursor, page, folder)
            if cursor.is_again and cursor.link and not following.is_full:
                whole = self._whole(folder)
                yield Batch(listings=(whole,) if whole else (), state=self._take_state({}))
            yield from self._page(folder, cursor, read_entries(page), following, known)
            if not following.is_full and "@odata.deltaLink" in page:
                return
            cursor, page = following, None

    def _page(
        self,
        folder: GraphFolder,
        cursor: MicrosoftCursor,
        entries: list[MessageMetadata],
        following: MicrosoftCursor,
        known: Known,
    ) -> Iterator[Batch]:
        """One page of a folder, from the cursor on."""
        left = entries[resume_at(entries, cursor) :]
        held = known([entry.key for entry in left]) if left else set()
        plan = plan_page(folder, cursor, left, held, self.settings)
        page = _PageBatches(self, folder, tuple(self._changes(folder, plan)))
        run = self.downloads.run(self.base, [(entry, folder.path) for entry in plan.wanted.values()])
        for number, entry in enumerate(left, len(entries) - len(left)):
            before = replace(cursor, done=number, last=entries[number - 1].key if number else "")
            if entry.key in plan.skipped:
                page.packer.skip(plan.skipped[entry.key])
            elif entry.key in plan.wanted:
                got = yield from self._next_download(run, page, before)
                yield from page.put(got, before)
            if page.packer.full and number + 1 < len(entries):
                yield page.take(replace(cursor, done=number + 1, last=entry.key))
        listing = page_listing(folder, cursor, entries, following)
        if page.is_empty and listing is None:
            if following != cursor:
                self._pending[cursor_key(self.address, folder.id)] = following.as_json()
            return
        yield page.take(following, listing)

    def _next_download(self, run: DownloadRun, page: _PageBatches, before: MicrosoftCursor) -> Generator[Batch, None, Got]:
        """Yields what is complete while it waits. On an error, it first yields what was downloaded after the failed message:
        those are archived, and the cursor stays before them."""
        try:
            while (found := run.take()) is None:
                if page.packer.full or (self.context.should_stop() and not page.packer.empty):
                    yield page.take(before)
                elif self.context.should_stop():
                    raise Unavailable("the worker is stopping")
        except ConnectorError:
            for got in run.rest():
                yield from page.put(got, before)
            if not page.packer.empty:
                yield page.take(before)
            raise
        return found

    def _changes(self, folder: GraphFolder, plan: PagePlan) -> Iterator[CopyChange]:
        """Changes to archived copies. Graph only says that a message left the folder, so its new folder is requested."""
        yield from plan.changes
        for start in range(0, len(plan.left_folder), BATCH_REQUESTS):
            keys = plan.left_folder[start : start + BATCH_REQUESTS]
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

    def _record_rename(self, folder: GraphFolder, cursor: MicrosoftCursor, known: Known) -> Iterator[Batch]:
        """Records the folder's new name in its archived copies. Requests only ids, and the cursor stays."""
        for number, keys in enumerate(self._ids(folder)):
            held = known(keys) if keys else set()
            moved = tuple(CopyChange(ChangeKind.MOVED, key, folder.path) for key in keys if key in held)
            listing = FolderListing(folder.path, keys, is_continued=number > 0, is_whole=False)
            yield Batch(changes=moved, listings=() if cursor.is_full else (listing,), state=self._take_state({}))
        state = {cursor_key(self.address, folder.id): replace(cursor, path=folder.path).as_json()}
        is_free = cursor.path not in {other.path for other in self._tree.folders()}
        yield Batch(listings=(FolderListing(cursor.path, ()),) if is_free else (), state=self._take_state(state))

    def take_page(
        self,
        packer: Packer,
        folder: GraphFolder,
        cursor: MicrosoftCursor,
        changes: tuple[CopyChange, ...],
        listing: FolderListing | None,
    ) -> Batch:
        self.context.progress(len(packer.messages) + len(packer.skipped) + len(packer.failed))
        state = {cursor_key(self.address, folder.id): replace(cursor, path=folder.path).as_json()}
        return packer.take(self._take_state(state), listing, changes)

    def _take_state(self, state: dict[str, Json]) -> dict[str, Json]:
        taken = {**self._pending, **state}
        self._pending.clear()
        return taken

    def _cursor(self, state: Mapping[str, Json], folder_id: str) -> MicrosoftCursor:
        """If the rules have changed, the folder starts over."""
        cursor, rules = read_cursor(state, self.address, folder_id), rules_digest(self.settings)
        return cursor if cursor.rules == rules else MicrosoftCursor(rules=rules, path=cursor.path, is_again=bool(cursor.path))

    def _link(self, folder: GraphFolder, state: Mapping[str, Json]) -> str:
        return self._cursor(state, folder.id).link or self._start(folder)

    def _start(self, folder: GraphFolder) -> str:
        return f"{self.base}/mailFolders/{segment(folder.id)}/messages/delta?{FIELDS}&{_NEWEST_FIRST}"


class _PageBatches:
    """The batches of one page. The changes to archived copies go with the first."""

    def __init__(self, fetch: GraphMailboxFetch, folder: GraphFolder, changes: tuple[CopyChange, ...]) -> None:
        self._fetch, self._folder, self._changes = fetch, folder, changes
        self.packer = Packer(BATCH_MESSAGES)

    @property
    def is_empty(self) -> bool:
        return self.packer.empty and not self._changes

    def put(self, got: Got, before: MicrosoftCursor) -> Iterator[Batch]:
        if not self.packer.room_for(got):
            yield self.take(before)
        self.packer.put(got)

    def take(self, cursor: MicrosoftCursor, listing: FolderListing | None = None) -> Batch:
        changes, self._changes = self._changes, ()
        return self._fetch.take_page(self.packer, self._folder, cursor, changes, listing)
