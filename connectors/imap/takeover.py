"""Takes the connection over from imapclient. The only place that uses what imapclient does not promise to keep."""

from __future__ import annotations

import io
import socket
from typing import BinaryIO

from imapclient import IMAPClient

_BUFFER_BYTES = 1 << 18


def quieten(client: IMAPClient) -> None:
    """Otherwise it formats everything it reads for an unused log."""
    client._imap.debug = 0


def take_over(client: IMAPClient) -> tuple[socket.socket, BinaryIO]:
    """The socket, encrypted or not, and what reads from it, without losing what imaplib has read ahead. A release of imapclient
    or of Python that keeps them elsewhere raises here, at the first connection."""
    sock, file = client._imap.sock, client._imap.file
    if not isinstance(sock, socket.socket) or not isinstance(file, io.BufferedReader):
        raise TypeError(f"imapclient keeps its connection as {type(sock).__name__} and {type(file).__name__}")
    return sock, reader(file)


def reader(file: io.BufferedReader) -> BinaryIO:
    """Returns what imaplib has buffered first, and then reads in larger pieces than it would."""
    return io.BufferedReader(_Through(file), _BUFFER_BYTES)


class _Through(io.RawIOBase):
    """Bypasses imaplib's buffer once that is empty. Its `readinto1` returns buffered bytes only after another read from the
    socket, which deadlocks at the end of a response: the server is waiting for us."""

    def __init__(self, file: io.BufferedReader) -> None:
        self._file = file
        self._is_empty = False

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: memoryview) -> int | None:  # type: ignore[override]
        if self._is_empty:
            return self._file.raw.readinto(buffer)
        ahead = self._file.read1(len(buffer))  # all of it, because our buffer is larger
        self._is_empty = True
        buffer[: len(ahead)] = ahead
        return len(ahead)

    def close(self) -> None:
        self._file.close()
        super().close()
