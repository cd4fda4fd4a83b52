"""Formats values for pages: dates in the reader's time zone, sizes, durations, highlighted passages."""

from __future__ import annotations

import math
from datetime import date, datetime, timedelta, tzinfo
from html import escape
from typing import Literal, Protocol

from babel.dates import format_skeleton, format_timedelta
from markupsafe import Markup

from archiver.http.catalogue import Texts

_WORD_BEFORE = 12
_LENGTHS: tuple[tuple[Literal["day", "hour", "minute"], int], ...] = (("day", 86400), ("hour", 3600), ("minute", 60))


class HighlightedText(Protocol):
    @property
    def text(self) -> str: ...
    @property
    def marks(self) -> tuple[tuple[int, int], ...]: ...


def size(t: Texts, count: float) -> str:
    if count < 1000:
        return t("size.byte", n=round(count))
    units = t("size.units").split()
    unit = -1
    while count >= 1000 and unit < len(units) - 1:
        count /= 1000
        unit += 1
    return f"{t.number(count, 0 if count >= 100 else 1)} {units[unit]}"


def short_date(t: Texts, at: datetime, zone: tzinfo, now: datetime) -> str:
    """For lists: the time if today, the day if this year, otherwise the full date."""
    at, now = at.astimezone(zone), now.astimezone(zone)
    if at.date() == now.date():
        return f"{at:%H:%M}"
    return format_skeleton("MMMd" if at.year == now.year else "yMMMd", at, locale=t.locale)


def long_date(t: Texts, at: datetime, zone: tzinfo) -> str:
    at = at.astimezone(zone)
    return f"{format_skeleton('yMMMEd', at, locale=t.locale)}, {at:%H:%M}"


def month(t: Texts, first: date) -> str:
    return format_skeleton("yMMM", first, locale=t.locale)


def ago(t: Texts, at: datetime, now: datetime) -> str:
    seconds = (at - now).total_seconds()
    for unit, length in _LENGTHS:
        if abs(seconds) >= length:
            whole = timedelta(seconds=int(seconds / length) * length)
            return format_timedelta(whole, granularity=unit, threshold=math.inf, add_direction=True, locale=t.locale)
    return t("time.now" if seconds <= 0 else "time.soon")


def duration(t: Texts, seconds: float) -> str:
    if seconds < 60:
        return f"{t.number(seconds, 0 if seconds >= 10 else 1)} s"
    minutes, rest = divmod(int(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{t.number(hours)} h {minutes:02} min" if hours else f"{minutes} min {rest:02} s"


def highlight(passage: HighlightedText, start: int = 0) -> Markup:
    """From `start` on. Everything is escaped; the `mark` elements are the only markup."""
    pieces, at = ["…"] if start else [], start
    for begin, end in passage.marks:
        pieces += [escape(passage.text[at:begin]), "<mark>", escape(passage.text[begin:end]), "</mark>"]
        at = end
    return Markup("".join([*pieces, escape(passage.text[at:])]))  # noqa: S704  (escaped, piece by piece)


def highlight_near_mark(passage: HighlightedText) -> Markup:
    """Starts at the word before the first match: a row is narrow, and the match is the reason for the passage."""
    first = passage.marks[0][0] if passage.marks else 0
    word = passage.text.rfind(" ", 0, max(0, first - 1)) + 1
    return highlight(passage, word if first - word <= _WORD_BEFORE else first)


def initials(name: str) -> str:
    words = [word for word in name.replace(".", " ").split() if word[:1].isalnum()]
    return "".join(word[0] for word in words[:2]).upper() or "?"
