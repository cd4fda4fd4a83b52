"""Values as Postgres accepts them. Imports neither SQLAlchemy nor psycopg: the processes that parse mail use it too."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import orjson

_UNSTORABLE = re.compile("[\0\ud800-\udfff]")
"""What Postgres can't store in text: NUL, and halves of surrogate pairs."""


def clean(value: Any) -> Any:
    """Replaces each character that Postgres can't store with U+FFFD, in strings, lists, and keys and values of mappings."""
    if isinstance(value, str):
        return _UNSTORABLE.sub("\ufffd", value)
    if isinstance(value, Mapping):
        return {clean(key): clean(item) for key, item in value.items()}
    if isinstance(value, list):
        return [clean(item) for item in value]
    if isinstance(value, tuple):
        return tuple(clean(item) for item in value)
    return value


@dataclass(slots=True)
class Json:
    """A JSON parameter in UTF-8. It goes to Postgres as it is: to make text of it and bytes again takes longer than to send it.

    Only for statements that are given to the driver as they are: SQLAlchemy does not know it.
    """

    data: bytes


def json_text(value: Any, default: Callable[[Any], Any] | None = None) -> str:
    """A JSON parameter that Postgres accepts, whatever strings it contains. `default` is orjson's."""
    return _json(value, default).decode()


def json_bytes(value: Any) -> Json:
    """The same for large ones."""
    return Json(_json(value, None))


def _json(value: Any, default: Callable[[Any], Any] | None) -> bytes:
    try:
        data = orjson.dumps(value, default)
    except TypeError:  # lone surrogates
        data = orjson.dumps(clean(value), default)
    if b"\\u0000" in data:
        data = orjson.dumps(clean(value), default)
    return data
