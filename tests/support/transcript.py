"""Records conversations between the IMAP connector and a real server, and plays the server's part of them again.

A recording is a list of connections; each has the greeting and, for each command, what the server answered, with its tag as
`{tag}`. Logins are recorded without their credentials. The bytes are those of the server, written as Latin-1.
"""

from __future__ import annotations

import json
import re
import socket
import socketserver
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import BinaryIO

_LITERAL = re.compile(rb"\{(\d+)\}\r\n$")
_SECRET = re.compile(r"^(LOGIN|AUTHENTICATE \S+).*$", re.IGNORECASE)


@dataclass
class Exchange:
    command: str
    answer: str
    """All lines up to the tagged one; a line that begins with `+` waits for the client first."""


@dataclass
class Conversation:
    greeting: str = ""
    exchanges: list[Exchange] = field(default_factory=list)


@dataclass
class Transcript:
    server: str
    expected: dict[str, list[str]]
    """Folder → the SHA-256 of its messages, as they were put there."""
    connections: list[Conversation] = field(default_factory=list)

    def write(self, path: Path) -> None:
        path.write_text(json.dumps(asdict(self), indent=1, ensure_ascii=True) + "\n")

    @classmethod
    def read(cls, path: Path) -> Transcript:
        found = json.loads(path.read_text())
        talks = [
            Conversation(one["greeting"], [Exchange(**exchange) for exchange in one["exchanges"]])
            for one in found["connections"]
        ]
        return cls(found["server"], found["expected"], talks)


def without_secrets(command: str) -> str:
    return _SECRET.sub(r"\1", command)


def read_response(file: BinaryIO) -> bytes:
    """One response line with its literals."""
    data = b""
    while True:
        line = file.readline()
        data += line
        found = _LITERAL.search(line)
        if not line or found is None:
            return data
        data += file.read(int(found[1]))


@contextmanager
def recording(port: int, into: list[Conversation]) -> Iterator[int]:
    """A port that leads to the server and writes down what is said. One command at a time is sent on, so that each answer
    belongs to a command."""

    class Handler(socketserver.StreamRequestHandler):
        def handle(self) -> None:
            with socket.create_connection(("127.0.0.1", port)) as server, server.makefile("rb") as answers:
                server.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                talk = Conversation(read_response(answers).decode("latin-1"))
                into.append(talk)
                self.wfile.write(talk.greeting.encode("latin-1"))
                for line in self.rfile:
                    self._command(server, answers, line, talk)

        def _command(self, server: socket.socket, answers: BinaryIO, line: bytes, talk: Conversation) -> None:
            tag, _, command = line.rstrip(b"\r\n").partition(b" ")
            server.sendall(line)
            said = ""
            while response := read_response(answers):
                is_end = response.startswith(tag + b" ")
                said += ("{tag}" + response[len(tag) :].decode("latin-1")) if is_end else response.decode("latin-1")
                self.wfile.write(response)
                if response.startswith(b"+"):
                    server.sendall(self.rfile.readline())
                if is_end:
                    break
            talk.exchanges.append(Exchange(without_secrets(command.decode("latin-1")), said))

    with _serving(Handler) as found:
        yield found


Variant = Callable[[bytes], Iterator[bytes]]
"""Turns what the server says into the pieces that arrive."""


@contextmanager
def replaying(transcript: Transcript, variant: Variant, unexpected: list[str]) -> Iterator[int]:
    """A port at which the server's part is played. A command that was not recorded ends the connection, and is noted."""
    talks = iter(transcript.connections)
    lock = threading.Lock()

    class Handler(socketserver.StreamRequestHandler):
        disable_nagle_algorithm = True

        def handle(self) -> None:
            with lock:
                talk = next(talks, None)
            if talk is None:
                unexpected.append("another connection")
                return
            try:
                self._say(talk.greeting.encode("latin-1"))
                for exchange in talk.exchanges:
                    if not self._play(exchange):
                        return
            except OSError:
                return

        def _play(self, exchange: Exchange) -> bool:
            tag, _, command = self.rfile.readline().rstrip(b"\r\n").partition(b" ")
            if not tag:
                return False
            if without_secrets(command.decode("latin-1")) != exchange.command:
                unexpected.append(f"{command!r} instead of {exchange.command!r}")
                return False
            answer = exchange.answer.encode("latin-1")
            while answer.startswith(b"+"):
                line, _, answer = answer.partition(b"\r\n")
                self._say(line + b"\r\n")
                self.rfile.readline()
            head, found, end = answer.rpartition(b"{tag}")
            assert found
            self._say(head + tag + end)
            return True

        def _say(self, data: bytes) -> None:
            for piece in variant(data):
                self.wfile.write(piece)
                self.wfile.flush()

    with _serving(Handler) as found:
        yield found


@contextmanager
def _serving(handler: type[socketserver.StreamRequestHandler]) -> Iterator[int]:
    class Server(socketserver.ThreadingTCPServer):
        daemon_threads = True
        allow_reuse_address = True

    with Server(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True).start()
        yield int(server.server_address[1])
        server.shutdown()
