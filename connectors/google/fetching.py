"""Fetches one Gmail mailbox: a listing, page by page, the first time, and its history afterwards."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from connectors.base import (
    BATCH_MESSAGES,
    Batch,
    CopyChange,
    FailedMessage,
    Json,
    Known,
    RawMessage,
    Skipped,
    not_found,
)
from connectors.batching import Got, Packer
from connectors.errors import AuthFailed, ConnectorError, StateLost, Throttled, Unavailable
from connectors.google import labels
from connectors.google.api import Api, GoogleRefused
from connectors.google.changes import News, fold
from connectors.google.cursor import GoogleCursor, ListingPage, as_state, read_cursor, read_page
from connectors.google.downloads import GoogleDownloads, Outcome
from connectors.google.labels import FOLDER
from connectors.google.plan import KEYS_AT_MOST, ListingKeys, ListingPart, label_parts, mailbox_parts, plan_news, plan_page
from connectors.google.raw import Downloaded
from connectors.google.services import gmail_users
from connectors.google.settings import GoogleSettings
from connectors.selection import rules_digest

_ME = "me"
_BATCH_PATH = "/batch/gmail/v1"
_PAGE = 500
_PROFILE_UNITS, _LABELS_UNITS, _LIST_UNITS, _HISTORY_UNITS = 1, 1, 5, 2
_HISTORY_TYPES = ["messageAdded", "messageDeleted", "labelAdded", "labelRemoved"]


@dataclass(slots=True)
class GoogleMailboxFetch:
    address: str
    api: Api
    settings: GoogleSettings
    downloads: GoogleDownloads
    _packer: Packer = field(default_factory=lambda: Packer(BATCH_MESSAGES))
    _names: Mapping[str, str] | None = None
    _drafts: frozenset[str] | None = None

    def batches(self, state: Mapping[str, Json], known: Known) -> Iterator[Batch]:
        """Yields what was fetched before an error, then raises the error."""
        cursor, rules = read_cursor(state, self.address), rules_digest(self.settings)
        page = read_page(state)
        self._names = cursor.labels
        try:
            if cursor.rules != rules or not cursor.history:
                yield from self._list(GoogleCursor(rules=rules), None, known)
            elif page is not None:
                yield from self._list(cursor, page, known)
            else:
                yield from self._follow_history(cursor, known)
        except GoogleRefused as refused:
            raise self._translate_refusal(refused) from refused

    def refetch(self, keys: Collection[str]) -> Iterator[Batch]:
        """These messages, regardless of the rules."""
        try:
            for batch, _ in self._download(list(dict.fromkeys(keys)), wanted=None):
                yield batch
            if not self._packer.empty:
                yield self._packer.take()
        except GoogleRefused as refused:
            raise self._translate_refusal(refused) from refused

    # --- the first time

    def _list(self, cursor: GoogleCursor, page: ListingPage | None, known: Known) -> Iterator[Batch]:
        parts = self._parts()
        listing = ListingKeys(is_continued=page is not None)
        if page is None:
            # The historyId from before the listing: what changes while we list is replayed by the first history request.
            profile = self.api.ask(self._users.getProfile(userId=_ME), _PROFILE_UNITS)
            self.api.context.progress(0, _number(profile.get("messagesTotal")))
            self._names = self._ask_names()
            cursor = replace(cursor, history=str(profile.get("historyId", "")), labels=self._names)
            page = ListingPage(parts[0].name, "")
            if not cursor.history.isdigit():
                raise Unavailable("Gmail did not return a historyId")
        numbers = {part.name: number for number, part in enumerate(parts)}
        if page.part not in numbers:
            raise StateLost("the labels changed during the listing")
        for part in parts[numbers[page.part] :]:
            page = page if page.part == part.name else ListingPage(part.name, "")
            if part.overlaps and not self._packer.empty:  # what the other parts have listed has to be known
                yield self._packer.take(self._state(cursor, page), listing.piece())
            read = 0
            while True:
                for batch, left in self._download(page.todo, self.settings):
                    state = self._state(cursor, replace(page, todo=tuple(left)))
                    piece = listing.piece()
                    yield replace(batch, state=state, listings=(piece,) if piece else ())
                page = replace(page, todo=())
                if page.next is None or (part.pages is not None and read >= part.pages):
                    break
                try:
                    ids, token = self._page(part, page.next)
                    if part.pages is not None:
                        ids = [key for key in ids if not listing.has(key)]
                    following = self._plan(part, ids, token, known)
                except Throttled:
                    if not self._packer.empty:  # stored, or repeated pauses would prevent any progress
                        yield self._packer.take(self._state(cursor, page), listing.piece())
                    raise
                page, read = following, read + 1
                listing.add(ids)
                if self._packer.full or listing.is_long:
                    yield self._packer.take(self._state(cursor, page), listing.piece())
        yield self._packer.take(self._state(cursor, None), listing.piece(is_last=True))

    def _parts(self) -> list[ListingPart]:
        if self.settings.folders_in:
            return label_parts(self.settings, self._known_names())
        return mailbox_parts(self.settings)

    def _page(self, part: ListingPart, token: str) -> tuple[list[str], str | None]:
        parameters = {**part.parameters, "maxResults": _PAGE, "fields": "messages/id,nextPageToken"}
        if token:
            parameters["pageToken"] = token
        try:
            answer = self.api.ask(self._users.messages().list(userId=_ME, **parameters), _LIST_UNITS)
        except GoogleRefused as refused:
            if token and refused.refusal.status in (400, 404):
                raise StateLost(f"the position in the listing is no longer valid: {refused}") from refused
            raise
        ids = [str(message["id"]) for message in answer.get("messages") or () if message.get("id")]
        return list(dict.fromkeys(ids)), answer.get("nextPageToken") or None

    def _plan(self, part: ListingPart, ids: Sequence[str], token: str | None, known: Known) -> ListingPage:
        """One lookup for the whole page; nothing that is already archived or excluded is downloaded."""
        held = known(ids) if ids and part.needs_lookup else set()
        drafts = self._draft_ids() if ids and part.name in ("all", "newest") else frozenset()
        plan = plan_page(part, ids, held, drafts)
        for skipped in plan.skipped:
            self._packer.skip(skipped)
        return ListingPage(part.name, token, plan.todo)

    def _draft_ids(self) -> frozenset[str]:
        """So that drafts need not be downloaded to be excluded."""
        if self.settings.include_drafts:
            return frozenset()
        if self._drafts is None:
            found: list[str] = []
            token: str | None = ""
            while token is not None and len(found) < KEYS_AT_MOST:
                ids, token = self._page(ListingPart("drafts", {"labelIds": "DRAFT"}), token)
                found += ids
            self._drafts = frozenset(found)
        return self._drafts

    # --- afterwards

    def _follow_history(self, cursor: GoogleCursor, known: Known) -> Iterator[Batch]:
        goes_on = True
        while goes_on:
            try:
                answer = self._history(cursor.history)
            except GoogleRefused as refused:
                # Gmail keeps the history for about a week, then answers 404.
                if refused.refusal.status != 404:
                    raise
                yield from self._list(GoogleCursor(rules=cursor.rules), None, known)  # the history has expired: list all ids
                return
            records = answer.get("history") or []
            goes_on = bool(answer.get("nextPageToken") and records)
            # In the middle of several pages, the response's historyId is already that of the end: the last record says how far
            # we are.
            reached = str(records[-1].get("id", "")) if goes_on else str(answer.get("historyId", ""))
            after = replace(cursor, history=reached if reached.isdigit() else cursor.history)
            changes, todo = self._news(fold(records), known)
            for batch, _ in self._download(todo, self.settings):
                yield batch
            if changes or after != cursor or self._names != cursor.labels or not self._packer.empty:
                yield self._packer.take(self._state(after, None), None, tuple(changes))
            cursor = replace(after, labels=self._names)

    def _history(self, start: str) -> dict[str, Any]:
        history = self._users.history()
        request = history.list(userId=_ME, startHistoryId=start, maxResults=_PAGE, historyTypes=_HISTORY_TYPES)
        return self.api.ask(request, _HISTORY_UNITS)

    def _news(self, news: News, known: Known) -> tuple[list[CopyChange], list[str]]:
        """The changes to archived messages, and the new messages to fetch. Labels that the history omits are requested."""
        held = known(news.seen) if news.seen else set()
        omitted = self._labels_of([key for key in news.seen if key in held and news.seen[key] is None])
        named = [one for ids in (*news.seen.values(), *omitted.values()) for one in ids or ()]
        names = self._known_names(named) if named else self._names or {}
        plan = plan_news(news, held, omitted, names, self.settings)
        for skipped in plan.skipped:
            self._packer.skip(skipped)
        return list(plan.changes), list(plan.todo)

    def _labels_of(self, keys: Sequence[str]) -> dict[str, tuple[str, ...] | None]:
        """None if the server does not return a message."""
        messages = self._users.messages()
        requests = {key: messages.get(userId=_ME, id=key, format="minimal", fields="labelIds") for key in keys}
        answers = self.api.ask_each(requests, self.settings.units_per_message, _BATCH_PATH)
        return {key: None if answer is None else tuple(answer.get("labelIds") or ()) for key, answer in answers.items()}

    # --- both

    @property
    def _users(self) -> Any:
        return gmail_users(self.api.base)

    def _state(self, cursor: GoogleCursor, page: ListingPage | None) -> dict[str, Json]:
        return as_state(self.address, replace(cursor, labels=self._names), page)

    def _download(self, ids: Sequence[str], wanted: GoogleSettings | None) -> Iterator[tuple[Batch, list[str]]]:
        """Yields full batches with the remaining ids; the rest stays in the packer. Before an error is raised, a last batch
        contains what was fetched."""
        left = dict.fromkeys(ids)
        try:
            while left:
                chunk = list(left)[: max(1, BATCH_MESSAGES - len(self._packer.messages))]
                for key, outcome in self.downloads.get(chunk):
                    got = self._to_result(key, outcome, wanted)
                    if not isinstance(got, Skipped) and not self._packer.room_for(got):
                        yield self._packer.take(), list(left)
                    del left[key]
                    if isinstance(got, Skipped):
                        self._packer.skip(got)
                    else:
                        self._packer.put(got)
                if self._packer.full:
                    yield self._packer.take(), list(left)
        except ConnectorError:
            if not self._packer.empty:
                yield self._packer.take(), list(left)
            raise

    def _to_result(self, key: str, outcome: Outcome, wanted: GoogleSettings | None) -> Got | Skipped:
        if not isinstance(outcome, Downloaded):
            return not_found(key, FOLDER) if outcome.is_not_found else FailedMessage(key, outcome.reason, FOLDER)
        about = outcome.about
        ids = [str(one) for one in about.get("labelIds") or ()]
        names = self._known_names(ids)
        rule = labels.message_rule(wanted, about, names) if wanted is not None else None
        if rule:
            if outcome.path is not None:
                outcome.path.unlink(missing_ok=True)
            return Skipped(key, rule, FOLDER)
        message = outcome.in_memory_if_small()
        return RawMessage(
            key,
            message.data,
            message.path,
            FOLDER,
            labels.flags(ids),
            labels.label_names(ids, names),
            labels.received_at(about),
        )

    def _known_names(self, ids: Collection[str] = ()) -> Mapping[str, str]:
        """Requested once, and again when an unknown label appears."""
        if self._names is None or any(labels.is_unknown(one, self._names) for one in ids):
            self._names = self._ask_names()
            self._names |= {one: one for one in ids if labels.is_unknown(one, self._names)}
        return self._names

    def _ask_names(self) -> dict[str, str]:
        request = self._users.labels().list(userId=_ME, fields="labels(id,name,type)")
        return labels.user_labels(self.api.ask(request, _LABELS_UNITS))

    def _translate_refusal(self, refused: GoogleRefused) -> ConnectorError:
        status = refused.refusal.status
        if status in (400, 403, 404):
            return AuthFailed(f"Gmail denies access to {self.address}: {refused}")
        return Unavailable(f"Gmail responded with HTTP {status} for {self.address}: {refused}")


def _number(value: object) -> int | None:
    return value if isinstance(value, int) else None
