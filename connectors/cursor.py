"""Cursors in the sync state: dataclasses of plain values, written as JSON objects."""

from __future__ import annotations

from dataclasses import fields
from typing import TypeVar

from connectors.base import Json

T = TypeVar("T")


def read_cursor(kind: type[T], stored: Json, *, may_lack_fields: bool = False) -> T:
    """The stored cursor, or the start (`kind()`) if it is missing or unusable: reading again is safe, skipping is not.

    `may_lack_fields`: an earlier release wrote fewer fields; the others have their defaults.
    """
    start = kind()
    names = [field.name for field in fields(start)]  # type: ignore[arg-type]
    if not isinstance(stored, dict) or (not may_lack_fields and not stored.keys() >= set(names)):
        return start
    values = {name: stored[name] for name in names if name in stored}
    if any(type(value) is not type(getattr(start, name)) for name, value in values.items()):
        return start
    return kind(**values)
