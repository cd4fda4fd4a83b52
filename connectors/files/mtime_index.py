"""Finds the files of a folder that changed since the last round, by change time (ctime), which programs cannot set.

If the clock was set back, new files are older than the newest known one. So any change at or below
that time is detected, and such a folder is compared as a whole, at most once a day.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass

from connectors.files.cursor import FilesCursor
from connectors.files.tree import FileDirectory

_TICK_NS = 2_000_000_000  # the coarsest clock of a file system: FAT counts in steps of two seconds
_DAY_SECONDS = 86_400


@dataclass(frozen=True, slots=True)
class FolderChanges:
    newest: int
    recent: str
    names: str
    """Digest of all files, to compare in the next round."""
    whole_at: int
    has_news: bool
    is_whole: bool
    """Something below the watermark has changed, and the last whole comparison was a day ago."""


def change_time(directory: FileDirectory, name: str) -> int:
    """0 for a file that is gone."""
    try:
        return (directory.path / name).lstat().st_ctime_ns
    except OSError:
        return 0


def change_times(directory: FileDirectory, names: Sequence[str]) -> list[int]:
    return [change_time(directory, name) for name in names]


def compare(names: Sequence[str], times: Sequence[int], cursor: FilesCursor, now: int, *, is_first: bool) -> FolderChanges:
    """Compares a folder with the last round, of which the cursor has no more than two numbers and two hashes. Pure; `now` is in
    seconds since 1970."""
    newest = max(times, default=0)
    in_doubt = _digest(names, times, 0, cursor.since) != cursor.names
    is_whole = in_doubt and not 0 <= now - cursor.whole_at < _DAY_SECONDS
    has_news = newest > cursor.since or _digest(names, times, cursor.since - _TICK_NS, cursor.since) != cursor.recent
    return FolderChanges(
        newest,
        _digest(names, times, newest - _TICK_NS, newest),
        cursor.names if in_doubt and not is_whole and not is_first else _digest(names, times, 0, newest),
        now if is_whole or is_first else cursor.whole_at,
        has_news or is_whole,
        is_whole,
    )


def is_news(cursor: FilesCursor, changed_at: int) -> bool:
    """Includes changes within one tick before, some of which may have been missed."""
    return changed_at >= cursor.since - _TICK_NS


def _digest(names: Sequence[str], times: Sequence[int], start: int, until: int) -> str:
    digest = hashlib.sha256()
    for name, at in zip(names, times, strict=True):
        if start <= at <= until:
            digest.update(f"{name}:{at}\n".encode("utf-8", "surrogateescape"))
    return digest.hexdigest()[:16]
