"""How long the rest of a cycle takes, by what is known about it."""

from __future__ import annotations

from dataclasses import replace

import pytest

from archiver.quantity import time_span
from archiver.sources.estimate import CycleFigures, estimate_seconds
from archiver.sources.kinds import pace_of
from connectors.pace import Pace

START = CycleFigures(0, 0, 0, 0, 1, 0, 1, 1, 12_000)


def test_nothing_is_known_at_first() -> None:
    assert estimate_seconds(replace(START, counted_mailboxes=0, counted_total=0), Pace(5)) is None
    assert estimate_seconds(START, Pace()) is None
    assert estimate_seconds(replace(START, seen=12_000, seconds=10), Pace(5)) is None


def test_a_providers_limit_counts_until_something_was_measured() -> None:
    assert estimate_seconds(START, Pace(5)) == pytest.approx(2400)
    after_a_minute = replace(START, seconds=60, seen=60, archived=60)  # 1 a second instead of 5
    assert estimate_seconds(after_a_minute, Pace(5)) == pytest.approx(11_940 / 3)
    after_a_day = replace(START, seconds=86_400, seen=6000)
    assert estimate_seconds(after_a_day, Pace(5)) == pytest.approx(6000 / (6000 / 86_400), rel=0.1)


def test_the_last_cycle_of_a_source_counts_more_than_the_limit() -> None:
    assert estimate_seconds(replace(START, learned_per_second=2.0), Pace(5)) == pytest.approx(6000)


def test_mailboxes_at_once_share_the_limit_of_all() -> None:
    many = replace(START, mailboxes=10, counted_mailboxes=10, running_mailboxes=4)
    assert estimate_seconds(many, Pace(5)) == pytest.approx(600)
    assert estimate_seconds(many, Pace(5, all_per_second=10)) == pytest.approx(1200)


def test_mailboxes_that_were_not_opened_are_as_large_as_the_others() -> None:
    some = replace(START, mailboxes=10, counted_mailboxes=2, counted_total=2000)
    assert some.total == 10_000


def test_a_daily_limit_means_days() -> None:
    """50 GB at 2.5 GB a day."""
    gmail = pace_of("imap", {"host": "imap.gmail.com", "user": "a@gmail.com"})
    figures = replace(START, counted_total=500_000, seconds=600, seen=1000, archived=1000, bytes=100_000_000)
    assert estimate_seconds(figures, gmail) == pytest.approx((49.9e9 - 2.4e9) / 2.5e9 * 86_400)


@pytest.mark.parametrize(
    ("kind", "settings", "rate"),
    [
        ("gmail", {"address": "a@gmail.com", "client_id": "1-x.apps.googleusercontent.com"}, 5.0),
        ("microsoft", {"tenant": "x", "client_id": "y"}, 1000 / 60),
        ("imap", {"host": "mail.example.org", "user": "a"}, None),
        ("files", {"unknown": 1}, None),
        ("api", {}, None),
    ],
)
def test_limits_by_kind(kind: str, settings: dict[str, object], rate: float | None) -> None:
    assert pace_of(kind, settings).messages_per_second(1) == rate


@pytest.mark.parametrize(
    ("seconds", "shown"), [(4.4, "4 s"), (90, "90 s"), (600, "10 min"), (7200, "2 h"), (200_000, "2 days"), (90_000, "25 h")]
)
def test_spans(seconds: float, shown: str) -> None:
    assert time_span(seconds) == shown
