"""Calendar invitations as cards: what, when in the reader's time zone, where, and who. Pure."""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import UTC, date, datetime, tzinfo
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from babel.dates import format_skeleton

from archiver.http.catalogue import Texts
from archiver.mail.formats.calendar import Event

_STAMP = re.compile(r"(\d{4})-(\d{2})-(\d{2})(?: (\d{2}):(\d{2})(?: (\S{1,64}))?)?\Z")
_METHODS = {"REQUEST", "REPLY", "CANCEL", "COUNTER", "PUBLISH"}


@dataclass(frozen=True, slots=True)
class InvitationCard:
    method: str
    """The key of its title: request, reply, cancel, counter or publish."""
    event: Event
    when: str
    as_written: str
    """The time in the zone of the sender, if it is another one."""
    day: date | None


def describe_event(t: Texts, event: Event, zone: tzinfo) -> InvitationCard:
    method = event.method if event.method in _METHODS else "PUBLISH"
    start, end = _moment(event.start, zone), _moment(event.end, zone)
    written = f"{event.start} – {event.end}" if event.end else event.start
    if start is None:
        return InvitationCard(method.lower(), event, written, "", None)
    is_elsewhere = isinstance(start, datetime) and bool(_zone_name(event.start)) and _zone_name(event.start) != str(zone)
    day = start.date() if isinstance(start, datetime) else start
    return InvitationCard(method.lower(), event, _when(t, start, end), written if is_elsewhere else "", day)


def _when(t: Texts, start: date | datetime, end: date | datetime | None) -> str:
    if not isinstance(start, datetime):
        return format_skeleton("yMMMEd", start, locale=t.locale)
    first = f"{format_skeleton('yMMMEd', start, locale=t.locale)}, {start:%H:%M}"
    if not isinstance(end, datetime):
        return first
    if end.date() == start.date():
        return f"{first}–{end:%H:%M}"
    return f"{first} – {format_skeleton('yMMMEd', end, locale=t.locale)}, {end:%H:%M}"


def _zone_name(text: str) -> str:
    found = _STAMP.match(text)
    return (found[6] or "") if found else ""


def _moment(text: str, zone: tzinfo) -> date | datetime | None:
    """In the reader's zone if the text names a known one; otherwise as it was written."""
    found = _STAMP.match(text)
    if found is None:
        return None
    try:
        day = date(int(found[1]), int(found[2]), int(found[3]))
        if found[4] is None:
            return day
        at = datetime(day.year, day.month, day.day, int(found[4]), int(found[5]), tzinfo=UTC)
        own = _zone(found[6]) if found[6] else None
        return at.replace(tzinfo=own).astimezone(zone) if own else at
    except (ValueError, OverflowError):
        return None


def _zone(name: str) -> tzinfo | None:
    try:
        return UTC if name == "UTC" else ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError, OSError):
        return None
