"""Parses responses of a server into values: tokens, FETCH items, dates."""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import datetime, timedelta, timezone
from functools import lru_cache
from pathlib import Path

from connectors.imap.errors import Broken
from connectors.imap.wire import Part, Response

Value = bytes | Path | None | list["Value"]
"""An atom or a string, a spooled literal, NIL, or a list of these."""

_TOKEN = re.compile(rb'([()])|"((?:[^"\\]++|\\.)*+)"|((?:[^\s()"\[\]]++|\[[^\]]{0,500}\])++)|(".*+|\S)', re.DOTALL)
"""A parenthesis, a quoted string, an atom, or an invalid character."""
_BODY = re.compile(rb"\d+ FETCH \(UID (\d{1,10}) BODY\[\] $")
_ESCAPED = re.compile(rb"\\(.)", re.DOTALL)
_DEPTH = 50
_DATE = re.compile(rb"\s?(\d{1,2})-([A-Za-z]{3})-(\d{4}) (\d\d):(\d\d):(\d\d) ([+-])(\d\d)(\d\d)")
_MONTHS = {name: number for number, name in enumerate(b"jan feb mar apr may jun jul aug sep oct nov dec".split(), 1)}
_FETCH = re.compile(rb"(\d+) FETCH ", re.IGNORECASE)


def values(parts: tuple[Part, ...]) -> list[Value]:
    """The whole response as nested lists."""
    top: list[Value] = []
    stack = [top]
    for number, part in enumerate(parts):
        if number % 2:
            stack[-1].append(part)
            continue
        assert isinstance(part, bytes)
        for found in _TOKEN.finditer(part):
            kind = found.lastindex
            if kind == 3:
                atom = found[3]
                stack[-1].append(None if len(atom) == 3 and atom.upper() == b"NIL" else atom)
            elif kind == 2:
                string = found[2]
                stack[-1].append(_ESCAPED.sub(rb"\1", string) if b"\\" in string else string)
            elif found[1] == b"(":
                inner: list[Value] = []
                stack[-1].append(inner)
                stack.append(inner)
                if len(stack) > _DEPTH:
                    raise Broken("a response that is nested too deeply")
            elif found[1] == b")" and len(stack) > 1:
                stack.pop()
            else:
                raise Broken("a response that can't be read")
    return top


def body(response: Response) -> tuple[int, Value] | None:
    """UID and content of a FETCH response with BODY[], which nearly always has only these items."""
    parts = response.parts
    plain = _BODY.match(response.text) if len(parts) == 3 and parts[2] == b")" else None
    if plain is not None:
        return int(plain[1]), parts[1]
    items = fetch_items(response)
    uid = number(items.get(b"UID")) if items and b"BODY[]" in items else None
    return None if items is None or uid is None else (uid, items[b"BODY[]"])


def fetch_items(response: Response) -> Mapping[bytes, Value] | None:
    """The values of a FETCH response by upper-case item name; None for any other response."""
    found = _FETCH.match(response.text)
    if found is None:
        return None
    parsed = values((response.text[found.end() :], *response.parts[1:]))
    items = parsed[0] if parsed else None
    if not isinstance(items, list):
        raise Broken("a FETCH response without a list")
    names, contents = items[::2], items[1::2]
    return {name.upper(): value for name, value in zip(names, contents, strict=False) if isinstance(name, bytes)}


def number(value: Value) -> int | None:
    return int(value) if isinstance(value, bytes) and value.isdigit() and len(value) < 20 else None


def texts(value: Value) -> tuple[bytes, ...]:
    """The strings of a list."""
    return tuple(item for item in value if isinstance(item, bytes)) if isinstance(value, list) else ()


def date(value: Value) -> datetime | None:
    """INTERNALDATE; None if it is not a date."""
    found = _DATE.fullmatch(value) if isinstance(value, bytes) else None
    month = _MONTHS.get(found[2].lower()) if found else None
    if found is None or month is None:
        return None
    try:
        zone = _zone(found[7] == b"-", int(found[8]), int(found[9]))
        return datetime(int(found[3]), month, int(found[1]), int(found[4]), int(found[5]), min(int(found[6]), 59), tzinfo=zone)
    except ValueError:
        return None


@lru_cache(maxsize=256)
def _zone(negative: bool, hours: int, minutes: int) -> timezone:
    offset = timedelta(hours=hours, minutes=minutes)
    return timezone(-offset if negative else offset)
