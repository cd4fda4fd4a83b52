"""A pooler as PgBouncer is in transaction mode: a client has a connection to the server for one transaction at a time."""

from __future__ import annotations

import contextlib
import os
import select
import socket
import struct
import threading
from collections.abc import Iterator
from typing import Any
from urllib.parse import urlsplit

import psycopg
from psycopg import pq
from psycopg.pq.abc import PGconn

_PLAIN = (80877103, 80877104)
"""Requests for TLS and GSSAPI, which are refused."""
_TOLD = ("server_version", "server_encoding", "client_encoding", "DateStyle", "TimeZone", "integer_datetimes",
         "standard_conforming_strings")  # fmt: skip


class TransactionPooler:
    def __init__(self, url: str, servers: int = 4) -> None:
        self._url = url
        self._servers = [pq.PGconn.connect(url.encode()) for _ in range(servers)]
        assert all(server.status == pq.ConnStatus.OK for server in self._servers)
        self._free = list(self._servers)
        self._changed = threading.Condition()
        self._listener = socket.create_server(("127.0.0.1", 0))
        threading.Thread(target=self._accept, daemon=True, name="pooler").start()

    @property
    def url(self) -> str:
        parts, port = urlsplit(self._url), self._listener.getsockname()[1]
        return f"postgresql://{parts.username}@127.0.0.1:{port}{parts.path}?sslmode=disable"

    def close(self) -> None:
        self._listener.close()
        for server in self._servers:
            server.finish()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                threading.Thread(target=self._serve, args=(client,), daemon=True).start()

    def _serve(self, client: socket.socket) -> None:
        with client, contextlib.suppress(OSError):
            if self._welcome(client):
                _Session(self, client).run()

    def _welcome(self, client: socket.socket) -> bool:
        while True:
            (length,) = struct.unpack("!i", client.recv(4, socket.MSG_WAITALL))
            (code,) = struct.unpack("!i", client.recv(length - 4, socket.MSG_WAITALL)[:4])
            if code not in _PLAIN:
                break
            client.sendall(b"N")
        told = b"".join(
            _message(b"S", name.encode() + b"\0" + (self._servers[0].parameter_status(name.encode()) or b"") + b"\0")
            for name in _TOLD
        )
        key = _message(b"K", struct.pack("!ii", 1, 1))
        client.sendall(_message(b"R", struct.pack("!i", 0)) + told + key + _message(b"Z", b"I"))
        return True

    def take(self) -> PGconn:
        """The one that was used last, as PgBouncer does."""
        with self._changed:
            self._changed.wait_for(lambda: self._free)
            return self._free.pop()

    def give_back(self, server: PGconn) -> None:
        with self._changed:
            self._free.append(server)
            self._changed.notify()


class _Session:
    """One client."""

    def __init__(self, pooler: TransactionPooler, client: socket.socket) -> None:
        self._pooler, self._client = pooler, client
        self._server: PGconn | None = None
        self._from_client, self._from_server = b"", b""
        self._unanswered = 0

    def run(self) -> None:
        try:
            while True:
                watched: list[Any] = [self._client, *([self._server.socket] if self._server else [])]
                readable = select.select(watched, [], [])[0]
                if self._client in readable and not self._asked():
                    return
                if self._server and self._server.socket in readable:
                    self._answered()
        finally:
            if self._server is not None:
                self._unanswered += 1
                os.write(self._server.socket, _message(b"Q", b"ROLLBACK\0"))
                while self._server is not None:
                    with contextlib.suppress(OSError):
                        self._answered()

    def _asked(self) -> bool:
        data = self._client.recv(65536)
        if not data:
            return False
        messages, self._from_client = _split(self._from_client + data)
        for kind, message in messages:
            if kind == b"X":
                return False
            self._server = self._server or self._pooler.take()
            self._unanswered += kind in (b"Q", b"S")
            _write(self._server.socket, message)
        return True

    def _answered(self) -> None:
        assert self._server
        messages, self._from_server = _split(self._from_server + os.read(self._server.socket, 65536))
        for kind, message in messages:
            if kind == b"Z":
                self._unanswered -= 1
                if not self._unanswered and message[-1:] == b"I":
                    assert self._server is not None
                    self._pooler.give_back(self._server)
                    self._server = None
        self._client.sendall(b"".join(message for _, message in messages))


def _write(descriptor: int, data: bytes) -> None:
    while data:
        try:
            data = data[os.write(descriptor, data) :]
        except BlockingIOError:
            select.select([], [descriptor], [])


def _message(kind: bytes, content: bytes) -> bytes:
    return kind + struct.pack("!i", len(content) + 4) + content


def _split(data: bytes) -> tuple[list[tuple[bytes, bytes]], bytes]:
    """Whole messages with their kinds, and the rest."""
    found = []
    while len(data) >= 5 and len(data) >= (end := 1 + struct.unpack("!i", data[1:5])[0]):
        found.append((data[:1], data[:end]))
        data = data[end:]
    return found, data


@contextlib.contextmanager
def transaction_pooler(url: str) -> Iterator[TransactionPooler]:
    with psycopg.connect(url):
        pass
    pooler = TransactionPooler(url)
    try:
        yield pooler
    finally:
        pooler.close()
