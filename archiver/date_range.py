"""The range of dates in the archive. Every date from outside passes through `archivable`.

Postgres stores years that Python can't read, and Python reads years that overflow when a time zone is added. Between 1970 and
2200 neither happens, in any time zone, and no mail is from another time.
"""

from datetime import UTC, datetime

FIRST = datetime(1970, 1, 1, tzinfo=UTC)
END = datetime(2201, 1, 1, tzinfo=UTC)
"""The first moment that is out of range."""


def archivable(moment: datetime | None) -> datetime | None:
    """The same moment in UTC (UTC is assumed without a time zone), or None if it is out of range."""
    if moment is None:
        return None
    if moment.tzinfo is not UTC:
        try:
            moment = moment.replace(tzinfo=UTC) if moment.tzinfo is None else moment.astimezone(UTC)
        except OverflowError:
            return None
    return moment if FIRST <= moment < END else None
