"""What policies mean, said once more in plain Python: the model beside the time travel."""

from __future__ import annotations

import re
from calendar import monthrange
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta

from archiver.retention.policies import PolicyVersion


def base_time(at: datetime, *, from_year_end: bool) -> datetime:
    return datetime(at.year + 1, 1, 1, tzinfo=UTC) if from_year_end else at


def add_period(at: datetime, period: str) -> datetime:
    count, unit = int(period[:-1]), period[-1]
    if unit in "dw":
        return at + timedelta(days=count * (7 if unit == "w" else 1))
    months = at.year * 12 + at.month - 1 + count * (12 if unit == "y" else 1)
    year, month = divmod(months, 12)
    return at.replace(year=year, month=month + 1, day=min(at.day, monthrange(year, month + 1)[1]))


@dataclass
class Plan:
    """mail(n) is from sender{n % 7}, with the subject "Invoice number n"."""

    received: dict[int, datetime] = field(default_factory=dict)
    archived: dict[int, datetime] = field(default_factory=dict)
    alive: set[int] = field(default_factory=set)
    rules: list[PolicyVersion] = field(default_factory=list)
    held: frozenset[int] = frozenset()

    def arrive(self, number: int, received: datetime, archived: datetime) -> None:
        self.received[number], self.archived[number] = received, archived
        self.alive.add(number)

    def expire(self, now: datetime) -> None:
        self.alive = {number for number in self.alive if number in self.held or not self._is_due(number, now)}

    def _is_due(self, number: int, now: datetime) -> bool:
        fitting = [rule for rule in self.rules if self._fits(rule, number)]
        deletes = any(rule.delete_after and self._end(rule, number, rule.delete_after) <= now for rule in fitting)
        keeps = any(rule.keep_for and self._end(rule, number, rule.keep_for) > now for rule in fitting)
        return deletes and not keeps

    def _end(self, rule: PolicyVersion, number: int, period: str) -> datetime:
        times = self.received if rule.counted_from == "received" else self.archived
        return add_period(base_time(times[number], from_year_end=rule.from_year_end), period)

    def _fits(self, rule: PolicyVersion, number: int) -> bool:
        if match := re.fullmatch(r"from:sender(\d)@example.org", rule.query):
            return number % 7 == int(match[1])
        if match := re.fullmatch(r'subject:"number (\d)"', rule.query):
            return number == int(match[1])
        assert rule.query == ""
        return True
