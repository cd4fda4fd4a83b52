"""What parsers fear, to be repeated: a beginning, a unit, an end."""

import base64
import zlib
from collections.abc import Callable

_ENDS = ("", "\n\x01", "\\", '"')
_PLAIN = (
    "a", " ", "\n", "\r", "\r\n", "\t", '"', '\\"', "<", ">", '<\\"', '<"', "<@", "(", ")", "()", "[", "[]", ":", ";", ",",
    "@", "a@b", "a@b,", "<a@b>", "a:", "=", "==", "=a", "=\n", "=?utf-8?q?", "=?utf-8?q?=41?=", "=?utf-8?b?YQ?= ", "?=",
    "&#1", "&amp;", "&", "<a", "<a ", "<a href=x>", "<b>", "</b>", "<div style='display:none'>", "<blockquote>", "<script>",
    "<!--", "<style", "<li>", "<td>", "--", "--b", "\r--b", "\n--b\n", "\n--b\n\n", "\n> a", "\n>", ">>", "\n-- \n",
    "\n---- Original Message ----", "\nFrom: a", "\nFrom: a\nTo: b", "\nOn x wrote:\n> a", "\nSent from my x",
    "begin 644 a\n", "begin 644 a\nend\n", "=ybegin name=x\n", "=ybegin name=x\n=yend\n", "{", "}", "{\\", "\\u1?", "\\'41",
    "\\par ", "{\\rtf1 a}", "a: b\n", "x-mozilla- ", "BEGIN:VEVENT\n", ';A="b"', ";a=", 'ATTENDEE;CN="a":b\n', "Re: ",
    "[a] ", "12:00 ", "1/1/1 ", "+0100", "Jan ", "*0*=a;", "a*1=b;", "\x00", "\x1a", "\x1b$B", "\u200b\n", "\ufeff",
    "\xa0\n", "-----BEGIN PGP SIGNED MESSAGE-----\n", "To: a@b\n", "Received: x; 1\n", "Final-Recipient: rfc822; a\n\n",
    "References: <a>\n",
)  # fmt: skip
_BEFORE = {
    "a": ("A", "\nx-mozilla-", "Content-Type: "),
    " ": ("To:", "\n", "x-mozilla-"),
    '<\\"': ('<"',),
    "\n--b\n\n": ("Content-Type: multipart/mixed; boundary=b\n\n",),
    "\n--b\n": ("Content-Type: multipart/digest; boundary=b\n\n",),
    "BEGIN:VEVENT\n": ("Content-Type: text/calendar\n\n",),
    ';A="b"': ("A", "Content-Type: text/plain"),
    "<b>": ("Content-Type: text/html\n\n",),
}
UNITS = [(start, unit, "") for unit in _PLAIN for start in ("", *_BEFORE.get(unit, ()))] + [
    ("", unit, end) for unit in ("a", '\\"', '<\\"', ";A=", "(", " ") for end in _ENDS[1:]
]

_MEGABYTES = 4 << 20


def _body(header: str, unit: str, end: str = "") -> Callable[[], bytes]:
    return lambda: (header + "\n\n" + unit * (_MEGABYTES // len(unit)) + end).encode("latin-1")


def _smime_bomb() -> bytes:
    deflated = zlib.compress(b"Content-Type: text/plain\n\n" + bytes(64 << 20), 9)
    octets = b"\x04\x84" + len(deflated).to_bytes(4, "big") + deflated
    data = bytes.fromhex("060b2a864886f70d0109100109") + bytes.fromhex("06092a864886f70d010701") + b"\xa0\x80" + octets
    part = b"--b\nContent-Type: application/pkcs7-mime\nContent-Transfer-Encoding: base64\n\n" + base64.b64encode(data) + b"\n"
    return b"Content-Type: multipart/mixed; boundary=b\n\n" + part * 40


WHOLE_MESSAGES: dict[str, Callable[[], bytes]] = {
    "boundaries without line ends": _body("Content-Type: multipart/mixed; boundary=b", "\r--b"),
    "calendar": _body("Content-Type: text/calendar", ';A="b"', "\n"),
    "soup": _body("Content-Type: text/html\n\n" + "<b>" * 20_000 + "<", "a"),
    "addresses": _body('To: <"' + '<\\"' * 300_000, "a"),
    "repeated fields": _body("To: a@b.example\n" * 19_000 + "X: y", "a"),
    "mozilla": _body("X-Mozilla-" + " " * 1_000_000 + "\nX: y", "a"),
    "base64 runs": _body("Content-Transfer-Encoding: base64", "a" * 4095 + "="),
    "character references": _body("Content-Type: text/html\n\n" + "<b>" * 20_000 + "&#" + "9" * 5000 + ";", "a"),
    "inflated": _smime_bomb,
    "quotes": _body("Content-Type: text/plain", "On x wrote:\n> a\n"),
    "hidden": _body("Content-Type: text/html", "<div style='display:none'>"),
    "rtf": _body("Content-Type: text/html", "signature"),
}
