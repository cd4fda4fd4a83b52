"""One IMAP connection after login: sends commands and reads responses with their literals, several in flight.

imapclient opens the connection and logs in. Afterwards its response parser would be the bottleneck, and it loads every literal
into memory; here a large one goes straight into a file.
"""

from __future__ import annotations

import contextlib
import io
import re
import socket
import time
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from typing import BinaryIO, NamedTuple

from connectors.base import SPOOL_BYTES
from connectors.imap.errors import Broken, CommandRefused, Dropped, Silent, code_of
from connectors.imap.providers import ImapProvider

Part = bytes | Path
Sink = Callable[[Iterator[bytes]], Path]
"""Receives a literal that is too large for memory, piece by piece."""

_LINE_BYTES = 32 << 20
"""The longest line: a UID SEARCH response of millions, on a server without ESEARCH."""
_LITERAL_BYTES = 2 << 30
_PARTS = 10_000
_CHUNK = 1 << 18
_MESSAGES = 1 << 30
_LIMITED = re.compile(rb"\[MESSAGELIMIT \d{1,10} (\d{1,10})\]", re.IGNORECASE)
_LITERAL = re.compile(rb"\{(\d{1,19})\+?\}$")


class Response(NamedTuple):
    """`tag` is `*` for untagged ones. `parts`: pieces of lines and literals, alternating."""

    tag: bytes
    parts: tuple[Part, ...]

    @property
    def text(self) -> bytes:
        first = self.parts[0]
        return first if isinstance(first, bytes) else b""


def quoted(text: bytes | str) -> bytes:
    data = text.encode() if isinstance(text, str) else text
    if b"\r" in data or b"\n" in data or b"\0" in data:
        raise ValueError("a name with a line break")
    return b'"' + data.replace(b"\\", b"\\\\").replace(b'"', b'\\"') + b'"'


@dataclass(slots=True)
class Wire:
    sock: socket.socket
    reader: BinaryIO
    capabilities: frozenset[str]
    sink: Sink
    """Receives large literals."""
    server_name: str = ""
    provider: ImapProvider | None = None
    """What is known about this server beforehand."""
    ended: bytes = b""
    """How the last command was concluded: the text after OK."""
    round_trips: int = 0
    """How often we waited for a response with nothing else in flight."""
    received_bytes: int = 0
    reading_seconds: float = 0.0
    _tags: Iterator[int] = field(default_factory=count)
    _open: list[bytes] = field(default_factory=list)
    _ended: dict[bytes, Response] = field(default_factory=dict)
    _deflate: zlib._Compress | None = None

    def send(self, command: bytes) -> bytes:
        """Returns the tag. Responses are read by `responses`, in the order in which commands were sent. If the command ends
        with a literal's length, the literal is written after it."""
        tag = b"a%d" % next(self._tags)
        if not self._open:
            self.round_trips += 1
        self._open.append(tag)
        self.write(tag + b" " + command + b"\r\n")
        return tag

    def write(self, data: bytes) -> None:
        if self._deflate is not None:
            data = self._deflate.compress(data) + self._deflate.flush(zlib.Z_SYNC_FLUSH)
        try:
            self.sock.sendall(data)
        except (OSError, ValueError) as error:
            raise Dropped(_reason(error)) from error

    def responses(self, tag: bytes) -> Iterator[Response]:
        """Untagged responses until the command ends. Raises CommandRefused if the server responds NO or BAD."""
        while tag not in self._ended:
            response = self.read()
            if response.tag == b"*":
                yield response
            elif response.tag in self._open:
                self._open.remove(response.tag)
                self._ended[response.tag] = response
            elif response.tag != b"+":
                raise Broken("the server responded to a command that was not sent")
        text = self._ended.pop(tag).text
        status, _, rest = text.partition(b" ")
        if status.upper() != b"OK":
            raise CommandRefused(status.decode("latin-1").upper(), rest.decode("utf-8", "replace"))
        self.ended = rest

    def run(self, command: bytes) -> list[Response]:
        return list(self.responses(self.send(command)))

    def wait_for_continuation(self, tag: bytes) -> None:
        """Waits for the `+` that lets a command continue. Raises CommandRefused if there is none."""
        while True:
            response = self.read()
            if response.tag == b"+":
                return
            if response.tag == tag:
                self._open.remove(tag)
                status, _, rest = response.text.partition(b" ")
                raise CommandRefused(status.decode("latin-1").upper(), rest.decode("utf-8", "replace"))
            if response.tag in self._open:  # the end of an earlier command, which its caller will read later
                self._open.remove(response.tag)
                self._ended[response.tag] = response

    def forget(self, tag: bytes) -> None:
        """The response to this command was read by other means."""
        self._open.remove(tag)

    @property
    def message_limit(self) -> int:
        """How many messages the server is willing to process in one command (RFC 9738)."""
        limits = [name.partition("=")[2] for name in self.capabilities if name.startswith("MESSAGELIMIT=")]
        return min((int(limit) for limit in limits if limit.isdecimal() and int(limit) > 0), default=_MESSAGES)

    @property
    def left_out_from(self) -> int:
        """If the last command processed only a part: the lowest UID of that part, because servers begin at the end."""
        found = _LIMITED.match(self.ended)
        return int(found[1]) if found else 0

    @property
    def busy(self) -> bool:
        return bool(self._open)

    def read(self) -> Response:
        started = time.monotonic()
        try:
            return self._read()
        except TimeoutError as error:
            raise Silent("timed out waiting for the server") from error
        except (OSError, ValueError, zlib.error) as error:
            raise Dropped(_reason(error)) from error
        finally:
            self.reading_seconds += time.monotonic() - started

    def _read(self) -> Response:
        tag, _, rest = self._line().partition(b" ")
        if not tag:
            raise Broken("the server sent an empty line")
        parts: list[Part] = []
        while rest.endswith(b"}") and (found := _LITERAL.search(rest)):
            parts += [rest[: found.start()], self._literal(int(found[1]))]
            if len(parts) > _PARTS:
                raise Broken("a response with too many literals")
            rest = self._line()
        parts.append(rest)
        if tag == b"*" and rest[:3].upper() == b"BYE" and len(parts) == 1:
            text = rest[3:].strip().decode("utf-8", "replace")
            raise Dropped(f"the server closed the session: {text}", code_of(text), text)
        return Response(tag, tuple(parts))

    def _line(self) -> bytes:
        line = self.reader.readline(_LINE_BYTES)
        self.received_bytes += len(line)
        if not line.endswith(b"\n"):
            raise (
                Broken("a line that does not end") if len(line) >= _LINE_BYTES else Dropped("the server closed the connection")
            )
        return line[:-2] if line.endswith(b"\r\n") else line[:-1]

    def _literal(self, length: int) -> Part:
        if length > _LITERAL_BYTES:
            raise Broken(f"the server announced a literal of {length:,} bytes")
        if length > SPOOL_BYTES:
            return self.sink(self._pieces(length))
        data = self.reader.read(length)
        self.received_bytes += len(data)
        if len(data) != length:
            raise Dropped("the server closed the connection in the middle of a message")
        return data

    def _pieces(self, length: int) -> Iterator[bytes]:
        while length:
            piece = self.reader.read(min(_CHUNK, length))
            if not piece:
                raise Dropped("the server closed the connection in the middle of a message")
            self.received_bytes += len(piece)
            length -= len(piece)
            yield piece

    def compress(self) -> bool:
        """COMPRESS=DEFLATE (RFC 4978), while nothing is in flight. False if the server refused."""
        try:
            self.run(b"COMPRESS DEFLATE")
        except CommandRefused:
            return False
        self.reader = io.BufferedReader(_Inflated(self.reader), _CHUNK)
        self._deflate = zlib.compressobj(6, zlib.DEFLATED, -15)
        self.capabilities -= {"COMPRESS=DEFLATE"}
        return True

    def interrupt(self) -> None:
        """May be called from any thread: the reading thread wakes up and finds the connection lost."""
        with contextlib.suppress(OSError):
            self.sock.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        """Only from the reading thread."""
        self.interrupt()
        for end in (self.reader, self.sock):
            with contextlib.suppress(OSError, ValueError):
                end.close()


class _Inflated(io.RawIOBase):
    """Decompresses a stream, never more than requested at a time."""

    def __init__(self, source: BinaryIO) -> None:
        self._source = source
        self._inflate = zlib.decompressobj(-15)

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: memoryview) -> int:  # type: ignore[override]
        data = b""
        while not data:
            packed = self._inflate.unconsumed_tail or self._source.read1(_CHUNK)  # type: ignore[attr-defined]
            if not packed:
                return 0
            data = self._inflate.decompress(packed, len(buffer))
        buffer[: len(data)] = data
        return len(data)

    def close(self) -> None:
        self._source.close()
        super().close()


def _reason(error: Exception) -> str:
    text = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
    return f"the connection is lost ({text or type(error).__name__})"
