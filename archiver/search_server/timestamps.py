"""Times and durations in the format of Meilisearch."""

from __future__ import annotations

from datetime import UTC, datetime


def now() -> str:
    return datetime.now(UTC).isoformat(timespec="microseconds").replace("+00:00", "Z")


def parse(text: str) -> datetime | None:
    """Parses an RFC 3339 time, a time without zone, or a day (both UTC); None for anything else."""
    try:
        moment = datetime.fromisoformat(text.replace("Z", "+00:00").replace("z", "+00:00"))
    except ValueError:
        return None
    return moment if moment.tzinfo else moment.replace(tzinfo=UTC)


def duration(start: str | None, end: str | None) -> str | None:
    """The duration between two times, in ISO 8601."""
    first, last = parse(start) if start else None, parse(end) if end else None
    if first is None or last is None:
        return None
    return f"PT{max(0.0, (last - first).total_seconds()):.6f}S"
