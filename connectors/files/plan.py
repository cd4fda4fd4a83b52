"""Decides what a scan of files reads and reports. Pure: `scan.py` does the reading."""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from connectors.base import ChangeKind, CopyChange, FailedMessage, FolderListing, Json, Skipped
from connectors.files.cursor import FilesCursor
from connectors.files.items import Found, FoundMessage, Remark
from connectors.files.mtime_index import FolderChanges
from connectors.files.names import shown


def outdated_keys(state: Mapping[str, Json], mailbox_key: str, turn: str) -> list[str]:
    """The cursors of an earlier import, or of other rules. They are removed with the first batch."""
    return [
        key
        for key, value in state.items()
        if key.startswith(f"{mailbox_key}:") and not (isinstance(value, dict) and value.get("turn") == turn)
    ]


def resume_folder(stored: FilesCursor | None, turn: str, identity: str, changes: FolderChanges | None) -> FilesCursor | None:
    """Where to begin in a folder; None if nothing has changed since the last round.

    `changes`: for a folder that is read again and again. A folder that was interrupted continues where it was.
    """
    if stored is not None and not stored.is_done:
        return stored
    begun = replace(stored or FilesCursor(turn, identity), is_done=False, is_partial=stored is not None)
    if changes is None:
        return begun
    if stored is not None and not changes.has_news:
        return None
    return replace(
        begun,
        next_since=changes.newest,
        next_recent=changes.recent,
        next_names=changes.names,
        next_whole_at=changes.whole_at,
        is_whole=stored is not None and changes.is_whole,
    )


def finish_folder(cursor: FilesCursor) -> FilesCursor:
    """What was seen when the round began is what the next round compares with."""
    return FilesCursor(
        cursor.turn,
        cursor.identity,
        is_done=True,
        since=cursor.next_since,
        recent=cursor.next_recent,
        names=cursor.next_names,
        whole_at=cursor.next_whole_at,
    )


def names_left(names: Iterable[str], cursor: FilesCursor) -> list[str]:
    """Names are read in their order, so everything before the cursor is done. The file at the cursor is done if `at` is
    negative."""
    is_read = cursor.name if cursor.at < 0 else None
    return [name for name in names if shown(name) >= cursor.name and shown(name) != is_read]


@dataclass(frozen=True, slots=True)
class ScanBatch:
    messages: tuple[FoundMessage, ...]
    """To be stored; all others are archived or excluded."""
    changes: tuple[CopyChange, ...]
    skipped: tuple[Skipped, ...]
    failed: tuple[FailedMessage, ...]
    listings: tuple[FolderListing, ...]
    begun_folders: tuple[str, ...]
    """Short hashes of the folders whose listing begins with this batch."""


def plan_batch(
    found: Sequence[Found],
    read_whole: Sequence[Remark],
    held: Collection[str],
    cursor: FilesCursor,
    *,
    begun_folders: Collection[str],
    is_fresh: bool,
    failed_before: Collection[str],
) -> ScanBatch:
    """`held`: the keys that are archived, or failed earlier. `is_fresh`: nothing of the current file is listed yet.

    A file in `read_whole` that failed earlier is skipped with a reason, which replaces its failure.
    """
    messages = [one for one in found if isinstance(one, FoundMessage)]
    failures = [one for one in found if isinstance(one, Remark) and one.is_failure]
    failed = {*failed_before, *(one.key for one in failures)}
    everything = [*found, *(one for one in read_whole if one.key in held and one.key not in failed)]
    listings = _Listings(cursor, held, begun_folders, is_fresh)
    return ScanBatch(
        tuple(one for one in messages if one.rule is None and one.key not in held),
        tuple(_flag_changes(messages, held, cursor)),
        tuple(_skipped(everything)),
        tuple(FailedMessage(one.key, one.reason, one.folder) for one in failures),
        tuple(listings.all(everything)),
        tuple(listings.begun),
    )


def _flag_changes(messages: Iterable[FoundMessage], held: Collection[str], cursor: FilesCursor) -> Iterable[CopyChange]:
    """In a folder of single files that is read again: flags that changed with the name of a file."""
    if cursor.is_partial and not cursor.file:
        return (CopyChange(ChangeKind.RELABELLED, one.key, flags=one.flags) for one in messages if one.key in held)
    return ()


def _skipped(found: Iterable[Found]) -> Iterable[Skipped]:
    for one in found:
        if isinstance(one, FoundMessage):
            if one.rule is not None:
                yield Skipped(one.key, one.rule, one.folder)
        elif not one.is_failure:
            yield Skipped(one.key, one.reason, one.folder)


class _Listings:
    """A file is always listed as a whole. Of single files in a folder that is read again, only the new ones are."""

    def __init__(self, cursor: FilesCursor, held: Collection[str], begun: Collection[str], is_fresh: bool) -> None:
        self._cursor, self._held, self._is_fresh = cursor, held, is_fresh
        self._begun_before = begun
        self.begun: dict[str, None] = {}

    def all(self, found: Iterable[Found]) -> Iterable[FolderListing]:
        folders: dict[str, list[str]] = {}
        for one in found:
            folders.setdefault(one.folder, []).append(one.key)
        listings = (self._listing(folder, keys) for folder, keys in folders.items())
        return [listing for listing in listings if listing is not None]

    def _listing(self, folder: str, keys: list[str]) -> FolderListing | None:
        if not self._cursor.is_partial:
            short = hashlib.sha256(folder.encode()).hexdigest()[:12]
            is_continued = short in self._begun_before or short in self.begun
            self.begun[short] = None
        elif self._cursor.file:
            is_continued, self._is_fresh = not self._is_fresh, False
        else:
            is_continued, keys = True, [key for key in keys if key not in self._held]
        return FolderListing(folder, tuple(keys), is_continued, is_whole=False) if keys else None
