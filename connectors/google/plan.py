"""Decides how a mailbox is listed, and what becomes of each message of a page or a history. Pure."""

from __future__ import annotations

import calendar
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

from connectors.base import ChangeKind, CopyChange, FolderListing, Skipped
from connectors.google import labels
from connectors.google.changes import News
from connectors.google.labels import FOLDER
from connectors.google.settings import GoogleSettings
from connectors.selection import matches

KEYS_AT_MOST = 200_000
_UNREPORTED_AT_MOST = 5000


@dataclass(frozen=True, slots=True)
class ListingPart:
    """A part of a listing: one query."""

    name: str
    parameters: Mapping[str, Any]
    rule: str | None = None
    """The rule that excludes what is listed here."""
    unless_known: bool = False
    """… unless another part has listed it."""
    overlaps: bool = False
    """May list what other parts have listed."""
    pages: int | None = None

    @property
    def needs_lookup(self) -> bool:
        """Whether it matters which of its messages are archived."""
        return self.rule is None or self.unless_known


@dataclass(slots=True)
class ListingKeys:
    """The keys of a listing, reported with the batches that are stored anyway."""

    is_continued: bool
    """The listing began in an earlier run."""
    _unreported: list[str] = field(default_factory=list)
    _all: dict[str, None] | None = field(default_factory=dict)
    """All keys, while they fit into memory."""

    def __post_init__(self) -> None:
        if self.is_continued:
            self._all = None

    def add(self, ids: Sequence[str]) -> None:
        self._unreported += ids
        if self._all is not None:
            self._all.update(dict.fromkeys(ids))
            self._all = self._all if len(self._all) <= KEYS_AT_MOST else None

    def has(self, key: str) -> bool:
        return self._all is not None and key in self._all

    @property
    def is_long(self) -> bool:
        return len(self._unreported) >= _UNREPORTED_AT_MOST

    def piece(self, *, is_last: bool = False) -> FolderListing | None:
        """The keys not reported yet. A listing seen in a single run is whole, and also shows what is gone."""
        if is_last and self._all is not None:
            return FolderListing(FOLDER, tuple(self._all))
        if not self._unreported:
            return None
        found = FolderListing(FOLDER, tuple(self._unreported), self.is_continued, is_whole=False)
        self._unreported, self.is_continued = [], True
        return found


def mailbox_parts(settings: GoogleSettings) -> list[ListingPart]:
    """Together they cover the whole mailbox. Search (`q`) sometimes lags by seconds, so the newest page is also listed without
    it."""
    parts = [ListingPart("all", {})]
    if settings.has_dates:
        first = None if settings.date_from is None else calendar.timegm(settings.date_from.timetuple())
        end = None if settings.date_to is None else calendar.timegm((settings.date_to + timedelta(days=1)).timetuple())
        after, before = f"after:{(first or 0) - 1}", f"before:{end}"
        wanted = " ".join(term for term, border in ((after, first), (before, end)) if border is not None)
        parts = [ListingPart("all", {"q": wanted}), ListingPart("newest", {}, overlaps=True, pages=1)]
        if first is not None:
            rule = f"date_from: {settings.date_from}"
            parts.append(ListingPart("old", {"q": f"before:{first}"}, rule, unless_known=True, overlaps=True))
        if end is not None:
            rule = f"date_to: {settings.date_to}"
            parts.append(ListingPart("later", {"q": f"after:{end - 1}"}, rule, unless_known=True, overlaps=True))
    for name, is_wanted in (("SPAM", settings.include_spam), ("TRASH", settings.include_trash)):
        excluded = None if is_wanted else f"include_{name.lower()}: no"
        parts.append(ListingPart(name, {"labelIds": name, "includeSpamTrash": True}, excluded))
    return parts


def label_parts(settings: GoogleSettings, names: Mapping[str, str]) -> list[ListingPart]:
    """For a mailbox of which only some labels are wanted: each of them, then the rest, which is excluded."""
    wanted = [
        label
        for label in (*labels.SYSTEM_NAMES, *names)
        if any(matches(pattern, labels.label_names([label], names)[0]) for pattern in settings.folders_in)
    ]
    parts = [ListingPart(label, {"labelIds": label, "includeSpamTrash": True}, overlaps=True) for label in wanted]
    rule = f"folders_in: {', '.join(settings.folders_in)}"
    return [*parts, ListingPart("rest", {"includeSpamTrash": True}, rule, unless_known=True, overlaps=True)]


@dataclass(frozen=True, slots=True)
class MessagePlan:
    todo: tuple[str, ...]
    """To be downloaded."""
    skipped: tuple[Skipped, ...] = ()
    changes: tuple[CopyChange, ...] = ()


def plan_page(part: ListingPart, ids: Sequence[str], held: Collection[str], drafts: Collection[str]) -> MessagePlan:
    """`held`: the keys that are archived. `drafts`: those to be excluded."""
    rules = {key: part.rule or ("include_drafts: no" if key in drafts else None) for key in ids if key not in held}
    skipped = tuple(Skipped(key, rule, FOLDER) for key, rule in rules.items() if rule)
    return MessagePlan(tuple(key for key, rule in rules.items() if not rule), skipped)


def plan_news(
    news: News,
    held: Collection[str],
    omitted: Mapping[str, tuple[str, ...] | None],
    names: Mapping[str, str],
    settings: GoogleSettings,
) -> MessagePlan:
    """`omitted`: the labels of archived messages that the history does not report; None if they are unknown. A new message
    without reported labels is downloaded, and the rules are applied to what arrives."""
    changes = [CopyChange(ChangeKind.GONE, key) for key in news.gone]
    todo, skipped = [], []
    for key, reported in news.seen.items():
        if key in held:
            ids = omitted.get(key) if reported is None else reported
            if ids is not None:
                named = labels.label_names(ids, names)
                changes.append(CopyChange(ChangeKind.RELABELLED, key, flags=labels.flags(ids), labels=named))
            continue
        rule = labels.labels_rule(settings, reported, names) if reported is not None else None
        if rule:
            skipped.append(Skipped(key, rule, FOLDER))
        else:
            todo.append(key)
    return MessagePlan(tuple(todo), tuple(skipped), tuple(changes))
