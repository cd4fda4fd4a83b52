"""One SMTP connection as lines and message data, over a plain socket or TLS."""

from __future__ import annotations

import socket
import ssl
import threading
from collections.abc import Iterator

COMMAND_BYTES = 8 << 10
"""RFC 5321 asks for 512; AUTH and long paths need more."""
_CHUNK_BYTES = 128 << 10
_END = b"\r\n.\r\n"


class Disconnected(Exception):
    """The client is gone, too slow, or this process stops."""


class LineTooLong(Exception):
    """A command without an end."""


class SmtpWire:
    """Used by one thread; `interrupt` may be called by any."""

    def __init__(self, connection: socket.socket, command_seconds: float, data_seconds: float) -> None:
        self._socket: socket.socket = connection
        self._command_seconds, self._data_seconds = command_seconds, data_seconds
        self._buffer = b""
        self._is_idle = threading.Event()

    @property
    def is_encrypted(self) -> bool:
        return isinstance(self._socket, ssl.SSLSocket)

    @property
    def has_more(self) -> bool:
        """The client sent more than has been read: commands it did not wait for."""
        return bool(self._buffer)

    def encrypt(self, context: ssl.SSLContext) -> None:
        """What the client sent unencrypted before is not part of the encrypted connection."""
        self._buffer = b""
        self._socket.settimeout(self._command_seconds)
        try:
            self._socket = context.wrap_socket(self._socket, server_side=True)
        except (OSError, ValueError) as error:
            raise Disconnected(f"no TLS: {error}") from error

    def send(self, reply: str) -> None:
        try:
            self._socket.sendall(reply.encode("utf-8", "replace") + b"\r\n")
        except OSError as error:
            raise Disconnected(str(error)) from error

    def read_command(self) -> bytes:
        """A line without its end. Waiting here can be interrupted without a loss."""
        while (end := self._buffer.find(b"\n")) < 0:
            if len(self._buffer) > COMMAND_BYTES:
                raise LineTooLong
            self._is_idle.set()
            self._buffer += self._receive(self._command_seconds)
            self._is_idle.clear()
        line, self._buffer = self._buffer[:end], self._buffer[end + 1 :]
        if len(line) > COMMAND_BYTES:
            raise LineTooLong
        return line.removesuffix(b"\r")

    def read_data(self) -> Iterator[bytes]:
        """The message, in pieces, byte for byte. Only CR LF dot CR LF ends it: a bare line feed is part of the message, so
        nothing in it can be taken for the next command."""
        window = b"\r\n" + self._buffer  # as if a line end had come before, so that the first line is like every other
        self._buffer = b""
        skipped = 2
        while (end := window.find(_END)) < 0:
            cut = _safe_cut(window)
            if cut > skipped:
                yield _unstuff(window[:cut])[skipped:]
                window, skipped = window[cut:], 0
            window += self._receive(self._data_seconds)
        self._buffer = window[end + len(_END) :]
        if body := _unstuff(window[: end + 2])[skipped:]:
            yield body

    def interrupt(self) -> None:
        """Ends the wait for a command; a message that is arriving is received to its end."""
        if self._is_idle.is_set():
            self._shut_down(socket.SHUT_RD)

    def close(self) -> None:
        self._shut_down(socket.SHUT_RDWR)
        self._socket.close()

    def _shut_down(self, how: int) -> None:
        try:
            self._socket.shutdown(how)
        except OSError:
            return  # it is closed already

    def _receive(self, seconds: float) -> bytes:
        self._socket.settimeout(seconds)
        try:
            data = self._socket.recv(_CHUNK_BYTES)
        except OSError as error:
            raise Disconnected(str(error)) from error
        if not data:
            raise Disconnected("the client closed the connection")
        return data


def _safe_cut(window: bytes) -> int:
    """How much can be handed on before the end is known: not a line end that a dot may follow."""
    cut = max(0, len(window) - len(_END) + 1)
    if window[:cut].endswith(b"\r\n"):
        return cut - 2
    return cut - 1 if window[:cut].endswith(b"\r") else cut


def _unstuff(lines: bytes) -> bytes:
    """RFC 5321, section 4.5.2: of a line that begins with a dot, the dot is removed."""
    return lines.replace(b"\r\n.", b"\r\n") if b"\r\n." in lines else lines
