"""Mail that was made wrongly: its words and files are found all the same, and nothing takes long."""

from __future__ import annotations

import base64
from collections.abc import Iterator

from tests.support.own_mail.case import MailCase, message, multipart, part

_WORDS = "Words that must be found."
_PLAIN = part(_WORDS, ("Content-Type", "text/plain; charset=utf-8"))
_FILE = part("content\n", ("Content-Type", "application/octet-stream; name=a.bin"), ("Content-Disposition", "attachment"))


def cases() -> Iterator[MailCase]:
    yield from _boundaries()
    yield from _lines()
    yield from _base64()
    yield from _nesting()
    yield from _headers()
    yield from _cut()


def _boundaries() -> Iterator[MailCase]:
    field, body = multipart("mixed", "b", [_PLAIN, _FILE])
    variants = {
        "unclosed": body.removesuffix(b"--b--\n"),
        "blanks-after": body.replace(b"--b\n", b"--b \t \n"),
        "twice-closed": body + b"--b--\n--b--\n",
        "epilogue": body + b"What comes after is not part of it.\n",
        "empty-part": body.replace(b"--b\n", b"--b\n\n--b\n", 1),
        "similar-lines": body.replace(_WORDS.encode(), _WORDS.encode() + b"\n-- b\n---b\n --b\n"),
    }
    for variant, changed in variants.items():
        for eol in (b"\r\n", b"\n"):
            name = f"boundary-{variant}-{len(eol)}"
            raw = message(name, [field, ("Subject", variant)], changed, eol=eol)
            yield MailCase(name, f"a boundary: {variant}", raw, {"text_includes": [_WORDS]})
    for written in ('"b"', "b", '"b" ', '"b"; charset=utf-8', "b;", '"b'):
        name = f"boundary-written-{len(written)}-{written.count(chr(34))}"
        fields = [("Content-Type", f"multipart/mixed; boundary={written}"), ("Subject", "x")]
        yield MailCase(name, f"boundary={written}", message(name, fields, body), {"text_includes": [_WORDS]})
    without = [("Content-Type", "multipart/mixed"), ("Subject", "x")]
    yield MailCase(
        "boundary-none", "no boundary is named", message("boundary-none", without, body), {"text_includes": [_WORDS]}
    )


def _lines() -> Iterator[MailCase]:
    for ends, eol in (("lf", b"\n"), ("crlf", b"\r\n"), ("cr-lf-mixed", b"\r\n")):
        for count in (1, 100, 3000):
            name = f"lines-{ends}-{count}"
            raw = message(name, [("Subject", ends)], f"{_WORDS}\n" * count, eol=eol)
            raw = raw.replace(b"found.\r\n", b"found.\n", 1) if ends == "cr-lf-mixed" else raw
            yield MailCase(name, f"{count} lines with {ends}", raw, {"text": "\n".join([_WORDS] * count)})


def _base64() -> Iterator[MailCase]:
    plain = base64.b64encode((_WORDS * 20).encode())
    for width in (4, 5, 60, 76, 998, 5000):
        name = f"base64-lines-of-{width}"
        body = b"\n".join(plain[at : at + width] for at in range(0, len(plain), width))
        yield _base64_case(name, f"base64 in lines of {width}", body)
    yield _base64_case("base64-unpadded", "base64 without its padding", plain.rstrip(b"="))
    yield _base64_case("base64-blank-lines", "base64 with empty lines", plain[:80] + b"\n\n\n" + plain[80:])


def _base64_case(name: str, shows: str, body: bytes) -> MailCase:
    fields = [("Content-Type", "text/plain; charset=utf-8"), ("Content-Transfer-Encoding", "base64"), ("Subject", "x")]
    return MailCase(name, shows, message(name, fields, body + b"\n"), {"text_includes": [_WORDS]})


def _nesting() -> Iterator[MailCase]:
    for depth in (1, 2, 3, 5, 8, 20):
        inner = message(f"innermost-{depth}", [("Subject", "innermost")], _WORDS + "\n", eol=b"\n")
        for level in range(depth):
            fields = [("Content-Type", "message/rfc822"), ("Subject", f"level {level}")]
            inner = message(f"nested-{depth}-{level}", fields, inner, eol=b"\n")
        expected = {"text_includes": [_WORDS]} if depth <= 8 else {}
        yield MailCase(f"nested-{depth}", f"a message in {depth} messages", inner, expected)
    for depth in (10, 50, 200):
        body = _PLAIN
        for level in range(depth):
            field, inside = multipart("mixed", f"b{level}", [body])
            body = part(inside, field)
        yield MailCase(f"parts-{depth}", f"{depth} multiparts in each other", b"Subject: deep\nFrom: a@x.example\n" + body)


def _headers() -> Iterator[MailCase]:
    strange = {
        "no-colon": b"This line has no colon\r\n",
        "blank-name": b" : value\r\n",
        "only-colon": b":\r\n",
        "nul": b"X-Nul: a\0b\r\n",
        "eight-bit": b"X-Raw: \xff\xfe\xfd\r\n",
        "unfinished-word": b"X-Word: =?utf-8?q?never\r\n",
        "endless-word": b"X-Word: " + b"=?utf-8?q?=41?= " * 2000 + b"\r\n",
        "comment-never-closed": b"X-Comment: (((((((\r\n",
        "quote-never-closed": b'X-Quote: "never\r\n',
        "duplicate-subject": b"Subject: the other\r\n",
    }
    for kind, line in strange.items():
        for place in ("first", "last"):
            name = f"header-{kind}-{place}"
            raw = message(name, [("Subject", "usual")], _WORDS + "\n")
            head, _, body = raw.partition(b"\r\n\r\n")
            changed = line + head if place == "first" else head + b"\r\n" + line.rstrip(b"\r\n")
            is_sure = place == "first" and kind not in ("no-colon", "blank-name", "only-colon")
            expected = {"text_includes": [_WORDS]} if is_sure else {}
            yield MailCase(name, f"a header with {kind}, {place}", changed + b"\r\n\r\n" + body, expected)


def _cut() -> Iterator[MailCase]:
    """A message that ends at any place: what a broken connection leaves."""
    field, body = multipart("mixed", "b", [_PLAIN, _FILE, part("<p>more</p>", ("Content-Type", "text/html"))])
    raw = message("cut", [("MIME-Version", "1.0"), field, ("Subject", "=?utf-8?b?R3LDvMOfZQ==?=")], body)
    for size in range(5, len(raw), 9):
        yield MailCase(f"cut-at-{size:04}", f"the first {size} bytes of a message", raw[:size])
