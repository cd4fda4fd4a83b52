"""Which files of a folder changed since the last round: by their change times, which only the system clock can set back.

After the clock was set back, new files are older than the newest one that was seen. So it is noticed when anything at or below
that time has come, changed or gone, and once a day such a folder is compared as a whole.
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
    """Of all files, to be compared in the next round."""
    whole_at: int
    has_news: bool
    is_whole: bool
    """Something below the watermark is not as it was, and the last whole comparison was a day ago."""


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
    """Including what changed in the tick before, of which some may have been missed."""
    return changed_at >= cursor.since - _TICK_NS


def _digest(names: Sequence[str], times: Sequence[int], start: int, until: int) -> str:
    digest = hashlib.sha256()
    for name, at in zip(names, times, strict=True):
        if start <= at <= until:
            digest.update(f"{name}:{at}\n".encode("utf-8", "surrogateescape"))
    return digest.hexdigest()[:16]
