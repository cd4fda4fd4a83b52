"""One Gmail mailbox: listed page by page the first time, followed by its history afterwards."""

from __future__ import annotations

import calendar
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from connectors.base import (
    BATCH_MESSAGES,
    Batch,
    ChangeKind,
    CopyChange,
    FailedMessage,
    FolderListing,
    Json,
    Known,
    RawMessage,
    Skipped,
    not_found,
)
from connectors.errors import AuthFailed, ConnectorError, StateLost, Throttled, Unavailable
from connectors.google import labels
from connectors.google.api import Api, Refused
from connectors.google.changes import News, fold
from connectors.google.downloads import Downloads, Outcome
from connectors.google.labels import FOLDER
from connectors.google.place import Page, Place, as_state, read_page, read_place
from connectors.google.raw import Downloaded
from connectors.google.settings import GoogleSettings
from connectors.packing import Got, Packer
from connectors.selection import fits, rules_digest

_ME = "/gmail/v1/users/me"
_PAGE = 500
_PROFILE_UNITS, _LABELS_UNITS, _LIST_UNITS, _HISTORY_UNITS = 1, 1, 5, 2
_KEYS_AT_MOST = 200_000
_UNTOLD_AT_MOST = 5000
_HISTORY_TYPES = ("messageAdded", "messageDeleted", "labelAdded", "labelRemoved")


@dataclass(frozen=True, slots=True)
class Part:
    """A part of a listing, by one query."""

    name: str
    parameters: Mapping[str, Any]
    rule: str | None = None
    """What is listed here is left out by this rule."""
    unless_known: bool = False
    """… unless another part has brought it."""
    overlaps: bool = False
    """What is listed here may have been listed before."""
    pages: int | None = None


@dataclass(slots=True)
class _Listing:
    """The keys of a listing, told with the batches that come anyway."""

    is_continued: bool
    """It began in an earlier run."""
    _untold: list[str] = field(default_factory=list)
    _all: dict[str, None] | None = field(default_factory=dict)
    """All keys, as long as they can be held."""

    def __post_init__(self) -> None:
        if self.is_continued:
            self._all = None

    def add(self, ids: Sequence[str]) -> None:
        self._untold += ids
        if self._all is not None:
            self._all.update(dict.fromkeys(ids))
            self._all = self._all if len(self._all) <= _KEYS_AT_MOST else None

    def has(self, key: str) -> bool:
        return self._all is not None and key in self._all

    @property
    def is_long(self) -> bool:
        return len(self._untold) >= _UNTOLD_AT_MOST

    def piece(self, *, is_last: bool = False) -> FolderListing | None:
        """What was not told yet. Seen in one go, the whole also tells what is not there any more."""
        if is_last and self._all is not None:
            return FolderListing(FOLDER, tuple(self._all))
        if not self._untold:
            return None
        found = FolderListing(FOLDER, tuple(self._untold), self.is_continued, is_whole=False)
        self._untold, self.is_continued = [], True
        return found


@dataclass(slots=True)
class Mailbox:
    address: str
    api: Api
    settings: GoogleSettings
    downloads: Downloads
    _packer: Packer = field(default_factory=lambda: Packer(BATCH_MESSAGES))
    _names: Mapping[str, str] | None = None
    _drafts: frozenset[str] | None = None

    def batches(self, state: Mapping[str, Json], known: Known) -> Iterator[Batch]:
        """What was fetched before an error is given before the error is raised."""
        place, rules = read_place(state, self.address), rules_digest(self.settings)
        page = read_page(state)
        self._names = place.labels
        try:
            if place.rules != rules or not place.history:
                yield from self._listed(Place(rules=rules), None, known)
            elif page is not None:
                yield from self._listed(place, page, known)
            else:
                yield from self._followed(place, known)
        except Refused as refused:
            raise self._translated(refused) from refused

    def again(self, keys: Collection[str]) -> Iterator[Batch]:
        """These messages, whatever the rules say."""
        try:
            for batch, _ in self._fetched(list(dict.fromkeys(keys)), wanted=None):
                yield batch
            if not self._packer.empty:
                yield self._packer.take()
        except Refused as refused:
            raise self._translated(refused) from refused

    # --- the first time

    def _listed(self, place: Place, page: Page | None, known: Known) -> Iterator[Batch]:
        parts = self._parts()
        listing = _Listing(is_continued=page is not None)
        if page is None:
            profile = self.api.get(f"{_ME}/profile", {}, _PROFILE_UNITS)
            self.api.context.progress(0, _number(profile.get("messagesTotal")))
            self._names = self._ask_names()
            place = replace(place, history=str(profile.get("historyId", "")), labels=self._names)
            page = Page(parts[0].name, "")
            if not place.history.isdigit():
                raise Unavailable("Gmail does not say where its history is")
        numbers = {part.name: number for number, part in enumerate(parts)}
        if page.part not in numbers:
            raise StateLost("its labels have changed while it was listed")
        for part in parts[numbers[page.part] :]:
            page = page if page.part == part.name else Page(part.name, "")
            if part.overlaps and not self._packer.empty:  # what the others have brought has to be known
                yield self._packer.take(self._state(place, page), listing.piece())
            read = 0
            while True:
                for batch, left in self._fetched(page.todo, self.settings):
                    state = self._state(place, replace(page, todo=tuple(left)))
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
                    if not self._packer.empty:  # what was fetched is kept, or the pause would never get us further
                        yield self._packer.take(self._state(place, page), listing.piece())
                    raise
                page, read = following, read + 1
                listing.add(ids)
                if self._packer.full or listing.is_long:
                    yield self._packer.take(self._state(place, page), listing.piece())
        yield self._packer.take(self._state(place, None), listing.piece(is_last=True))

    def _parts(self) -> list[Part]:
        """Together they are the whole mailbox. Searching (`q`) is behind by seconds at times, so the newest page is looked at
        without it, too."""
        settings = self.settings
        if settings.folders_in:
            return self._label_parts()
        parts = [Part("all", {})]
        if settings.date_from is not None:
            border = calendar.timegm(settings.date_from.timetuple())
            parts = [
                Part("all", {"q": f"after:{border - 1}"}),
                Part("newest", {}, overlaps=True, pages=1),
                Part("old", {"q": f"before:{border}"}, f"date_from: {settings.date_from}", unless_known=True, overlaps=True),
            ]
        for name, wanted in (("SPAM", settings.include_spam), ("TRASH", settings.include_trash)):
            rule = None if wanted else f"include_{name.lower()}: no"
            parts.append(Part(name, {"labelIds": name, "includeSpamTrash": "true"}, rule))
        return parts

    def _label_parts(self) -> list[Part]:
        names = self._known_names()
        wanted = [
            one
            for one in (*labels.SYSTEM_NAMES, *names)
            if any(fits(pattern, labels.label_names([one], names)[0]) for pattern in self.settings.folders_in)
        ]
        parts = [Part(one, {"labelIds": one, "includeSpamTrash": "true"}, overlaps=True) for one in wanted]
        rule = f"folders_in: {', '.join(self.settings.folders_in)}"
        return [*parts, Part("rest", {"includeSpamTrash": "true"}, rule, unless_known=True, overlaps=True)]

    def _page(self, part: Part, token: str) -> tuple[list[str], str | None]:
        parameters = {**part.parameters, "maxResults": _PAGE, "fields": "messages/id,nextPageToken"}
        if token:
            parameters["pageToken"] = token
        try:
            answer = self.api.get(f"{_ME}/messages", parameters, _LIST_UNITS)
        except Refused as refused:
            if token and refused.refusal.status in (400, 404):
                raise StateLost(f"the place in the listing is not valid any more: {refused}") from refused
            raise
        ids = [str(message["id"]) for message in answer.get("messages") or () if message.get("id")]
        return list(dict.fromkeys(ids)), answer.get("nextPageToken") or None

    def _plan(self, part: Part, ids: Sequence[str], token: str | None, known: Known) -> Page:
        """One question for the whole page; nothing that is held or unwanted is downloaded."""
        held = known(ids) if ids and (part.rule is None or part.unless_known) else set()
        drafts = self._draft_ids() if ids and part.name in ("all", "newest") else frozenset()
        todo = []
        for key in ids:
            rule = part.rule or ("include_drafts: no" if key in drafts else None)
            if key in held:
                continue
            if rule:
                self._packer.skip(Skipped(key, rule, FOLDER))
            else:
                todo.append(key)
        return Page(part.name, token, tuple(todo))

    def _draft_ids(self) -> frozenset[str]:
        """So that they need not be downloaded in order to be left out."""
        if self.settings.include_drafts:
            return frozenset()
        if self._drafts is None:
            found: list[str] = []
            token: str | None = ""
            while token is not None and len(found) < _KEYS_AT_MOST:
                ids, token = self._page(Part("drafts", {"labelIds": "DRAFT"}), token)
                found += ids
            self._drafts = frozenset(found)
        return self._drafts

    # --- later

    def _followed(self, place: Place, known: Known) -> Iterator[Batch]:
        goes_on = True
        while goes_on:
            try:
                answer = self._history(place.history)
            except Refused as refused:
                if refused.refusal.status != 404:
                    raise
                yield from self._listed(Place(rules=place.rules), None, known)  # it has expired: a list of ids
                return
            records = answer.get("history") or []
            goes_on = bool(answer.get("nextPageToken") and records)
            reached = str(records[-1].get("id", "")) if goes_on else str(answer.get("historyId", ""))
            after = replace(place, history=reached if reached.isdigit() else place.history)
            changes, todo = self._news(fold(records), known)
            for batch, _ in self._fetched(todo, self.settings):
                yield batch
            if changes or after != place or self._names != place.labels or not self._packer.empty:
                yield self._packer.take(self._state(after, None), None, tuple(changes))
            place = replace(after, labels=self._names)

    def _history(self, start: str) -> dict[str, Any]:
        parameters = {"startHistoryId": start, "maxResults": _PAGE, "historyTypes": _HISTORY_TYPES}
        return self.api.get(f"{_ME}/history", parameters, _HISTORY_UNITS)

    def _news(self, news: News, known: Known) -> tuple[list[CopyChange], list[str]]:
        """What changed in what we hold, and what we do not hold and want."""
        changes = [CopyChange(ChangeKind.GONE, key) for key in news.gone]
        todo = []
        held = known(news.seen) if news.seen else set()
        for key, ids in news.seen.items():
            if key in held:
                ids = self._labels_of(key) if ids is None else ids
                if ids is not None:
                    named = labels.label_names(ids, self._known_names(ids))
                    changes.append(CopyChange(ChangeKind.RELABELLED, key, flags=labels.flags(ids), labels=named))
                continue
            rule = labels.labels_rule(self.settings, ids, self._known_names(ids)) if ids is not None else None
            if rule:
                self._packer.skip(Skipped(key, rule, FOLDER))
            else:
                todo.append(key)
        return changes, todo

    def _labels_of(self, key: str) -> tuple[str, ...] | None:
        try:
            answer = self.api.get(f"{_ME}/messages/{key}", {"format": "minimal"}, self.settings.units_per_message)
        except Refused:
            return None
        return tuple(answer.get("labelIds") or ())

    # --- both

    def _state(self, place: Place, page: Page | None) -> dict[str, Json]:
        return as_state(self.address, replace(place, labels=self._names), page)

    def _fetched(self, ids: Sequence[str], wanted: GoogleSettings | None) -> Iterator[tuple[Batch, list[str]]]:
        """Batches that are full, with the ids that are left; the rest stays in the packer. An error comes after a last batch of
        what came before it."""
        left = dict.fromkeys(ids)
        try:
            while left:
                chunk = list(left)[: max(1, BATCH_MESSAGES - len(self._packer.messages))]
                for key, outcome in self.downloads.get(chunk):
                    got = self._got(key, outcome, wanted)
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

    def _got(self, key: str, outcome: Outcome, wanted: GoogleSettings | None) -> Got | Skipped:
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
        """Asked for once, and again when a label turns up that was made since."""
        if self._names is None or any(labels.is_unknown(one, self._names) for one in ids):
            self._names = self._ask_names()
            self._names |= {one: one for one in ids if labels.is_unknown(one, self._names)}
        return self._names

    def _ask_names(self) -> dict[str, str]:
        return labels.user_labels(self.api.get(f"{_ME}/labels", {"fields": "labels(id,name,type)"}, _LABELS_UNITS))

    def _translated(self, refused: Refused) -> ConnectorError:
        status = refused.refusal.status
        if status in (400, 403, 404):
            return AuthFailed(f"Gmail gives no access to {self.address}: {refused}")
        return Unavailable(f"Gmail answers {status} for {self.address}: {refused}")


def _number(value: object) -> int | None:
    return value if isinstance(value, int) else None
