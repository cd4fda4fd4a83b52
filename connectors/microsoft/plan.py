"""Decides which folders of a mailbox are read first, and what becomes of each entry of a page. Pure."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate

from connectors.base import CopyChange, FolderListing, Json, Skipped
from connectors.errors import Unavailable
from connectors.microsoft.cursor import MicrosoftCursor
from connectors.microsoft.folders import GraphFolder
from connectors.microsoft.graph import BATCH_REQUESTS
from connectors.microsoft.metadata import MessageMetadata, change_of
from connectors.microsoft.settings import GraphSettings
from connectors.selection import date_rule, folder_rule

_FEW_MESSAGES = 50


def first_few(folders: Sequence[GraphFolder]) -> list[GraphFolder]:
    """The first folder, and the following ones while they have few messages in total. What a throttled job requests too early
    has to be requested again by the next one."""
    totals = accumulate(folder.total for folder in folders)
    enough = next((number for number, total in enumerate(totals) if total > _FEW_MESSAGES), len(folders))
    return list(folders[: min(max(enough, 1), BATCH_REQUESTS - 1)])


def resume_at(entries: Sequence[MessageMetadata], cursor: MicrosoftCursor) -> int:
    """How many entries of a page are done. If the page has changed, those up to the last known one, or none."""
    if cursor.done <= len(entries) and cursor.done and entries[cursor.done - 1].key == cursor.last:
        return cursor.done
    return next((number for number, entry in enumerate(entries, 1) if entry.key == cursor.last), 0) if cursor.done else 0


def next_cursor(cursor: MicrosoftCursor, page: Mapping[str, Json], folder: GraphFolder) -> MicrosoftCursor:
    """The cursor after a page."""
    if more := page.get("@odata.nextLink"):
        return replace(cursor, link=str(more), done=0, last="", path=folder.path)
    if end := page.get("@odata.deltaLink"):
        return replace(cursor, link=str(end), done=0, last="", path=folder.path, is_full=False, is_again=False)
    raise Unavailable("Microsoft Graph returned no link to the next page of messages")


@dataclass(frozen=True, slots=True)
class PagePlan:
    skipped: Mapping[str, Skipped]
    """Excluded by a rule."""
    wanted: Mapping[str, MessageMetadata]
    """To be downloaded."""
    changes: tuple[CopyChange, ...]
    """Flags and categories of archived copies."""
    left_folder: tuple[str, ...]
    """Archived, but no longer in this folder: moved or deleted."""


def plan_page(
    folder: GraphFolder,
    cursor: MicrosoftCursor,
    entries: Sequence[MessageMetadata],
    held: Collection[str],
    settings: GraphSettings,
) -> PagePlan:
    """`held`: the keys that are archived. A draft that changed since the last full listing is downloaded again, because its
    bytes are new."""
    unwanted = folder_rule(settings, folder.path, folder.role)
    skipped: dict[str, Skipped] = {}
    wanted: dict[str, MessageMetadata] = {}
    for entry in entries:
        if entry.is_removed or (entry.key in held and (cursor.is_full or not entry.is_draft)):
            continue
        rule = unwanted or date_rule(settings, entry.received_at)
        if rule is None:
            wanted[entry.key] = entry
        elif entry.key not in held:
            skipped[entry.key] = Skipped(entry.key, rule, folder.path)
    archived = [entry for entry in entries if entry.key in held]
    return PagePlan(
        skipped,
        wanted,
        tuple(change_of(entry, folder.path) for entry in archived if not entry.is_removed),
        tuple(entry.key for entry in archived if entry.is_removed),
    )


def page_listing(
    folder: GraphFolder, cursor: MicrosoftCursor, entries: Sequence[MessageMetadata], following: MicrosoftCursor
) -> FolderListing | None:
    """A page's contribution to the listing of the folder, which may be too long for memory."""
    is_first, is_last = not cursor.link, not following.is_full
    keys = tuple(entry.key for entry in entries if not entry.is_removed)
    if not cursor.is_full or (cursor.is_again and is_last and not is_first):  # (the whole listing was reported before)
        return None
    if not keys and not cursor.is_again:
        return None
    return FolderListing(folder.path, keys, is_continued=not is_first, is_whole=is_first and is_last)
