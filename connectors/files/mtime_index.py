"""Which files of a folder changed since the last round: by their change times, which only the system clock can set back.

After the clock was set back, new files are older than the newest one that was seen. So it is noticed when anything at or below
that time has come, changed or gone, and once a day such a folder is compared as a whole.
"""

from __future__ import annotations

import hashlib
import time
from dataclasses import dataclass

from connectors.files.cursor import FilesCursor
from connectors.files.tree import FileDirectory

_TICK_NS = 2_000_000_000
_DAY_SECONDS = 86_400


@dataclass(frozen=True, slots=True)
class Look:
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


def look(directory: FileDirectory, names: list[str], place: FilesCursor, *, is_first: bool) -> Look:
    """In one pass, remembering no more than two numbers and two hashes."""
    times = [change_time(directory, name) for name in names]
    newest, now = max(times, default=0), int(time.time())
    in_doubt = _digest(names, times, 0, place.since) != place.names
    is_whole = in_doubt and not 0 <= now - place.whole_at < _DAY_SECONDS
    has_news = newest > place.since or _digest(names, times, place.since - _TICK_NS, place.since) != place.recent
    return Look(
        newest,
        _digest(names, times, newest - _TICK_NS, newest),
        place.names if in_doubt and not is_whole and not is_first else _digest(names, times, 0, newest),
        now if is_whole or is_first else place.whole_at,
        has_news or is_whole,
        is_whole,
    )


def is_news(place: FilesCursor, changed_at: int) -> bool:
    """Including what changed in the tick before, of which some may have been missed."""
    return changed_at >= place.since - _TICK_NS


def _digest(names: list[str], times: list[int], start: int, until: int) -> str:
    digest = hashlib.sha256()
    for name, at in zip(names, times, strict=True):
        if start <= at <= until:
            digest.update(f"{name}:{at}\n".encode("utf-8", "surrogateescape"))
    return digest.hexdigest()[:16]
