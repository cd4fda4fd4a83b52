"""Messages of any length, spooled if they are too large for memory."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import chain

from connectors.base import SPOOL_BYTES, RawMessage
from connectors.spool import Spool

_LINE = b"This line is here only to make the message long, and it does so well.\r\n"
_CHUNK = _LINE * 4096


def spool_if_large(spool: Spool, message: RawMessage) -> RawMessage:
    if message.data is None or len(message.data) <= SPOOL_BYTES:
        return message
    return replace(message, data=None, path=spool.write((message.data,)))


def enlarge(spool: Spool, message: RawMessage, length: int) -> RawMessage:
    """Appends lines until the message is `length` bytes long."""
    assert message.data is not None, "generated in memory"
    filler = _filler(max(0, length - len(message.data)))
    if length <= SPOOL_BYTES:
        return replace(message, data=message.data + b"".join(filler))
    return replace(message, data=None, path=spool.write(chain((message.data,), filler)))


def _filler(length: int) -> Iterator[bytes]:
    for _ in range(length // len(_CHUNK)):
        yield _CHUNK
    yield _CHUNK[: length % len(_CHUNK)]
