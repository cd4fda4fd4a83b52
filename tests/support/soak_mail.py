"""Mail that nobody would write: pieces of the hand-made mail of tests/corpus, cut, joined, repeated and spoilt."""

from __future__ import annotations

import random
import re
from collections.abc import Iterator
from pathlib import Path

SEEDS = [path.read_bytes() for path in sorted((Path(__file__).parents[1] / "corpus").glob("*.eml"))]
_FEARED = (
    b"\0", b"\r", b"\n\n", b"=?utf-8?q?", b"=?utf-8?b?////?=", b"<", b'"', b"(" * 200, b"\\", b";" * 500, b"--b\n", b"--b--\n",
    b"=ybegin line=128 size=9 name=x\n", b"begin 644 x\n", b"Content-Type: multipart/mixed; boundary=b\n",
    b"Content-Type: message/rfc822\n\n", b"Content-Transfer-Encoding: base64\n", b"Content-Type: application/ms-tnef\n",
    b"BEGIN:VCALENDAR\nBEGIN:VEVENT\nSUMMARY;X=\"", b"<div style='display:none'>", b"<table>" * 300, b"<blockquote>" * 300,
    b"\xff\xfe", b"\xed\xa0\x80", b"\x1b$B", b"From: ", b"To: a@b, " * 100, b"References: " + b"<a@b> " * 100, b"> " * 200,
)  # fmt: skip
_LINE_END = re.compile(rb"\r?\n")


def innocent(number: int) -> bytes:
    """Found by a word that no other message has."""
    return (
        f"From: Ann <ann{number % 50}@example.org>\r\nTo: soak@example.org\r\nSubject: innocent {number}\r\n"
        f"Date: Tue, 05 Mar 2024 10:{number // 60 % 60:02}:{number % 60:02} +0000\r\n"
        f"Message-ID: <{number}@innocent.example>\r\n\r\nthe unspoilt word{number:06}\r\n"
    ).encode()


def hostile(count: int, seed: int = 19) -> Iterator[bytes]:
    """Each another, and the same every time. With CRLF line ends, as an IMAP server gives them out."""
    chance = random.Random(seed)
    for number in range(count):
        raw = _spoilt(chance, bytearray(chance.choice(SEEDS)))
        yield _LINE_END.sub(b"\r\n", bytes(raw[: 256 << 10])) + b"\r\n%d\r\n" % number


def _spoilt(chance: random.Random, raw: bytearray) -> bytearray:
    for _ in range(chance.randint(1, 10)):
        at, length = chance.randint(0, len(raw)), chance.randint(0, 80)
        match chance.randrange(6):
            case 0:
                del raw[at : at + length]
            case 1:
                raw[at:at] = chance.choice(_FEARED) * chance.choice((1, 1, 2, 20))
            case 2:
                raw[at:at] = raw[at : at + length] * chance.choice((1, 2, 100))
            case 3:
                raw[at : at + 1] = chance.randbytes(1)
            case 4:
                other = chance.choice(SEEDS)
                start = chance.randint(0, len(other))
                raw[at:at] = other[start : start + chance.randint(0, 4000)]
            case _:
                raw[at:at] = chance.randbytes(length)
    return raw
