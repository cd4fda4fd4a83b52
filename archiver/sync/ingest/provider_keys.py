"""Fits provider keys into the database: a source's name for a message may be longer than an index entry."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from typing import overload

_MAX_BYTES = 1000
SEPARATOR = "\u241f"
VERSION_MARK = f"{SEPARATOR}version:"
"""Separates a key from the hash of different bytes that arrived under it."""


def fit_key(key: str) -> str:
    """The key itself, or its beginning and hash if it is too long or contains what Postgres can't store."""
    has_escapes = _has_escapes(key)
    encoded = key.encode("utf-8", "surrogateescape" if has_escapes else "replace")
    if len(encoded) <= _MAX_BYTES and "\0" not in key and not has_escapes:
        return key
    head = encoded[: _MAX_BYTES - 100].decode("utf-8", "ignore").replace("\0", "\ufffd")
    return f"{head}{SEPARATOR}sha256:{hashlib.sha256(encoded).hexdigest()}"


class FittedKeys(Sequence[str]):
    """A sequence of keys, each fitted on access."""

    def __init__(self, keys: Sequence[str]) -> None:
        self._keys = keys

    def __len__(self) -> int:
        return len(self._keys)

    def __iter__(self) -> Iterator[str]:
        return map(fit_key, self._keys)

    @overload
    def __getitem__(self, index: int) -> str: ...
    @overload
    def __getitem__(self, index: slice) -> list[str]: ...
    def __getitem__(self, index: int | slice) -> str | list[str]:
        return list(self)[index]


def version_key(key: str, sha256: bytes) -> str:
    """The key of a separate copy for different bytes under a taken key, such as an edited draft."""
    return fit_key(f"{key}{VERSION_MARK}{sha256.hex()[:32]}")


def _has_escapes(key: str) -> bool:
    """Python represents file names that are not valid UTF-8 with lone surrogates."""
    try:
        key.encode()
    except UnicodeEncodeError:
        return True
    return False
