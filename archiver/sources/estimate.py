"""Estimates how long a running cycle still takes: from the provider's limits at first, then from what was measured. Pure."""

from __future__ import annotations

from dataclasses import dataclass

from connectors.pace import Pace

_TRUST_SECONDS = 60.0
"""After this time, what was measured counts as much as what was expected."""
_MEASURED_SECONDS = 2.0
_DAY_SECONDS = 86400.0


@dataclass(frozen=True, slots=True)
class CycleFigures:
    """What a running cycle has done, summed over its mailboxes."""

    seconds: float
    seen: int
    archived: int
    bytes: int
    mailboxes: int
    ended_mailboxes: int
    running_mailboxes: int
    counted_mailboxes: int
    """Mailboxes whose size is known."""
    counted_total: int
    """The messages in those."""
    learned_per_second: float | None = None
    """Messages a second in the last long cycle of the source."""

    @property
    def total(self) -> int | None:
        """Mailboxes that were not opened yet count as much as the others do on average."""
        if not self.counted_mailboxes:
            return None
        return round(self.counted_total * max(self.mailboxes, self.counted_mailboxes) / self.counted_mailboxes)


def estimate_seconds(figures: CycleFigures, pace: Pace) -> float | None:
    """None if nothing is known yet, or nothing is left."""
    total = figures.total
    left = (total or 0) - figures.seen
    rate = _rate(figures, pace)
    if total is None or left <= 0 or not rate:
        return None
    return max(left / rate, _daily_seconds(figures, pace, left))


def _rate(figures: CycleFigures, pace: Pace) -> float | None:
    """Messages a second."""
    expected = figures.learned_per_second or pace.messages_per_second(figures.running_mailboxes)
    is_measured = figures.seen > 0 and figures.seconds >= _MEASURED_SECONDS
    measured = figures.seen / figures.seconds if is_measured else None
    if expected is None or measured is None:
        return measured or expected
    trust = figures.seconds / (figures.seconds + _TRUST_SECONDS)
    return measured * trust + expected * (1 - trust)


def _daily_seconds(figures: CycleFigures, pace: Pace, left: int) -> float:
    """Where a mailbox may download only so much in a day: the days for what is left, beyond what today still allows."""
    if not pace.mailbox_bytes_per_day or not figures.archived:
        return 0.0
    open_mailboxes = max(1, figures.mailboxes - figures.ended_mailboxes)
    bytes_left = left * figures.bytes / figures.archived / open_mailboxes
    today = max(0.0, pace.mailbox_bytes_per_day - figures.bytes / open_mailboxes)
    return max(0.0, bytes_left - today) / pace.mailbox_bytes_per_day * _DAY_SECONDS
