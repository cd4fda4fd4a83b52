"""Malformed messages, as old programs, bad gateways and forgers leave them in real mailboxes."""

from __future__ import annotations

from collections.abc import Callable

_HEAD = (
    b"From: %(sender)s\r\nTo: %(to)s\r\nSubject: %(subject)s\r\nDate: %(date)s\r\n"
    b"Message-ID: <broken.%(id)s@lanternworks.example>\r\nMIME-Version: 1.0\r\n"
)
Fields = dict[bytes, bytes]


def _with(fields: Fields, subject: bytes, rest: bytes, *without: bytes) -> bytes:
    head = _HEAD % {**fields, b"subject": subject}
    lines = [line for line in head.split(b"\r\n") if not line.startswith(without)] if without else head.split(b"\r\n")
    return b"\r\n".join(lines) + rest


def _no_date(fields: Fields) -> bytes:
    return _with(fields, b"When was this?", b"\r\nMy program has forgotten to say when I wrote this.\r\n", b"Date:")


def _bad_date(fields: Fields) -> bytes:
    rest = b"Date: the day after tomorrow, 27:99\r\n\r\nWe meet at the usual time.\r\n"
    return _with(fields, b"Meeting at the usual time", rest, b"Date:")


def _wrong_charset(fields: Fields) -> bytes:
    rest = b"Content-Type: text/plain; charset=us-ascii\r\n\r\n" + "Grüße aus der Mühle, das Öl ist da.\r\n".encode("cp1252")
    return _with(fields, b"Says ASCII and is not", rest)


def _unknown_charset(fields: Fields) -> bytes:
    rest = b"Content-Type: text/plain; charset=x-lamp-7\r\n\r\nA charset that nobody has heard of.\r\n"
    return _with(fields, b"Written with a lamp", rest)


def _unclosed_boundary(fields: Fields) -> bytes:
    rest = (
        b'Content-Type: multipart/mixed; boundary="never"\r\n\r\n--never\r\nContent-Type: text/plain\r\n\r\n'
        b"The gateway cut this message off.\r\n--never\r\nContent-Type: text/csv\r\n\r\nlamp;price\r\nHeron;"
    )
    return _with(fields, b"Cut off on the way", rest)


def _missing_boundary(fields: Fields) -> bytes:
    rest = b"Content-Type: multipart/mixed\r\n\r\n--what\r\n\r\nA multipart that does not say what divides it.\r\n--what--\r\n"
    return _with(fields, b"Parts without a border", rest)


def _rubbish_base64(fields: Fields) -> bytes:
    rest = (
        b"Content-Type: text/plain; charset=utf-8\r\nContent-Transfer-Encoding: base64\r\n\r\n"
        b"VGhlIG9mZmVyIGlzIGF0dGFjaGVkLg0K\r\n*** scanned by MailGuard ***\r\nVGhhbmsgeW91IQ==!!\r\n"
    )
    return _with(fields, b"Scanned to pieces", rest)


def _endless_header(fields: Fields) -> bytes:
    rest = b"X-Trace: " + b"lantern " * (1 << 18) + b"\r\n\r\nSomewhere above there is a very long line.\r\n"
    return _with(fields, b"A header of two megabytes", rest)


def _forged_first(fields: Fields) -> bytes:
    rest = b"Message-ID: <invoice-4711@brasshouse.example>\r\n\r\nPlease pay 1,250.00 EUR to the account you know.\r\n"
    return _with(fields, b"Invoice 4711", rest, b"Message-ID:")


def _forged_second(fields: Fields) -> bytes:
    rest = b"Message-ID: <invoice-4711@brasshouse.example>\r\n\r\nPlease pay 12,500.00 EUR to our NEW account.\r\n"
    return _with(fields, b"Invoice 4711", rest, b"Message-ID:")


def _raw_subject(fields: Fields) -> bytes:
    return _with(fields, "Größe der Lampen für das Café".encode("cp1252"), b"\r\nThe subject is in a charset of its own.\r\n")


def _no_blank_line(fields: Fields) -> bytes:
    return _with(fields, b"No blank line", b"This message begins without the line that ends its header.\r\nBest regards\r\n")


def _nested(fields: Fields) -> bytes:
    rest = b"".join(b'Content-Type: multipart/mixed; boundary="b%d"\r\n\r\n--b%d\r\n' % (n, n) for n in range(120))
    return _with(fields, b"A box in a box in a box", rest + b"\r\nNothing is in the last box.\r\n")


def _bare_newlines(fields: Fields) -> bytes:
    return _with(fields, b"Mixed line ends", b"\r\nfirst line\nsecond line\rthird line\r\nfourth line\n")


def _only_body(_: Fields) -> bytes:
    return b"This is what the fax server sent when its disk was full.\r\n"


BROKEN: dict[str, tuple[Callable[[Fields], bytes], ...]] = {
    "no date": (_no_date,),
    "bad date": (_bad_date,),
    "wrong charset": (_wrong_charset,),
    "unknown charset": (_unknown_charset,),
    "unclosed boundary": (_unclosed_boundary,),
    "missing boundary": (_missing_boundary,),
    "rubbish in base64": (_rubbish_base64,),
    "endless header": (_endless_header,),
    "forged Message-ID": (_forged_first, _forged_second),
    "raw subject": (_raw_subject,),
    "no blank line": (_no_blank_line,),
    "nested too deep": (_nested,),
    "mixed line ends": (_bare_newlines,),
    "no header": (_only_body,),
}
"""By name, each with the messages that demonstrate it."""
