"""The properties of an item: numbers (MS-OXPROPS) with a type and raw bytes, decoded when they are asked for."""

from __future__ import annotations

import struct
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta

from archiver.mail import charsets
from archiver.mail.defects import Defects

INT16, INT32, FLOAT64, BOOLEAN, OBJECT, INT64 = 0x02, 0x03, 0x05, 0x0B, 0x0D, 0x14
STRING8, UNICODE, TIME, BINARY = 0x1E, 0x1F, 0x40, 0x102
_NUMBERS = {INT16: "<h", INT32: "<i", INT64: "<q", BOOLEAN: "<?", FLOAT64: "<d"}
_EPOCH = datetime(1601, 1, 1, tzinfo=UTC)
_LATEST_TICKS = 0x24C85A5ED1C04000  # the year 9999

MESSAGE_CLASS, SUBJECT, SUBMITTED_AT, REPLY_TO = 0x001A, 0x0037, 0x0039, 0x0050
ON_BEHALF_NAME, ON_BEHALF_TYPE, ON_BEHALF_ADDRESS, ON_BEHALF_SMTP = 0x0042, 0x0064, 0x0065, 0x5D02
SENDER_NAME, SENDER_TYPE, SENDER_ADDRESS, SENDER_SMTP = 0x0C1A, 0x0C1E, 0x0C1F, 0x5D01
TRANSPORT_HEADERS, THREAD_INDEX = 0x007D, 0x0071
RECIPIENT_TYPE, DELIVERED_AT, MESSAGE_FLAGS, NORMALIZED_SUBJECT = 0x0C15, 0x0E06, 0x0E07, 0x0E1D
BODY, RTF, HTML, MESSAGE_ID, REFERENCES, IN_REPLY_TO = 0x1000, 0x1009, 0x1013, 0x1035, 0x1039, 0x1042
IMPORTANCE, LAST_VERB, FLAG_STATUS = 0x0017, 0x1081, 0x1090
DISPLAY_NAME, ADDRESS_TYPE, ADDRESS, SMTP_ADDRESS = 0x3001, 0x3002, 0x3003, 0x39FE
CREATED_AT, CHANGED_AT, IPM_SUBTREE = 0x3007, 0x3008, 0x35E0
ATTACHED, SHORT_NAME, METHOD, LONG_NAME, PATH, MIME_TYPE, CONTENT_ID = 0x3701, 0x3704, 0x3705, 0x3707, 0x3708, 0x370E, 0x3712
LONG_PATH, ATTACHMENT_FLAGS, HIDDEN, INTERNET_CODEPAGE, MESSAGE_CODEPAGE = 0x370D, 0x3714, 0x7FFE, 0x3FDE, 0x3FFD
# Named properties, by the number of their name; the sets that we read use different numbers.
EVENT_START, EVENT_END, EVENT_WHOLE_DAY, EVENT_PLACE, EVENT_PATTERN = 0x820D, 0x820E, 0x8215, 0x8208, 0x8232
TASK_START, TASK_DUE, TASK_PERCENT, TASK_COMPLETE = 0x8104, 0x8105, 0x8102, 0x811C
EMAILS = (0x8083, 0x8093, 0x80A3)
GIVEN_NAME, SURNAME, COMPANY, TITLE, BIRTHDAY, POSTAL = 0x3A06, 0x3A11, 0x3A16, 0x3A17, 0x3A42, 0x3A15
PHONES = {0x3A08: "WORK", 0x3A09: "HOME", 0x3A1C: "CELL", 0x3A24: "FAX", 0x3A1A: "VOICE"}

WANTED = frozenset(
    {MESSAGE_CLASS, SUBJECT, SUBMITTED_AT, REPLY_TO, ON_BEHALF_NAME, ON_BEHALF_TYPE, ON_BEHALF_ADDRESS, ON_BEHALF_SMTP,
     SENDER_NAME, SENDER_TYPE, SENDER_ADDRESS, SENDER_SMTP, TRANSPORT_HEADERS, THREAD_INDEX, RECIPIENT_TYPE, DELIVERED_AT,
     MESSAGE_FLAGS, NORMALIZED_SUBJECT, BODY, RTF, HTML, MESSAGE_ID, REFERENCES, IN_REPLY_TO, IMPORTANCE, LAST_VERB,
     FLAG_STATUS, DISPLAY_NAME, ADDRESS_TYPE, ADDRESS, SMTP_ADDRESS, CREATED_AT, CHANGED_AT, IPM_SUBTREE, SHORT_NAME, METHOD,
     LONG_NAME, PATH, MIME_TYPE, CONTENT_ID, LONG_PATH, ATTACHMENT_FLAGS, HIDDEN, INTERNET_CODEPAGE, MESSAGE_CODEPAGE,
     EVENT_START, EVENT_END, EVENT_WHOLE_DAY, EVENT_PLACE, EVENT_PATTERN, TASK_START, TASK_DUE, TASK_PERCENT, TASK_COMPLETE,
     *EMAILS, GIVEN_NAME, SURNAME, COMPANY, TITLE, BIRTHDAY, POSTAL, *PHONES}
)  # fmt: skip

_CHARSETS = {20127: "us-ascii", 20866: "koi8-r", 21866: "koi8-u", 65000: "utf-7", 65001: "utf-8", 50220: "iso-2022-jp",
             50221: "iso-2022-jp", 50222: "iso-2022-jp", 50225: "iso-2022-kr", 51932: "euc-jp", 51949: "euc-kr",
             52936: "hz-gb-2312", 54936: "gb18030", 874: "windows-874", 932: "shift_jis", 936: "gbk", 949: "euc-kr",
             950: "big5"}  # fmt: skip


def charset_of(codepage: int) -> str:
    """The name of a Windows code page in MIME; empty if it is unknown."""
    if 28591 <= codepage <= 28606:
        name = f"iso-8859-{codepage - 28590}"
    elif 1250 <= codepage <= 1258:
        name = f"windows-{codepage}"
    else:
        name = _CHARSETS.get(codepage, "")
    return name if name and charsets.codec_for(name) else ""


@dataclass(frozen=True, slots=True)
class PropertySet:
    values: Mapping[int, tuple[int, bytes]] = field(default_factory=dict)
    """By number: type and raw bytes."""
    codepage: int = 1252
    """Of 8-bit text that does not name one."""

    def __contains__(self, tag: int) -> bool:
        return tag in self.values

    def raw(self, tag: int) -> bytes:
        return self.values.get(tag, (0, b""))[1]

    def is_unicode(self, tag: int) -> bool:
        return self.values.get(tag, (0, b""))[0] == UNICODE

    def text(self, tag: int) -> str:
        kind, data = self.values.get(tag, (0, b""))
        if kind == UNICODE:
            return data.decode("utf-16-le", "replace").rstrip("\0")
        if kind != STRING8 and kind != BINARY:
            return ""
        return charsets.decode(data.rstrip(b"\0"), charset_of(self.text_codepage) or "windows-1252", Defects())

    @property
    def text_codepage(self) -> int:
        return self.number(MESSAGE_CODEPAGE) or self.codepage

    def number(self, tag: int) -> int:
        value = self._number(tag)
        return int(value) if abs(value) < 2**63 else 0

    def fraction(self, tag: int) -> float:
        return self._number(tag)

    def _number(self, tag: int) -> float:
        kind, data = self.values.get(tag, (0, b""))
        form = _NUMBERS.get(kind)
        size = struct.calcsize(form) if form else 0
        return struct.unpack(form, data[:size])[0] if form and len(data) >= size else 0

    def time(self, tag: int) -> datetime | None:
        kind, data = self.values.get(tag, (0, b""))
        ticks = int.from_bytes(data[:8], "little") if kind == TIME and len(data) >= 8 else 0
        return _EPOCH + timedelta(microseconds=ticks // 10) if 0 < ticks < _LATEST_TICKS else None
