"""Decodes the original bytes from Gmail's JSON while they arrive: a message of 150 MB is never in memory."""

from __future__ import annotations

import binascii
import json
import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

from connectors.base import SPOOL_BYTES
from connectors.spool import Spool, disk_errors

IN_MEMORY_BYTES = 1 << 20
"""Limit during a download, because many run at once."""
_REST_AT_MOST = 1 << 20
"""Limit of everything except the message itself."""
_RAW = re.compile(rb'"raw"\s*:\s*"')  # inside another value, the quotes would be escaped
_STANDARD = bytes.maketrans(b"-_", b"+/")


class DamagedResponse(Exception):
    """The response is not a valid Gmail message."""


@dataclass(frozen=True, slots=True)
class Downloaded:
    """A downloaded message: its metadata, and its bytes in memory or in a file."""

    about: dict[str, Any]
    data: bytes | None
    path: Path | None

    def in_memory_if_small(self) -> Downloaded:
        """As a batch requires: only messages above SPOOL_BYTES stay in files."""
        if self.path is None or self.path.stat().st_size > SPOOL_BYTES:
            return self
        data = self.path.read_bytes()
        self.path.unlink()
        return Downloaded(self.about, data, None)


class _Bytes:
    """Collects decoded bytes, first in memory, then in a file."""

    def __init__(self, spool: Spool) -> None:
        self._spool = spool
        self._memory = bytearray()
        self._file: BinaryIO | None = None
        self._carry = b""
        self._padded = False

    def add(self, encoded: bytes) -> None:
        if self._padded:
            return
        # Padding occurs only at the end; Google may write it as an escape (\u003d).
        self._padded = b"=" in encoded or b"\\" in encoded
        if self._padded:
            encoded = encoded.partition(b"\\")[0].partition(b"=")[0]
        whole = self._carry + encoded
        end = len(whole) // 4 * 4
        self._carry = whole[end:]
        self._write(_decode(whole[:end]))

    def finish(self) -> tuple[bytes | None, Path | None]:
        if self._carry:
            self._write(_decode(self._carry + b"=" * (-len(self._carry) % 4)))
        if self._file is None:
            return bytes(self._memory), None
        self._file.close()
        return None, Path(self._file.name)

    def drop(self) -> None:
        if self._file is not None:
            self._file.close()
            Path(self._file.name).unlink(missing_ok=True)

    def _write(self, data: bytes) -> None:
        if self._file is None and len(self._memory) + len(data) > IN_MEMORY_BYTES:
            self._file = self._spool.open()
            data, self._memory = bytes(self._memory) + data, bytearray()
        if self._file is None:
            self._memory += data
            return
        with disk_errors():
            self._file.write(data)


def _decode(encoded: bytes) -> bytes:
    try:
        return binascii.a2b_base64(encoded.translate(_STANDARD), strict_mode=True) if encoded else b""
    except binascii.Error as error:
        raise DamagedResponse(f"the message is not valid base64: {error}") from error


def read_message(chunks: Iterable[bytes], spool: Spool) -> Downloaded:
    """From the JSON of `messages.get` with format=raw."""
    rest, found, ended = bytearray(), False, False
    message = _Bytes(spool)
    try:
        for chunk in chunks:
            piece = chunk
            if not found:
                rest += chunk
                start = _RAW.search(rest)
                if start is None:
                    _limit(rest)
                    continue
                found, piece = True, bytes(rest[start.end() :])
                del rest[start.end() :]
            if not ended:
                text, quote, after = piece.partition(b'"')
                ended = bool(quote)
                message.add(text)
                piece = quote + after
            rest += piece
            _limit(rest)
        about = _about(rest, found and ended)
        data, path = message.finish()
        return Downloaded(about, data, path)
    except BaseException:
        message.drop()
        raise


def _limit(rest: bytearray) -> None:
    if len(rest) > _REST_AT_MOST:
        raise DamagedResponse("the server sent too much metadata about a message")


def _about(rest: bytearray, is_complete: bool) -> dict[str, Any]:
    try:
        about = json.loads(bytes(rest))
    except ValueError:
        about = None
    if not is_complete or not isinstance(about, dict):
        raise DamagedResponse("the server's response contains no message")
    about.pop("raw", None)
    return about
