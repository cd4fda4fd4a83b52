"""Messages that are too large for memory, as files."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from dataclasses import replace
from itertools import count
from pathlib import Path

from connectors.base import SPOOL_BYTES, RawMessage
from connectors.errors import Unavailable

_LINE = b"This line is here only to make the message long, and it does so well.\r\n"
_CHUNK = _LINE * 4096


class Spool:
    """A temporary folder that is made when it is needed. The one who takes a batch removes its files; `close` the rest."""

    def __init__(self) -> None:
        self._folder: Path | None = None
        self._numbers = count()

    def fitted(self, message: RawMessage) -> RawMessage:
        """The message, in a file if it is too large for memory."""
        if message.data is None or len(message.data) <= SPOOL_BYTES:
            return message
        return self._spooled(message, iter((message.data,)))

    def enlarged(self, message: RawMessage, length: int) -> RawMessage:
        """The message with so many lines after it that it is `length` bytes long."""
        assert message.data is not None, "made in memory"
        missing = max(0, length - len(message.data))
        if length <= SPOOL_BYTES:
            return replace(message, data=message.data + b"".join(_filler(missing)))
        return self._spooled(message, _after(message.data, _filler(missing)))

    def close(self) -> None:
        if self._folder:
            shutil.rmtree(self._folder, ignore_errors=True)

    def _spooled(self, message: RawMessage, chunks: Iterator[bytes]) -> RawMessage:
        try:
            if self._folder is None:
                self._folder = Path(tempfile.mkdtemp(prefix="archiver-fake-"))
            path = self._folder / f"{next(self._numbers)}.eml"
            with path.open("wb") as file:
                file.writelines(chunks)
        except OSError as error:
            raise Unavailable(f"a large message can't be spooled: {error.strerror}") from error
        return replace(message, data=None, path=path)


def _after(first: bytes, rest: Iterator[bytes]) -> Iterator[bytes]:
    yield first
    yield from rest


def _filler(length: int) -> Iterator[bytes]:
    for _ in range(length // len(_CHUNK)):
        yield _CHUNK
    yield _CHUNK[: length % len(_CHUNK)]
