"""Appointments, tasks and contacts as the files that other programs read: iCalendar (RFC 5545) and vCard (RFC 2426)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import datetime

from archiver.outlook import properties as tags
from archiver.outlook.headers import subject_of
from archiver.outlook.items import OutlookItem
from archiver.outlook.properties import PropertySet

_LINE_BYTES = 74
_DONE = 100
_TEXT_CHARS = 1_000_000


def groupware_of(item: OutlookItem, uid: str) -> tuple[str, bytes] | None:
    """The type and content of the part; None for mail."""
    values = item.properties
    kind = values.text(tags.MESSAGE_CLASS).upper()
    if kind.startswith(("IPM.APPOINTMENT", "IPM.SCHEDULE.MEETING", "IPM.OLE.CLASS")) and tags.EVENT_START in values:
        return "text/calendar", _calendar("VEVENT", _event(values, item.recipients(), uid))
    if kind.startswith("IPM.TASK"):
        return "text/calendar", _calendar("VTODO", _task(values, uid))
    if kind.startswith("IPM.CONTACT"):
        return "text/vcard", _lines(["BEGIN:VCARD", "VERSION:3.0", *_contact(values), "END:VCARD"])
    return None


def _calendar(component: str, lines: Iterator[str]) -> bytes:
    frame = ("BEGIN:VCALENDAR", "VERSION:2.0", "PRODID:-//Archiver//Outlook//EN", f"BEGIN:{component}")
    return _lines([*frame, *lines, f"END:{component}", "END:VCALENDAR"])


def _event(values: PropertySet, recipients: Sequence[PropertySet], uid: str) -> Iterator[str]:
    yield from _common(values, uid)
    yield from _times(values, {"DTSTART": tags.EVENT_START, "DTEND": tags.EVENT_END})
    if values.number(tags.EVENT_WHOLE_DAY):
        yield "X-MICROSOFT-CDO-ALLDAYEVENT:TRUE"
    for name, tag in (("LOCATION", tags.EVENT_PLACE), ("X-ARCHIVER-RECURRENCE", tags.EVENT_PATTERN)):
        if text := values.text(tag):
            yield f"{name}:{_escape(text)}"
    for one in recipients:
        address = one.text(tags.SMTP_ADDRESS) or one.text(tags.ADDRESS)
        if "@" in address:
            yield f"ATTENDEE;CN={_quote(one.text(tags.DISPLAY_NAME))}:mailto:{_plain(address)}"


def _task(values: PropertySet, uid: str) -> Iterator[str]:
    yield from _common(values, uid)
    yield from _times(values, {"DTSTART": tags.TASK_START, "DUE": tags.TASK_DUE})
    share = values.fraction(tags.TASK_PERCENT)
    if 0 < share <= 1:
        yield f"PERCENT-COMPLETE:{int(share * _DONE)}"
    yield "STATUS:COMPLETED" if values.number(tags.TASK_COMPLETE) else "STATUS:NEEDS-ACTION"


def _common(values: PropertySet, uid: str) -> Iterator[str]:
    yield f"UID:{uid}"
    yield f"SUMMARY:{_escape(subject_of(values))}"
    yield from _times(values, {"DTSTAMP": tags.CHANGED_AT, "CREATED": tags.CREATED_AT})
    if text := values.text(tags.BODY):
        yield f"DESCRIPTION:{_escape(text[:_TEXT_CHARS])}"


def _contact(values: PropertySet) -> Iterator[str]:
    name = values.text(tags.DISPLAY_NAME) or subject_of(values)
    yield f"FN:{_escape(name)}"
    yield f"N:{_escape(values.text(tags.SURNAME))};{_escape(values.text(tags.GIVEN_NAME))};;;"
    for tag in tags.EMAILS:
        if address := values.text(tag):
            yield f"EMAIL:{_escape(address)}"
    for tag, kind in tags.PHONES.items():
        if phone := values.text(tag):
            yield f"TEL;TYPE={kind}:{_escape(phone)}"
    for label, tag in (("ORG", tags.COMPANY), ("TITLE", tags.TITLE), ("LABEL", tags.POSTAL), ("NOTE", tags.BODY)):
        if text := values.text(tag)[:_TEXT_CHARS]:
            yield f"{label}:{_escape(text)}"
    if day := values.time(tags.BIRTHDAY):
        yield f"BDAY:{day:%Y-%m-%d}"


def _times(values: PropertySet, wanted: dict[str, int]) -> Iterator[str]:
    for name, tag in wanted.items():
        at = values.time(tag)
        if at is not None:
            yield f"{name}:{_utc(at)}"


def _utc(at: datetime) -> str:
    return f"{at.year:04d}{at:%m%dT%H%M%SZ}"


def _escape(text: str) -> str:
    for plain, escaped in (("\\", "\\\\"), (";", "\\;"), (",", "\\,"), ("\r\n", "\n"), ("\r", "\n"), ("\n", "\\n")):
        text = text.replace(plain, escaped)
    return "".join(char for char in text if char >= " " or char == "\t")


def _quote(text: str) -> str:
    return '"' + _plain(text).replace('"', "'") + '"'


def _plain(text: str) -> str:
    return "".join(char for char in text if char >= " ")


def _lines(lines: Sequence[str]) -> bytes:
    return b"".join(_folded(line.encode("utf-8", "replace")) for line in lines)


def _folded(line: bytes) -> bytes:
    """A line ends after 75 bytes, but not inside a character."""
    pieces = []
    while len(line) > _LINE_BYTES:
        cut = _LINE_BYTES
        while line[cut] & 0xC0 == 0x80:
            cut -= 1
        pieces.append(line[:cut])
        line = line[cut:]
    return b"\r\n ".join([*pieces, line]) + b"\r\n"
