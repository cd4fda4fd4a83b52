"""The archive store: how fast a batch is safe, how small it gets, how fast it is proved and rebuilt.

Real mail from the corpus if it is there, generated mail besides. The machine may be shared: beside wall time stand the
processor time of our one process, and that of the Postgres process which works for it.
"""

from __future__ import annotations

import base64
import gc
import hashlib
import io
import logging
import os
import random
import tarfile
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import psutil
import psycopg
import structlog
import zstandard
from sqlalchemy import text

from archiver.db import schema
from archiver.db.engine import make_engine
from archiver.db.tables import uuid7
from archiver.maintenance.checks.verify import verify
from archiver.maintenance.recovery.rebuild import rebuild
from archiver.parsing.readers import process_readers
from archiver.secrets import Keyring
from archiver.store.archive import Archive
from archiver.store.dictionaries import Trainer
from archiver.store.keys import PackKeys
from archiver.store.local import LocalPacks
from archiver.store.open import DatabasePlaces
from archiver.supervisor.folder import DataFolder
from archiver.supervisor.postgres import EmbeddedPostgres
from archiver.supervisor.ready import notify_ready
from archiver.sync.ingest.store_batch import Ingest, load_origin
from benchmarks.report import figure, load
from connectors.base import Batch, RawMessage

CORPUS = Path(os.environ.get("ARCHIVER_TEST_CORPUS", Path(__file__).parents[2] / "shared" / "corpus"))
BATCH = 200


def main() -> None:
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.WARNING))
    load()
    notify_ready()  # collects garbage as rarely as our processes do
    with tempfile.TemporaryDirectory(prefix="archiver-bench-") as folder, server(Path(folder)) as postgres:
        bench = corpus_messages()
        if bench:
            short = [message for message in bench if len(message) < 16_384]
            speed(postgres, Path(folder), "real mail below 16 KiB", short * 2)
            size_and_care(postgres, Path(folder), bench)
        speed(postgres, Path(folder), "generated mail, median 4 KiB", list(generated(20_000)))
        newsletters(postgres, Path(folder))


def corpus_messages() -> list[bytes]:
    path = CORPUS / "bench.tar.zst"
    if not path.exists():
        print(f"  no {path}: only generated mail is measured")
        return []
    messages = []
    data = zstandard.ZstdDecompressor().decompressobj().decompress(path.read_bytes())
    with tarfile.open(fileobj=io.BytesIO(data)) as tar:
        for member in tar:
            content = tar.extractfile(member) if member.isfile() else None
            if content is not None:
                messages.append(content.read())
    random.Random(1).shuffle(messages)
    return messages


def generated(count: int) -> Iterator[bytes]:
    """Mail of made-up words; the lengths are spread like those of real mail, with a median of 4 KiB."""
    chance = random.Random(2)
    letters = "abcdefghijklmnopqrstuvwxyz"
    words = ["".join(chance.choices(letters, k=chance.randint(2, 11))) for _ in range(8_000)]
    for number in range(count):
        body = []
        left = int(chance.lognormvariate(8.0, 0.9))
        while left > 0:
            line = " ".join(chance.choices(words, k=12))
            body.append(line)
            left -= len(line) + 2
        sender, reader = chance.choice(words), chance.choice(words)
        head = (
            f"Return-Path: <{sender}@example.org>\r\nReceived: from mx{number % 9}.example.org by mail.example.com; "
            f"Tue, {1 + number % 28} Mar 2024 10:00:00 +0000\r\n"
            f"Message-ID: <{number}.{chance.getrandbits(64):x}@example.org>\r\n"
            f"Date: Tue, {1 + number % 28} Mar 2024 09:59:{number % 60:02} +0000\r\n"
            f"From: {sender.title()} <{sender}@example.org>\r\n"
            f"To: {reader.title()} <{reader}@example.com>\r\nSubject: {' '.join(chance.choices(words, k=5))}\r\n"
            "MIME-Version: 1.0\r\nContent-Type: text/plain; charset=utf-8\r\nX-Mailer: Bench 1.0\r\n\r\n"
        )
        yield (head + "\r\n".join(body)).encode()


@contextmanager
def server(folder: Path) -> Iterator[EmbeddedPostgres]:
    data = DataFolder(folder / "data")
    data.prepare()
    postgres = EmbeddedPostgres(data)
    postgres.prepare()
    with postgres.running():
        yield postgres


@dataclass
class World:
    ingest: Ingest
    archive: Archive
    engine: object
    packs: Path

    @property
    def stored_bytes(self) -> int:
        return sum(path.stat().st_size for path in self.packs.iterdir())


@contextmanager
def world(postgres: EmbeddedPostgres, folder: Path, packs: Path | None = None) -> Iterator[World]:
    name = f"b_{uuid7().hex}"
    with psycopg.connect(postgres.url("postgres"), autocommit=True) as connection:
        connection.execute(f'CREATE DATABASE "{name}"')
    engine = make_engine(postgres.url(name), "bench")
    schema.migrate(engine)
    keys, trainer, places = PackKeys(Keyring({"bench": b"b" * 32})), Trainer(), DatabasePlaces(engine)
    packs = packs or folder / f"packs-{name}"
    archive = Archive(LocalPacks(packs, keys, trainer, places.known_end), keys, trainer, places)
    try:
        yield World(Ingest(engine, archive), archive, engine, packs)
    finally:
        archive.close()
        engine.dispose()


class Stopwatch:
    """Wall time, our processor time (that of processes we started and that ended, too), and that of all Postgres processes."""

    def __enter__(self) -> Stopwatch:
        gc.collect()
        gc.freeze()  # the mail that we hold ready is not what a worker has in its memory
        self._wall, self._cpu, self._server = time.monotonic(), _own_seconds(), _server_seconds()
        return self

    def __exit__(self, *_: object) -> None:
        self.wall = time.monotonic() - self._wall
        self.cpu = _own_seconds() - self._cpu
        self.server = _server_seconds() - self._server


def _own_seconds() -> float:
    times = os.times()
    return times.user + times.system + times.children_user + times.children_system + _seconds(readers=True)


def _server_seconds() -> float:
    return _seconds(readers=False)


def _seconds(*, readers: bool) -> float:
    """Of our children that read mail, or of all others, which are those of Postgres."""
    total = 0.0
    for process in psutil.Process().children(recursive=True):
        try:
            if ("archiver.parsing.child" in process.cmdline()) is not readers:
                continue
            times = process.cpu_times()
        except psutil.NoSuchProcess:
            continue
        total += times.user + times.system + times.children_user + times.children_system  # of those that ended
    return total


def store(at: World, messages: list[bytes]) -> Stopwatch:
    source, mailbox = uuid7(), uuid7()
    with at.engine.begin() as connection:  # type: ignore[attr-defined]
        connection.execute(text("INSERT INTO ingestion_sources (id, kind, name) VALUES (:s, 'imap', 'bench')"), {"s": source})
        connection.execute(
            text("INSERT INTO mailboxes (id, source_id, address) VALUES (:m, :s, 'a@b')"), {"m": mailbox, "s": source}
        )
        origin = load_origin(connection, mailbox)
    batches = [
        Batch(
            tuple(
                RawMessage(f"INBOX\u241f1\u241f{start + at}", data) for at, data in enumerate(messages[start : start + BATCH])
            )
        )
        for start in range(0, len(messages), BATCH)
    ]
    process_readers().summaries(
        [b""], [None]
    )  # the child is started, as our own modules are loaded: once for millions of messages
    with Stopwatch() as watch:
        for batch in batches:
            at.ingest.store_batch(origin, batch)
    return watch


def speed(postgres: EmbeddedPostgres, folder: Path, name: str, messages: list[bytes]) -> None:
    once = list(dict.fromkeys(messages))
    copies = [message.replace(b"\n", b"\nX-Copy: 1\n", 1) for message in once] if len(once) < len(messages) else []
    messages = once + copies
    median = sorted(map(len, messages))[len(messages) // 2]
    print(f"  {name}: {len(messages):,} messages, median {median:,} bytes")
    with world(postgres, folder) as at:
        watch = store(at, messages)
    figure("store_batch, one process, batches of 200, fsync on", len(messages) / watch.wall, "messages/s", "≥ 4,000")
    figure("  by our processor time alone", len(messages) / watch.cpu, "messages/s", "")
    figure("  Postgres' processor time per message", watch.server / len(messages) * 1e6, "µs", "")


def size_and_care(postgres: EmbeddedPostgres, folder: Path, messages: list[bytes]) -> None:
    raw = sum(map(len, messages))
    print(f"  the benchmark set: {len(messages):,} messages, {raw / 1e6:.1f} MB")
    with world(postgres, folder) as at:
        watch = store(at, messages)
        figure("store_batch", len(messages) / watch.wall, "messages/s", "")
        for pack_id in at.archive.backend.packs():
            at.archive.close()
            _seal(at, pack_id)
        figure("bytes on disk / raw bytes, all frames, sealed", at.stored_bytes / raw, "", "≤ 0.27")
        with Stopwatch() as watch:
            report = verify(at.engine, at.archive, full=True)  # type: ignore[arg-type]
        assert report.is_healthy, report.problems
        figure("verify --full", report.raw_bytes / 1e6 / watch.wall, "MB/s of raw mail", "≥ 150")
        figure("  by our processor time alone", report.raw_bytes / 1e6 / watch.cpu, "MB/s", "")
        some = [hashlib.sha256(message).digest() for message in messages[:1000]]
        with Stopwatch() as watch:
            for sha256 in some:
                at.archive.read(sha256)
        figure("one message by its hash", watch.wall / len(some) * 1e3, "ms", "")
        packs = at.packs
    with world(postgres, folder, packs) as at, Stopwatch() as watch:
        done = rebuild(at.engine, at.archive)  # type: ignore[arg-type]
    assert done.messages == len(set(messages)), done
    figure("rebuild", done.messages / watch.wall, "messages/s", "≥ 4,000")
    figure("  by our processor time alone", done.messages / watch.cpu, "messages/s", "")


def _seal(at: World, pack_id: object) -> None:
    from archiver.store.files import OsFiles
    from archiver.store.writer import PackWriter, pack_name

    path = at.packs / pack_name(pack_id)  # type: ignore[arg-type]
    writer = PackWriter.adopt(path, at.archive.keys.active, Trainer(), OsFiles(), lambda _: path.stat().st_size)
    if writer is not None:
        writer.seal()


def newsletters(postgres: EmbeddedPostgres, folder: Path) -> None:
    chance = random.Random(3)
    attachment = base64.encodebytes(chance.randbytes(2 << 20)).replace(b"\n", b"\r\n")
    text_ = " ".join(chance.choices(["offer", "news", "today", "only", "read", "more"], k=400)).encode()
    messages = [
        b"From: news@example.org\r\nTo: reader%d@example.com\r\nSubject: News\r\nMessage-ID: <%d@example.org>\r\n"
        b'Content-Type: multipart/mixed; boundary="b"\r\n\r\n--b\r\nContent-Type: text/plain\r\n\r\n%s\r\n--b\r\n'
        b"Content-Type: application/pdf\r\nContent-Transfer-Encoding: base64\r\n\r\n%s--b--\r\n"
        % (number, number, text_, attachment)
        for number in range(50)
    ]
    with world(postgres, folder) as at:
        store(at, messages)
        ratio = at.stored_bytes / sum(map(len, messages))
    figure("50 copies of a newsletter with a 2 MiB attachment, bytes on disk / raw", ratio, "", "≤ 0.10")


if __name__ == "__main__":
    main()
