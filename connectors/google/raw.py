"""The original bytes out of Gmail's JSON, decoded while they arrive: a message of 150 MB never lies in memory."""

from __future__ import annotations

import binascii
import json
import re
import shutil
import tempfile
import threading
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import Any, BinaryIO

from connectors.base import SPOOL_BYTES
from connectors.errors import Unavailable

IN_MEMORY_BYTES = 1 << 20
"""While it is downloaded; many are, at once."""
_REST_AT_MOST = 1 << 20
"""All that is not the message itself."""
_RAW = re.compile(rb'"raw"\s*:\s*"')  # inside another value, the quotes would be escaped
_STANDARD = bytes.maketrans(b"-_", b"+/")


class Damaged(Exception):
    """The server's answer is not what Gmail sends."""


class Spool:
    """A temporary folder that is made when it is needed. The one who takes a batch removes its files; `close` the rest."""

    def __init__(self) -> None:
        self._folder: Path | None = None
        self._lock = threading.Lock()
        self._numbers = count()

    def open(self) -> BinaryIO:
        try:
            with self._lock:
                if self._folder is None:
                    self._folder = Path(tempfile.mkdtemp(prefix="archiver-google-"))
                return (self._folder / f"{next(self._numbers)}.eml").open("xb")
        except OSError as error:
            raise _full(error) from error

    def close(self) -> None:
        with self._lock:
            if self._folder:
                shutil.rmtree(self._folder, ignore_errors=True)


def _full(error: OSError) -> Unavailable:
    return Unavailable(f"a large message can't be spooled: {error.strerror}")


@dataclass(frozen=True, slots=True)
class Downloaded:
    """A message as it came: what is said about it, and its bytes, in memory or in a file."""

    about: dict[str, Any]
    data: bytes | None
    path: Path | None

    def in_memory_if_small(self) -> Downloaded:
        """As a batch wants it."""
        if self.path is None or self.path.stat().st_size > SPOOL_BYTES:
            return self
        data = self.path.read_bytes()
        self.path.unlink()
        return Downloaded(self.about, data, None)


class _Bytes:
    """Collects decoded bytes, in memory first."""

    def __init__(self, spool: Spool) -> None:
        self._spool = spool
        self._memory = bytearray()
        self._file: BinaryIO | None = None
        self._carry = b""
        self._padded = False

    def add(self, encoded: bytes) -> None:
        if self._padded:
            return
        # Padding stands at the end only; Google may write it as an escape (\u003d).
        self._padded = b"=" in encoded or b"\\" in encoded
        if self._padded:
            encoded = encoded.partition(b"\\")[0].partition(b"=")[0]
        whole = self._carry + encoded
        end = len(whole) // 4 * 4
        self._carry = whole[end:]
        self._write(_decoded(whole[:end]))

    def finish(self) -> tuple[bytes | None, Path | None]:
        if self._carry:
            self._write(_decoded(self._carry + b"=" * (-len(self._carry) % 4)))
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
        try:
            if self._file is not None:
                self._file.write(data)
            else:
                self._memory += data
        except OSError as error:
            raise _full(error) from error


def _decoded(encoded: bytes) -> bytes:
    try:
        return binascii.a2b_base64(encoded.translate(_STANDARD), strict_mode=True) if encoded else b""
    except binascii.Error as error:
        raise Damaged(f"the message is no base64: {error}") from error


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
        raise Damaged("the server says too much about a message")


def _about(rest: bytearray, is_complete: bool) -> dict[str, Any]:
    try:
        about = json.loads(bytes(rest))
    except ValueError:
        about = None
    if not is_complete or not isinstance(about, dict):
        raise Damaged("the server's answer holds no message")
    about.pop("raw", None)
    return about
