"""The path of a mail as a small diagram: one step per server, with the time since the step before. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from archiver.mail.header.route import Hop

_SLOW_SECONDS = 300
_UPPER = frozenset({"id", "mime", "dkim", "arc", "spf", "ip", "scl", "tls"})


@dataclass(frozen=True, slots=True)
class RouteStep:
    hop: Hop
    at: datetime | None
    delay_seconds: float | None
    """Since the step before; negative if the clocks of the two servers disagree."""
    share: float
    """Of the longest delay, from 0 to 1."""

    @property
    def is_slow(self) -> bool:
        return self.delay_seconds is not None and self.delay_seconds >= _SLOW_SECONDS


def steps_of(hops: Sequence[Hop]) -> list[RouteStep]:
    times = [_time(hop.at) for hop in hops]
    delays: list[float | None] = []
    last: datetime | None = None
    for at in times:
        delays.append((at - last).total_seconds() if at and last else None)
        last = at or last
    longest = max((delay for delay in delays if delay and delay > 0), default=0.0)
    return [
        RouteStep(hop, at, delay, max(0.0, delay or 0.0) / longest if longest else 0.0)
        for hop, at, delay in zip(hops, times, delays, strict=True)
    ]


def field_name(name: str) -> str:
    """As people write it: `Message-ID`, not `message-id`."""
    return "-".join(word.upper() if word in _UPPER else word.capitalize() for word in name.split("-"))


def _time(text: str) -> datetime | None:
    try:
        return datetime.fromisoformat(text)
    except ValueError:
        return None
