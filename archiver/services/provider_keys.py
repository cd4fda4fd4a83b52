"""Provider keys as the database can hold them: what a source calls a message may be longer than an index entry."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from typing import overload

_MAX_BYTES = 1000
SEPARATOR = "\u241f"
VERSION_MARK = f"{SEPARATOR}version:"
"""Between a key and the hash of other bytes that came under it."""


def fit_key(key: str) -> str:
    """The key itself, or, if it is too long, its beginning and its hash. Free of what Postgres can't store."""
    encoded = key.encode("utf-8", "surrogateescape" if _has_escapes(key) else "replace")
    if len(encoded) <= _MAX_BYTES and "\0" not in key and not _has_escapes(key):
        return key
    head = encoded[: _MAX_BYTES - 100].decode("utf-8", "ignore").replace("\0", "\ufffd")
    return f"{head}{SEPARATOR}sha256:{hashlib.sha256(encoded).hexdigest()}"


class FittedKeys(Sequence[str]):
    """Many keys, each fitted when it is looked at."""

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
    """For other bytes under a key that is taken, such as a draft that was edited: a copy of its own."""
    return fit_key(f"{key}{VERSION_MARK}{sha256.hex()[:32]}")


def _has_escapes(key: str) -> bool:
    """File names that are no UTF-8 come with lone surrogates from Python."""
    try:
        key.encode()
    except UnicodeEncodeError:
        return True
    return False
