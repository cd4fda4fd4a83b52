"""The conversations of a Microsoft 365 group: Graph shows the mail of its mailbox as threads of posts."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from connectors.base import (
    BATCH_MESSAGES,
    Batch,
    Context,
    FailedMessage,
    FolderListing,
    Json,
    Known,
    RawMessage,
    Skipped,
    not_found,
)
from connectors.batching import Got, Packer
from connectors.errors import AuthFailed, Unavailable
from connectors.http import ResponseTooLarge
from connectors.microsoft.cursor import prefix
from connectors.microsoft.graph import Graph, GraphRefused, segment
from connectors.microsoft.group_post import GroupThread, build_post, received_at
from connectors.microsoft.settings import GraphSettings
from connectors.selection import date_rule, folder_rule, rules_digest
from connectors.spool import Spool

CONVERSATIONS = "Group-Conversation.Read.All"
GROUP = "group:"
"""Marks the id of a group where others have the id of a user."""
FOLDER = "Conversations"
_UNIT = "\u241f"
_THREADS = "$select=id,topic,lastDeliveredDateTime&$top=100"


@dataclass(slots=True)
class GroupFetch:
    graph: Graph
    context: Context
    settings: GraphSettings
    group_id: str
    address: str
    name: str
    spool: Spool
    _packer: Packer = field(default_factory=lambda: Packer(BATCH_MESSAGES))

    def batches(self, state: Mapping[str, Json], known: Known) -> Iterator[Batch]:
        """Threads in the order of their last posts, so that the time of the last complete one is the position."""
        done, is_first = self._position(state)
        threads = sorted(self._threads(), key=lambda thread: (thread.delivered_at, thread.id))
        keys: list[str] = []
        for thread in threads:
            if thread.delivered_at < done:
                continue
            posts = {self._key(thread, post): post for post in self._posts(thread)}
            keys += posts
            held = known(list(posts)) if posts else set()
            for key, post in posts.items():
                if key not in held:
                    yield from self._put(key, post, thread, done)
            done = thread.delivered_at
            self.context.progress()
            if self._packer.full:
                yield self._packer.take(self._state(done))
        listing = FolderListing(FOLDER, tuple(keys), is_continued=not is_first, is_whole=is_first)
        if is_first or not self._packer.empty or done != self._position(state)[0]:
            yield self._packer.take(self._state(done), listing)

    def refetch(self, keys: Collection[str]) -> Iterator[Batch]:
        for key in dict.fromkeys(keys):
            got = self._again(key)
            if not self._packer.room_for(got):
                yield self._packer.take()
            self._packer.put(got)
        if not self._packer.empty:
            yield self._packer.take()

    def _put(self, key: str, post: Mapping[str, Json], thread: GroupThread, done: str) -> Iterator[Batch]:
        rule = folder_rule(self.settings, FOLDER) or date_rule(self.settings, received_at(post))
        if rule:
            self._packer.skip(Skipped(key, rule, FOLDER))
            return
        got = self._message(key, post, thread)
        if not self._packer.room_for(got):
            yield self._packer.take(self._state(done))
        self._packer.put(got)
        self.context.progress(1)

    def _again(self, key: str) -> Got:
        thread_id, _, post_id = key.partition(_UNIT)
        if not post_id:
            return not_found(key, FOLDER)
        try:
            thread = _thread(self.graph.get(f"{self._base}/threads/{segment(thread_id)}?$select=id,topic", CONVERSATIONS))
            return self._message(key, {"id": post_id, "hasAttachments": True}, thread or GroupThread(thread_id, "", ""))
        except GraphRefused as refused:
            if refused.is_gone:
                return not_found(key, FOLDER)
            raise Unavailable(f"the group {self.address} can't be read: {refused}") from refused

    def _message(self, key: str, post: Mapping[str, Json], thread: GroupThread) -> Got:
        if post.get("hasAttachments"):
            where = f"{self._base}/threads/{segment(thread.id)}/posts/{segment(str(post.get('id')))}?$expand=attachments"
            try:
                post = self.graph.get(where, CONVERSATIONS)
            except ResponseTooLarge:
                return FailedMessage(key, "its attachments are too large for a response of Microsoft Graph", FOLDER)
            except GraphRefused as refused:
                if refused.is_gone:
                    return not_found(key, FOLDER)
                return FailedMessage(key, f"Microsoft Graph did not return it: {refused}", FOLDER)
        content = self.spool.receive(iter((build_post(post, thread, self.address, self.name),)))
        data, path = (None, content) if isinstance(content, Path) else (content, None)
        return RawMessage(key, data, path, FOLDER, (), (), received_at(post))

    def _threads(self) -> Iterator[GroupThread]:
        for found in self._pages(f"{self._base}/threads?{_THREADS}"):
            if thread := _thread(found):
                yield thread

    def _posts(self, thread: GroupThread) -> Sequence[Mapping[str, Json]]:
        return [post for post in self._pages(f"{self._base}/threads/{segment(thread.id)}/posts") if post.get("id")]

    def _pages(self, path: str) -> Iterator[dict[str, Json]]:
        try:
            yield from self.graph.pages(path, CONVERSATIONS)
        except GraphRefused as refused:
            if refused.status == 403:
                raise AuthFailed(f"the group {self.address} denies access: {refused}") from refused
            raise Unavailable(f"the group {self.address} can't be read: {refused}") from refused

    def _position(self, state: Mapping[str, Json]) -> tuple[str, bool]:
        match state.get(f"{prefix(self.address)}group"):
            case {"delivered": str(delivered), "rules": str(rules)} if rules == rules_digest(self.settings):
                return delivered, False
        return "", True

    def _state(self, done: str) -> dict[str, Json]:
        return {f"{prefix(self.address)}group": {"delivered": done, "rules": rules_digest(self.settings)}}

    def _key(self, thread: GroupThread, post: Mapping[str, Json]) -> str:
        return f"{thread.id}{_UNIT}{post['id']}"

    @property
    def _base(self) -> str:
        return f"/groups/{segment(self.group_id)}"


def _thread(found: Mapping[str, Json]) -> GroupThread | None:
    key = found.get("id")
    if not isinstance(key, str) or not key:
        return None
    return GroupThread(key, str(found.get("topic") or ""), str(found.get("lastDeliveredDateTime") or ""))
