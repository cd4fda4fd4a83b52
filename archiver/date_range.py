"""The dates that the archive holds. Every date that comes from outside passes through `archivable`.

Postgres stores years that Python can't read, and Python reads years that overflow when a time zone is added. Between 1970 and
2200 neither happens, in any zone, and no mail is from another time.
"""

from datetime import UTC, datetime

FIRST = datetime(1970, 1, 1, tzinfo=UTC)
END = datetime(2201, 1, 1, tzinfo=UTC)
"""The first moment that is out of range."""


def archivable(given: datetime | None) -> datetime | None:
    """The same moment in UTC (one without a zone is taken as UTC), or None if it is out of range."""
    if given is None:
        return None
    if given.tzinfo is not UTC:
        try:
            given = given.replace(tzinfo=UTC) if given.tzinfo is None else given.astimezone(UTC)
        except OverflowError:
            return None
    return given if FIRST <= given < END else None
