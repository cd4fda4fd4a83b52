"""Calendar invitations (RFC 5545) as text: what, when, where, who."""

import re
from collections.abc import Iterator
from dataclasses import dataclass

_FOLD = re.compile(r"\r?\n[ \t]")
# Each piece of a parameter begins with a character that cannot be part of the piece before it, so the match never backtracks.
_PROPERTY = re.compile(r"([A-Za-z-]{1,64})((?:;[^:\";=]{1,64}=(?:\"(?:[^\"\n]*+\")?+|[^;:\n\"]++)*+)*+):([^\n]*)")
_COMMON_NAME = re.compile(r";CN=(?:\"([^\"]*)\"|([^;:]*))", re.IGNORECASE)
_ESCAPE = re.compile(r"\\([\\;,nN])")
_STAMP = re.compile(r"(\d{4})(\d{2})(\d{2})(?:T(\d{2})(\d{2})\d{2}(Z?))?")
_CALENDAR_CHARS = 2_000_000
_EVENTS = 1_000
_PEOPLE = 1_000
_KINDS = frozenset({"VEVENT", "VTODO", "VJOURNAL"})


@dataclass(frozen=True, slots=True)
class Event:
    """One entry of a calendar; times as written, with their zone."""

    method: str
    summary: str
    start: str
    end: str
    location: str
    description: str
    organizer: str
    attendees: tuple[str, ...]
    uid: str

    def as_text(self) -> str:
        when = f"{self.start} – {self.end}" if self.start and self.end else self.start
        lines = (self.summary, when, self.location, self.organizer, ", ".join(self.attendees), self.description)
        return "\n".join(line for line in lines if line)


def read_calendar(text: str) -> tuple[Event, ...]:
    """The entries of an iCalendar text. Never raises; none if the text is not a calendar."""
    method = ""
    events: list[Event] = []
    current: dict[str, str] | None = None
    people: list[str] = []
    for name, parameters, value in _properties(text[:_CALENDAR_CHARS]):
        if name == "METHOD":
            method = value.strip().upper()
        elif name == "BEGIN" and value.strip().upper() in _KINDS:
            current, people = {}, []
        elif name == "END" and value.strip().upper() in _KINDS and current is not None:
            events.append(_event(method, current, people))
            current = None
            if len(events) >= _EVENTS:
                break
        elif current is None:
            continue
        elif name == "ATTENDEE":
            people.append(_person(parameters, value))
        elif name == "ORGANIZER":
            current.setdefault(name, _person(parameters, value))
        elif name in ("DTSTART", "DTEND", "DUE"):
            current.setdefault(name, _stamp(parameters, value))
        else:
            current.setdefault(name, _ESCAPE.sub(_unescape, value).strip())
    return tuple(events)


def _properties(text: str) -> Iterator[tuple[str, str, str]]:
    for line in _FOLD.sub("", text).replace("\r", "").split("\n"):
        found = _PROPERTY.match(line)
        if found is not None:
            yield found[1].upper(), found[2], found[3]


def _event(method: str, values: dict[str, str], people: list[str]) -> Event:
    get = values.get
    return Event(
        method=method,
        summary=get("SUMMARY", ""),
        start=get("DTSTART", ""),
        end=get("DTEND", get("DUE", "")),
        location=get("LOCATION", ""),
        description=get("DESCRIPTION", ""),
        organizer=get("ORGANIZER", ""),
        attendees=tuple(people[:_PEOPLE]),
        uid=get("UID", ""),
    )


def _person(parameters: str, value: str) -> str:
    address = value.strip()
    address = address[7:] if address[:7].lower() == "mailto:" else address
    name = _COMMON_NAME.search(parameters)
    label = (name[1] or name[2] or "").strip() if name else ""
    return f"{label} <{address}>" if label and label != address else address


def _stamp(parameters: str, value: str) -> str:
    found = _STAMP.match(value.strip())
    if found is None:
        return value.strip()
    year, month, day, hour, minute, utc = found.groups()
    if hour is None:
        return f"{year}-{month}-{day}"
    zone = re.search(r";TZID=\"?([^;:\"]+)", parameters, re.IGNORECASE)
    return f"{year}-{month}-{day} {hour}:{minute}" + (" UTC" if utc else f" {zone[1]}" if zone else "")


def _unescape(found: re.Match[str]) -> str:
    return "\n" if found[1] in "nN" else found[1]
