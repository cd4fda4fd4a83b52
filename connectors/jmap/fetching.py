"""Fetches one account: a listing from the newest message on the first time, and its changes afterwards."""

from __future__ import annotations

import re
from collections.abc import Collection, Generator, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from connectors.base import (
    BATCH_MESSAGES,
    Batch,
    ChangeKind,
    Context,
    CopyChange,
    FailedMessage,
    FolderListing,
    Json,
    Known,
    RawMessage,
    not_found,
)
from connectors.batching import Got, Packer
from connectors.errors import ConnectorError, Unavailable
from connectors.jmap.client import Call, JmapClient, MethodRefused
from connectors.jmap.cursor import JmapCursor, as_state, read_cursor, read_paths
from connectors.jmap.downloads import Content, JmapDownloads
from connectors.jmap.folders import JmapFolders, read_folders
from connectors.jmap.message import PROPERTIES, JmapMessage, read_messages
from connectors.jmap.plan import JmapListing, plan_messages
from connectors.jmap.settings import JmapSettings
from connectors.selection import rules_digest

_ID = re.compile(r"[A-Za-z0-9_-]{1,255}")  # RFC 8620, section 1.2
_NEWEST_FIRST = [{"property": "receivedAt", "isAscending": False}]


@dataclass(slots=True)
class JmapMailboxFetch:
    client: JmapClient
    downloads: JmapDownloads
    context: Context
    settings: JmapSettings
    account: str
    address: str
    known: Known
    _folders: JmapFolders = field(default_factory=lambda: JmapFolders({}, {}))
    _packer: Packer = field(default_factory=lambda: Packer(BATCH_MESSAGES))

    def batches(self, state: Mapping[str, Json]) -> Iterator[Batch]:
        cursor, rules = read_cursor(state, self.address), rules_digest(self.settings)
        paths = read_paths(state) if cursor.state else {}
        if cursor.rules != rules or not cursor.state:
            cursor = JmapCursor(rules=rules)
        try:
            yield from self._run(cursor, paths)
        except MethodRefused as refused:
            raise Unavailable(f"the server rejected a request: {refused}") from refused

    def refetch(self, keys: Collection[str]) -> Iterator[Batch]:
        """These messages, whatever the rules."""
        left = list(dict.fromkeys(keys))
        if not left:
            return
        self._folders = self.list_folders()
        try:
            for start in range(0, len(left), self.client.session.objects):
                yield from self._refetch_some(left[start : start + self.client.session.objects])
        except MethodRefused as refused:
            raise Unavailable(f"the server rejected a request: {refused}") from refused
        if not self._packer.empty:
            yield self._packer.take()

    def list_folders(self) -> JmapFolders:
        try:
            return read_folders(self.client.call([self._mailbox_get()])[0])
        except MethodRefused as refused:
            raise Unavailable(f"the folders can't be listed: {refused}") from refused

    def _refetch_some(self, keys: Sequence[str]) -> Iterator[Batch]:
        valid = [key for key in keys if _ID.fullmatch(key)]  # a server may reject a whole request because of one invalid id
        found = read_messages(self.client.call([self._email_get(ids=valid)])[0]) if valid else []
        for key in set(keys) - {message.key for message in found}:
            if not self._packer.room_for(gone := not_found(key)):
                yield self._packer.take()
            self._packer.put(gone)
        yield from self._download(found)

    def _run(self, cursor: JmapCursor, paths: Mapping[str, str]) -> Iterator[Batch]:
        if not cursor.state or cursor.listing:
            try:
                cursor = yield from self._list(cursor, paths)
            except MethodRefused as refused:
                if refused.kind != "anchorNotFound" or not cursor.anchor:
                    raise
                cursor = yield from self._list(JmapCursor(rules=cursor.rules), paths)  # our position was deleted: list again
            paths = self._folders.paths
        try:
            yield from self._follow(cursor, paths)
        except MethodRefused as refused:
            if refused.kind != "cannotCalculateChanges":
                raise
            cursor = yield from self._list(JmapCursor(rules=cursor.rules), paths)
            yield from self._follow(cursor, self._folders.paths)

    # --- the first time

    def _list(self, cursor: JmapCursor, before: Mapping[str, str]) -> Generator[Batch, None, JmapCursor]:
        """Returns the cursor after it. The state from before the listing: what changes meanwhile is replayed afterwards."""
        listing = JmapListing(is_continued=bool(cursor.anchor))
        limit = self.client.session.objects
        calls = [self._mailbox_get(), self._email_get("1", ids=[]), *self._page_calls(cursor.anchor, limit)]
        boxes, nothing, query, page = self.client.call(calls)
        self._folders = read_folders(boxes)
        self.context.progress(0, self._folders.total)
        if not cursor.listing:
            cursor = replace(cursor, state=str(nothing.get("state") or ""), listing=True)
        if not cursor.state:
            raise Unavailable("the server did not return its state")
        while ids := [str(one) for one in query.get("ids") or ()]:
            by_key = {message.key: message for message in read_messages(page)}
            messages = [by_key[key] for key in dict.fromkeys(ids) if key in by_key]
            cursor = yield from self._page(cursor, messages, listing)
            cursor = replace(cursor, anchor=ids[-1])
            query, page = self.client.call(self._page_calls(cursor.anchor, limit))
        done = replace(cursor, listing=False, anchor="")
        paths = tuple(self._folders.paths.values())
        ends = (*listing.end(paths), *(FolderListing(path, ()) for path in before.values() if path not in paths))
        yield replace(self._packer.take(self._state(done)), listings=ends)
        return done

    def _page(
        self, cursor: JmapCursor, messages: Sequence[JmapMessage], listing: JmapListing
    ) -> Generator[Batch, None, JmapCursor]:
        held = self.known([message.key for message in messages]) if messages else set()
        plan = plan_messages((one for one in messages if one.key not in held), (), self._folders, self.settings)
        reasons = {skipped.provider_key: skipped for skipped in plan.skipped}
        contents = self.downloads.get(self.account, plan.todo)
        try:
            for message in messages:
                if message.key in reasons:
                    self._packer.skip(reasons[message.key])
                elif message.key not in held:
                    got = self._result(*next(contents))
                    if not self._packer.room_for(got):
                        yield self._taken(cursor, listing)
                    self._packer.put(got)
                listing.add(self._folders.place(message.folders)[0], message.key)
                cursor = replace(cursor, anchor=message.key)
                if self._packer.full or listing.is_long:
                    yield self._taken(cursor, listing)
        except ConnectorError:
            if not self._packer.empty:  # what arrived before the error is not fetched again
                yield self._taken(cursor, listing)
            raise
        return cursor

    def _taken(self, cursor: JmapCursor, listing: JmapListing) -> Batch:
        return replace(self._packer.take(self._state(cursor)), listings=listing.pieces())

    def _page_calls(self, anchor: str, limit: int) -> list[Call]:
        where: dict[str, Json] = {"anchor": anchor, "anchorOffset": 1} if anchor else {}
        query: Call = ("Email/query", {**self._account, "sort": _NEWEST_FIRST, "limit": limit, **where}, "q")
        return [query, self._email_get("p", of="q", name="Email/query", path="/ids")]

    # --- afterwards

    def _follow(self, cursor: JmapCursor, paths: Mapping[str, str]) -> Iterator[Batch]:
        """The changes since; one request if there are none."""
        goes_on, before = True, paths
        while goes_on:
            changes: Call = (
                "Email/changes",
                {**self._account, "sinceState": cursor.state, "maxChanges": self.client.session.objects},
                "c",
            )
            created = self._email_get("n", of="c", name="Email/changes", path="/created")
            updated = self._email_get("u", of="c", name="Email/changes", path="/updated")
            boxes, changed, new, old = self.client.call([self._mailbox_get(), changes, created, updated])
            self._folders = read_folders(boxes)
            yield from self._renamed(before)
            reached = str(changed.get("newState") or "")
            goes_on = bool(changed.get("hasMoreChanges")) and reached != cursor.state
            after = replace(cursor, state=reached or cursor.state)
            gone = [str(one) for one in changed.get("destroyed") or ()]
            yield from self._changed([*read_messages(new), *read_messages(old)], gone, cursor, after, before)
            cursor, before = after, self._folders.paths

    def _changed(
        self,
        messages: Sequence[JmapMessage],
        gone: Sequence[str],
        cursor: JmapCursor,
        after: JmapCursor,
        before: Mapping[str, str],
    ) -> Iterator[Batch]:
        once = {message.key: message for message in messages}
        held = self.known(list(once)) if once else set()
        plan = plan_messages(once.values(), held, self._folders, self.settings)
        for skipped in plan.skipped:
            self._packer.skip(skipped)
        yield from self._download(plan.todo)
        changes = (*plan.changes, *(CopyChange(ChangeKind.GONE, key) for key in gone))
        removed = tuple(FolderListing(path, ()) for key, path in before.items() if key not in self._folders.paths)
        if changes or removed or after != cursor or before != self._folders.paths or not self._packer.empty:
            yield replace(self._packer.take(self._state(after), None, changes), listings=removed)

    def _renamed(self, before: Mapping[str, str]) -> Iterator[Batch]:
        """A renamed folder changes none of its messages, as the server sees it; in the archive, their copies move."""
        for key, path in self._folders.paths.items():
            if key in before and before[key] != path:
                yield from self._moved(key)

    def _moved(self, folder: str) -> Iterator[Batch]:
        anchor = ""
        while True:
            where: dict[str, Json] = {"anchor": anchor, "anchorOffset": 1} if anchor else {}
            limit = self.client.session.objects
            query: Call = (
                "Email/query",
                {**self._account, "filter": {"inMailbox": folder}, "sort": _NEWEST_FIRST, "limit": limit, **where},
                "q",
            )
            found, page = self.client.call([query, self._email_get("p", of="q", name="Email/query", path="/ids")])
            ids = [str(one) for one in found.get("ids") or ()]
            if not ids:
                return
            messages = read_messages(page)
            held = self.known([message.key for message in messages])
            plan = plan_messages((one for one in messages if one.key in held), held, self._folders, self.settings)
            if plan.changes:
                yield Batch(changes=plan.changes)
            anchor = ids[-1]

    # --- both

    def _download(self, messages: Sequence[JmapMessage]) -> Iterator[Batch]:
        """Full batches without a state; the rest stays in the packer. Before an error is raised, a last batch."""
        try:
            for message, content in self.downloads.get(self.account, messages):
                got = self._result(message, content)
                if not self._packer.room_for(got):
                    yield self._packer.take()
                self._packer.put(got)
                if self._packer.full:
                    yield self._packer.take()
        except ConnectorError:
            if not self._packer.empty:
                yield self._packer.take()
            raise

    def _result(self, message: JmapMessage, content: Content) -> Got:
        folder, labels = self._folders.place(message.folders)
        if content is None:
            return not_found(message.key, folder)
        if isinstance(content, str):
            return FailedMessage(message.key, content, folder)
        data, path = (None, content) if isinstance(content, Path) else (content, None)
        return RawMessage(message.key, data, path, folder, message.flags, labels, message.received_at)

    def _state(self, cursor: JmapCursor) -> dict[str, Json]:
        return as_state(self.address, cursor, self._folders.paths)

    @property
    def _account(self) -> dict[str, Json]:
        return {"accountId": self.account}

    def _mailbox_get(self) -> Call:
        properties = ["id", "name", "parentId", "role", "totalEmails"]
        return "Mailbox/get", {**self._account, "ids": None, "properties": properties}, "0"

    def _email_get(self, tag: str = "g", **where: Any) -> Call:
        if "of" in where:
            ids: dict[str, Json] = {"#ids": {"resultOf": where["of"], "name": where["name"], "path": where["path"]}}
        else:
            ids = {"ids": list(where["ids"])}
        return "Email/get", {**self._account, **ids, "properties": PROPERTIES}, tag
