"""Which files of a folder changed since the last round: by their change times, which nobody can set back."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass

from connectors.files.place import Place
from connectors.files.tree import Directory

_TICK_NS = 2_000_000_000


@dataclass(frozen=True, slots=True)
class Look:
    newest: int
    recent: str
    has_news: bool


def change_time(directory: Directory, name: str) -> int:
    """0 for a file that is gone."""
    try:
        return (directory.path / name).lstat().st_ctime_ns
    except OSError:
        return 0


def look(directory: Directory, names: list[str], place: Place) -> Look:
    """In one pass, remembering no more than one number and a hash."""
    times = [change_time(directory, name) for name in names]
    newest = max(times, default=0)
    return Look(
        newest, _digest(names, times, newest), newest > place.since or _digest(names, times, place.since) != place.recent
    )


def is_news(place: Place, changed_at: int) -> bool:
    """Also what changed in the tick before: whether all of it was seen can't be told."""
    return changed_at >= place.since - _TICK_NS


def _digest(names: list[str], times: list[int], until: int) -> str:
    digest = hashlib.sha256()
    for name, at in zip(names, times, strict=True):
        if until - _TICK_NS <= at <= until:
            digest.update(f"{name}:{at}\n".encode("utf-8", "surrogateescape"))
    return digest.hexdigest()[:16]
