"""Mail from a grammar: headers, parts, encodings and containers that are nearly right, nested in each other."""

import binascii

from tests.fuzz.chance import Chance, one_in, pick
from tests.fuzz.containers import CONTAINERS, base64_lines, uuencoded, yencoded

_DEEPEST = 7
_MOST_BYTES = 1 << 20
_TIMES = (1, 1, 1, 2, 40, 1500)
WORDS = (
    b"tea", b" ", b"\r\n ", b"\n", b"\xc3\xa9", b"\xff\xfe", b"\xed\xa0\x80", b"\0", b"\x1b$B$3\x1b(B",
    b"=?utf-8?q?=C3=A9?=", b"=?utf-8?b?w6k?=", b"=?", b"?=", b"=?x?b?", b'"', b"\\", b'\\"', b"<", b">", b"(", b")",
    b"[", b"]", b"@", b",", b";", b":", b"=", b"a@example.org", b"<a@b>", b"<a@b", b"mailto:", b"'", b"%41", b"*",
    b"*0*=", b"--b", b"--", b"\x1a", b"\xe2\x80\xae", b"&#", b"9" * 40, b"/../", b"+0100", b"12:00", b"Jan", b"2026",
    b"\t", b"\x0b", b"\xc2\xa0", b"charset=utf-7", b"Re: ", b"[a] ",
)  # fmt: skip
_FIELDS = (
    b"From", b"To", b"Cc", b"Bcc", b"Sender", b"Reply-To", b"Subject", b"Date", b"Message-ID", b"References",
    b"In-Reply-To", b"Received", b"List-Id", b"X-Mozilla-Status", b"Content-Length", b"Status", b"Auto-Submitted",
    b"Return-Path", b"Precedence", b"Content-Disposition", b"Content-ID", b"X-MS-Has-Attach", b"X-Failed-Recipients",
    b"MIME-Version", b"",
)  # fmt: skip
_DATES = (
    b"Mon, 1 Jun 2026 12:00:00 +0200", b"Mon, 1 Jan 0001 00:00:00 +1400", b"31 Dec 9999 23:59:60 -2359", b"1 Jan 70",
    b"2026-06-01", b"20260601T120000Z", b"1.6.26 24:00", b"Thu Jan  1 00:00:00 1970", b"30 Feb 2026 25:61:61 +9999",
    b"0 0 0",
)  # fmt: skip
_CHARSETS = (
    b"utf-8", b"us-ascii", b"iso-8859-1", b"utf-7", b"iso-2022-jp", b"utf-16", b"gb18030", b"big5", b"hz", b"idna",
    b"none",
)  # fmt: skip
_HTML = (
    b"<p>", b"</p>", b"<div style='display:none'>", b"</div>", b"<blockquote>", b"</blockquote>",
    b"<a href='http://x/'>", b"</a>", b"<!--", b"-->", b"<script>", b"</script>", b"<style>", b"<table>", b"<td>",
    b"</td>", b"<li>", b"<b>", b"<img src=cid:a>", b"<", b"<a", b"&amp;", b"&#99999999999;", b"<svg><math>",
    b"<div id=signature>", b"text", b"<br>", b"</", b"<title>", b"font-size:0;",
)  # fmt: skip
_CALENDAR = (
    b"BEGIN:VCALENDAR\n", b"BEGIN:VEVENT\n", b"END:VEVENT\n", b"SUMMARY:", b"ATTENDEE", b';CN="a;b"', b";CN=a",
    b':mailto:a@b\n', b"DTSTART;TZID=x:20260601T120000Z\n", b"\n ", b";x=", b'"', b"DESCRIPTION:a\\nb\\",
    b"METHOD:REQUEST\n",
)  # fmt: skip
_LINES = (
    b"some text\n", b"> quoted\n", b">> twice \n", b"On Monday, Bob wrote:\n", b"-- \n",
    b"----- Original Message -----\n", b"From: a\n", b"Sent from my phone\n", b"begin 644 x\n", b"=ybegin name=x\n",
    b"-----BEGIN PGP SIGNED MESSAGE-----\n", b"____________________\n", b"Subject: b\n", b" \n", b"\n",
    b"From somebody\n", b">From x\n", b"-----BEGIN PGP SIGNATURE-----\n", b"end\n",
)  # fmt: skip
_REPORT = (
    b"Final-Recipient: rfc822; a@b\n", b"Action: failed\n", b"Status: 5.1.1\n", b"Diagnostic-Code: smtp; 550 no\n",
    b"\n", b" folded\n",
)  # fmt: skip


class Grammar:
    def __init__(self, chance: Chance) -> None:
        self._chance = chance
        self._left = _MOST_BYTES

    def message(self, depth: int = 0) -> bytes:
        fields = b"".join(self._field() for _ in range(self._chance.below(8)))
        start = pick(self._chance, (b"", b"", b"", b"From a@b Mon Jan  1 00:00:00 2026\n", b"\xef\xbb\xbf", b"\n"))
        raw = start + fields + self._entity(depth)
        if depth == 0:
            raw = pick(self._chance, (raw, raw, raw.replace(b"\n", b"\r\n"), raw.replace(b"\n", b"\r")))
        return raw[:_MOST_BYTES]

    def _field(self) -> bytes:
        name = pick(self._chance, _FIELDS)
        value = pick(self._chance, _DATES) if name == b"Date" and not one_in(self._chance, 4) else self._words()
        return name + pick(self._chance, (b": ", b":", b" : ", b"")) + value + b"\n"

    def _words(self) -> bytes:
        return self._some(WORDS, 8)

    def _some(self, words: tuple[bytes, ...], most: int) -> bytes:
        found = b"".join(pick(self._chance, words) * pick(self._chance, _TIMES) for _ in range(self._chance.below(most)))
        self._left -= len(found)
        return found if self._left > 0 else b""

    def _entity(self, depth: int) -> bytes:
        """The fields that describe a content, an empty line, and the content."""
        kinds = (
            self._text,
            self._html,
            self._calendar,
            self._report,
            self._container,
            self._multipart,
            self._nested,
            self._junk,
        )
        make = self._text if depth >= _DEEPEST or self._left <= 0 else pick(self._chance, kinds)
        kind, content = make(depth)
        encoding, content = self._encoded(content)
        kind += self._parameters() if one_in(self._chance, 3) else b""
        return b"Content-Type: " + kind + b"\n" + encoding + pick(self._chance, (b"\n", b"\n", b"\n", b"")) + content

    def _parameters(self) -> bytes:
        words = (b"; charset=", b"; name=", b"; boundary=", b"; filename*0*=utf-8''", b"; format=flowed", b"; delsp=yes", b";")
        return b"".join(pick(self._chance, words) + self._words() for _ in range(self._chance.below(3)))

    def _encoded(self, content: bytes) -> tuple[bytes, bytes]:
        name = pick(self._chance, (b"", b"7bit", b"base64", b"quoted-printable", b"x-uuencode", b"x-yencode", b"nonsense"))
        if name == b"base64":
            content = base64_lines(self._chance, content)
        elif name == b"quoted-printable":
            content = binascii.b2a_qp(content)
        elif name == b"x-uuencode":
            content = uuencoded(self._chance, content)
        elif name == b"x-yencode":
            content = yencoded(self._chance, content)
        return (b"Content-Transfer-Encoding: " + name + b"\n" if name else b""), content

    def _text(self, _: int) -> tuple[bytes, bytes]:
        kind = (
            pick(self._chance, (b"text/plain", b"text/enriched", b"text", b"")) + b"; charset=" + pick(self._chance, _CHARSETS)
        )
        return kind, self._some(_LINES + WORDS[:12], 12)

    def _html(self, _: int) -> tuple[bytes, bytes]:
        return b"text/html; charset=" + pick(self._chance, _CHARSETS), self._some(_HTML + WORDS[:9], 20)

    def _calendar(self, _: int) -> tuple[bytes, bytes]:
        return b"text/calendar; method=REQUEST", self._some(_CALENDAR, 20)

    def _report(self, _: int) -> tuple[bytes, bytes]:
        return pick(self._chance, (b"message/delivery-status", b"text/rfc822-headers")), self._some(_REPORT, 12)

    def _container(self, depth: int) -> tuple[bytes, bytes]:
        kind, wrap = pick(self._chance, CONTAINERS)
        return kind, wrap(self._chance, self._entity(depth + 1))

    def _nested(self, depth: int) -> tuple[bytes, bytes]:
        return b"message/rfc822", self.message(depth + 1)

    def _junk(self, _: int) -> tuple[bytes, bytes]:
        return self._words(), self._words()

    def _multipart(self, depth: int) -> tuple[bytes, bytes]:
        boundary = pick(self._chance, (b"b", b"bb", b"b--", b"=_x y", b""))
        kind = b"multipart/" + pick(self._chance, (b"mixed", b"alternative", b"digest", b"signed", b"related", b"report"))
        line = b"\n--" + boundary + b"\n"
        parts = [line + self._entity(depth + 1) for _ in range(self._chance.below(5))]
        parts *= pick(self._chance, (1, 1, 1, 30)) if sum(map(len, parts)) < 2000 else 1
        end = pick(self._chance, (b"\n--" + boundary + b"--\n", b"", b"\nepilogue"))
        return kind + b'; boundary="' + boundary + b'"', b"preamble" + b"".join(parts) + end
