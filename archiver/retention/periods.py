"""Periods such as 10y, 18m, 4w and 90d: in SQL, and as the moment after a time in Python."""

from __future__ import annotations

import re
from dataclasses import dataclass

from archiver.errors import UsageError

_PERIOD = re.compile(r"(\d{1,4})\s*([ymwd])", re.IGNORECASE)
_LONGEST_DAYS = 366 * 200


@dataclass(frozen=True, slots=True)
class Period:
    months: int
    days: int

    @classmethod
    def parse(cls, text: str) -> Period:
        match = _PERIOD.fullmatch(text.strip())
        if match is None or int(match[1]) == 0:
            raise UsageError(f"{text}: expected a period such as 10y, 18m (months), 4w or 90d")
        count, unit = int(match[1]), match[2].lower()
        found = cls(count * {"y": 12, "m": 1}.get(unit, 0), count * {"w": 7, "d": 1}.get(unit, 0))
        if found.shortest_days > _LONGEST_DAYS:
            raise UsageError(f"{text}: the longest period is 200y")
        return found

    @property
    def shortest_days(self) -> int:
        return self.months * 28 + self.days

    @property
    def longest_days(self) -> int:
        return self.months * 31 + self.days

    def sql(self) -> str:
        return f"make_interval(months => {self.months}, days => {self.days})"


def is_shorter(first: str, second: str) -> bool:
    """Whether the first period may end before the second, in whichever months they are."""
    one, other = Period.parse(first), Period.parse(second)
    if (one.months == 0) == (other.months == 0) or one.days == other.days == 0:
        return (one.months, one.days) < (other.months, other.days)
    return one.shortest_days < other.longest_days
