"""Formats values for pages: dates in the reader's time zone, sizes, durations, highlighted passages."""

from __future__ import annotations

from datetime import datetime, tzinfo
from html import escape
from typing import Protocol

from markupsafe import Markup

from archiver.http.catalogue import Texts

_WORD_BEFORE = 12
_UNITS = ("kB", "MB", "GB", "TB", "PB")


class HighlightedText(Protocol):
    @property
    def text(self) -> str: ...
    @property
    def marks(self) -> tuple[tuple[int, int], ...]: ...


def size(t: Texts, count: float) -> str:
    if count < 1000:
        return t("size.byte", n=round(count))
    unit = -1
    while count >= 1000 and unit < len(_UNITS) - 1:
        count /= 1000
        unit += 1
    shown = f"{count:.0f}" if count >= 100 else f"{count:.1f}"
    return f"{shown.replace('.', ',') if t.language == 'de' else shown} {_UNITS[unit]}"


def short_date(t: Texts, at: datetime, zone: tzinfo, now: datetime) -> str:
    """For lists: the time if today, the day if this year, otherwise the full date."""
    at, now = at.astimezone(zone), now.astimezone(zone)
    if at.date() == now.date():
        return f"{at:%H:%M}"
    months = t("months").split()
    day = f"{at.day}. {months[at.month - 1]}" if t.language == "de" else f"{at.day} {months[at.month - 1]}"
    return day if at.year == now.year else f"{day} {at.year}"


def long_date(t: Texts, at: datetime, zone: tzinfo) -> str:
    at = at.astimezone(zone)
    days, months = t("days").split(), t("months").split()
    dot = "." if t.language == "de" else ""
    return f"{days[at.weekday()]}, {at.day}{dot} {months[at.month - 1]} {at.year}, {at:%H:%M}"


def ago(t: Texts, at: datetime, now: datetime) -> str:
    seconds = (now - at).total_seconds()
    past = seconds >= 0
    seconds = abs(seconds)
    for unit, length in (("day", 86400), ("hour", 3600), ("minute", 60)):
        if seconds >= length:
            return t(f"time.{'ago' if past else 'in'}_{unit}", n=int(seconds // length))
    return t("time.now" if past else "time.soon")


def duration(t: Texts, seconds: float) -> str:
    if seconds < 60:
        return f"{seconds:.0f} s" if seconds >= 10 else f"{seconds:.1f} s"
    minutes, rest = divmod(int(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes:02} min" if hours else f"{minutes} min {rest:02} s"


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
