"""Parses Content-Type and Content-Disposition: a value and its parameters, by RFC 2231 and by what programs write instead."""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from urllib.parse import unquote_to_bytes

from archiver.mail import charsets, limits
from archiver.mail.defects import Defects
from archiver.mail.header.words import decode_words, header_text, tidy

_ONE = re.compile(r'\s*([\w.+-]+(?:/[\w.+-]+)?)\s*;\s*([\w-]{1,128})\s*=\s*(?:"([^"\\]*)"|([^\s;"]+))[;\s]*\Z')
_BETWEEN = re.compile(r"[;\s]*")
_NAME = re.compile(r'([^\s=;"]{1,128})\s*=\s*')
_QUOTED = re.compile(r'"([^"\\]*(?:\\.[^"\\]*)*)(?:"|\Z)', re.DOTALL)
_CONTINUED = re.compile(r"([^*]+)(?:\*(\d{1,3}))?(\*)?\Z")
_ESCAPE = re.compile(r'\\(["\\])')
_COMMENT = re.compile(r"\([^()]*\)")
_VALUE_CHARS = 64 << 10
_USUAL_CHARS = 80


@dataclass(frozen=True, slots=True)
class Parametrised:
    """A lower-case value such as `text/plain`, and its parameters by lower-case name."""

    value: str
    parameters: dict[str, str]

    def get(self, name: str) -> str:
        return self.parameters.get(name, "")


NOTHING = Parametrised("", {})


def parse_parameters(raw: str, defects: Defects) -> Parametrised:
    if len(raw) <= _USUAL_CHARS and raw.isascii() and "=?" not in raw and "*" not in raw:
        return _parse_usual(raw)
    return _parse(raw, defects)


@lru_cache(maxsize=4096)
def _parse_usual(raw: str) -> Parametrised:
    """Cached, because most parts of all mail share a few dozen values."""
    return _parse(raw, Defects())


def _parse(raw: str, defects: Defects) -> Parametrised:
    text = header_text(raw[:_VALUE_CHARS], defects)
    one = _ONE.match(text)
    if one is not None:
        value, name, quoted, bare = one.groups()
        return Parametrised(value.lower(), {name.lower(): _plain(bare or quoted, defects)})
    value, semicolon, _ = text.partition(";")
    if "(" in value:
        value = _COMMENT.sub("", value)
    value = "".join(value.split()).strip("\"'").lower()
    if not semicolon:
        return Parametrised(value, {})
    plain: dict[str, str] = {}
    pieces: dict[str, dict[int, tuple[bool, str]]] = {}
    for name, given in _pairs(text, text.index(";"), defects):
        if "*" not in name:
            plain.setdefault(name.lower(), _plain(given, defects))
            continue
        continued = _CONTINUED.match(name)
        if continued is not None:
            numbered = pieces.setdefault(continued[1].lower(), {})
            numbered.setdefault(int(continued[2] or 0), (continued[3] is not None, given))
    for name, numbered in pieces.items():  # the RFC 2231 form takes precedence over a plain one next to it
        plain[name] = _assemble(numbered, defects)
    return Parametrised(value, plain)


def _pairs(text: str, position: int, defects: Defects) -> Iterator[tuple[str, str]]:
    """Names and values in order; anything else is skipped up to the next semicolon."""
    count = 0
    while position < len(text):
        between = _BETWEEN.match(text, position)
        name = _NAME.match(text, between.end() if between else position)
        if name is None:
            position = text.find(";", between.end() if between else position)
            if position < 0:
                return
            continue
        count += 1
        if count > limits.PARAMETERS:
            defects.add("too_many_parameters")
            return
        quoted = _QUOTED.match(text, name.end())
        end = text.find(";", quoted.end() if quoted else name.end())
        position = end if end >= 0 else len(text)
        yield name[1], _ESCAPE.sub(r"\1", quoted[1]) if quoted else text[name.end() : position].strip()


def _plain(given: str, defects: Defects) -> str:
    # Encoded words are forbidden in parameters (RFC 2047, section 5), and common.
    return tidy(decode_words(given, defects)) if "=?" in given else given


def _assemble(numbered: dict[int, tuple[bool, str]], defects: Defects) -> str:
    """RFC 2231, sections 3 and 4: numbered pieces, some of them percent-encoded, the first one with the charset."""
    charset, collected = "", b""
    for position, (_, (encoded, given)) in enumerate(sorted(numbered.items())):
        if position == 0 and encoded and given.count("'") >= 2:
            charset, _, given = given.split("'", 2)
        raw = given.encode("utf-8", "surrogateescape")
        collected += unquote_to_bytes(raw) if encoded else raw
    text = charsets.decode(collected, charset, defects)
    return tidy(decode_words(text, defects)) if "=?" in text else tidy(text)
