"""SMTP journaling: messages per second that are durable before their 250, with 20 connections, and with one.

The receiver runs in a process of its own, the senders in another one. It ends with the spool: how fast mail
is delivered from there into the archive is not measured.
"""

from __future__ import annotations

import logging
import multiprocessing
import os
import socket
import tempfile
import threading
import time
from multiprocessing.synchronize import Event
from pathlib import Path

import psutil
import structlog

from archiver.config import load_settings
from archiver.db.counters import Counters
from archiver.journal.server import open_server
from archiver.journal.spool import JournalSpool
from archiver.secrets import Keyring
from archiver.store.keys import PackKeys
from benchmarks.report import figure, load

SECONDS = 8.0
BODY = b"The quarterly figures are attached; please read them before the meeting on Thursday.\r\n" * 90


def main() -> None:
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.WARNING))
    load()
    for connections, size, target in ((20, len(BODY), "≥ 500"), (1, len(BODY), ""), (4, 2 << 20, "")):
        _measure(connections, size, target)


def _measure(connections: int, size: int, target: str) -> None:
    with tempfile.TemporaryDirectory(prefix="archiver-bench-") as folder:
        spool = Path(folder) / "journal"
        ready, stop = multiprocessing.Event(), multiprocessing.Event()
        port = multiprocessing.Value("i", 0)
        receiver = multiprocessing.Process(target=_receive, args=(spool, port, ready, stop))
        receiver.start()
        ready.wait()
        process = psutil.Process(receiver.pid)
        before = sum(process.cpu_times()[:2])
        started = time.monotonic()
        sent = _send(port.value, connections, size)
        seconds = time.monotonic() - started
        spent, resident = sum(process.cpu_times()[:2]) - before, process.memory_info().rss
        stop.set()
        receiver.join()
        name = f"{connections} connections, {size / 1000:,.0f} KB"
        figure(f"{name}: durable", sent / seconds, "mails/s", target)
        figure(f"{name}: durable bytes", sent * size / seconds / 1e6, "MB/s")
        figure(f"{name}: processor time of the receiver", spent / max(1, sent) * 1000, "ms/mail")
        figure(f"{name}: memory of the receiver", resident / (1 << 20), "MiB")
        files = list(spool.glob("*.mail"))
        figure(f"{name}: mails per fsync", sent / max(1, len(files)), "mails")


def _receive(folder: Path, port: object, ready: Event, stop: Event) -> None:
    settings = load_settings({"JOURNAL_PORT": "1", "ARCHIVER_DATA": str(folder.parent)}, Path(os.devnull))
    spool = JournalSpool(folder, PackKeys(Keyring.generate()))
    with spool.hold():
        server = open_server(settings.model_copy(update={"journal_port": None}), spool, Counters())
        port.value = server.listen("127.0.0.1", 0)  # type: ignore[attr-defined]
        server.start()
        ready.set()
        stop.wait()
        server.stop()


def _send(port: int, connections: int, size: int) -> int:
    counts = [0] * connections
    deadline = time.monotonic() + SECONDS
    body = (BODY * (size // len(BODY) + 1))[: size - 2] + b"\r\n"
    threads = [threading.Thread(target=_client, args=(port, number, counts, deadline, body)) for number in range(connections)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return sum(counts)


def _client(port: int, number: int, counts: list[int], deadline: float, body: bytes) -> None:
    """As little as a sender can do, so that the receiver is what is measured."""
    with socket.create_connection(("127.0.0.1", port)) as connection, connection.makefile("rb") as replies:
        replies.readline()
        connection.sendall(b"HELO bench\r\n")
        replies.readline()
        while time.monotonic() < deadline:
            head = f"Subject: {number}-{counts[number]}\r\nMessage-ID: <{number}.{counts[number]}@example.org>\r\n\r\n".encode()
            connection.sendall(b"MAIL FROM:<a@example.org>\r\nRCPT TO:<journal@example.org>\r\nDATA\r\n")
            for _ in range(3):
                replies.readline()
            connection.sendall(head + body + b".\r\n")
            if not replies.readline().startswith(b"250"):
                raise SystemExit("a message was refused")
            counts[number] += 1


if __name__ == "__main__":
    main()
