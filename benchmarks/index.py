"""From stored bytes to found mail: packs to searchable, mail files to searchable beside notmuch and mu, attachments, memory.

    python -m benchmarks.index [--messages N]

The worker is the real one, `python -m workers indexing`, with real servers. The machine may be shared: beside wall time stands
the processor time of each part, for each message.
"""

from __future__ import annotations

import argparse
import base64
import logging
import os
import random
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psutil
import structlog
from sqlalchemy import Engine, text

from archiver.config import Settings, load_settings
from archiver.db import schema
from archiver.db.engine import make_engine
from archiver.db.ids import uuid7
from archiver.secrets import create_missing_keys
from archiver.store.open import open_archive
from archiver.supervisor.folder import DataFolder
from archiver.supervisor.postgres import EmbeddedPostgres
from archiver.supervisor.valkey import EmbeddedValkey
from archiver.sync.ingest.store_batch import Ingest, load_origin
from benchmarks.report import figure, load
from benchmarks.store import corpus_messages, generated
from connectors.base import Batch, RawMessage

_KEY = "a-key-for-measuring"
_BATCH = 200
_LARGE_BYTES = 100 << 20
_LOOK_SECONDS = 0.1  # more often would cost processor time that is measured; the time that is told is up to this much longer
_START_SECONDS = 5  # until a worker is up: what it costs to start is not what is measured
_SOURCE = "INSERT INTO ingestion_sources (id, kind, name, status) VALUES (:s, 'fake', 'bench', 'paused')"
_NOTMUCH_CONFIG = "[database]\npath={0}\n[new]\ntags=new\n[user]\nname=x\nprimary_email=x@example.org\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--messages", type=int, default=0, help="so many of the benchmark set; 0: all")
    parser.add_argument("--processes", type=int, default=1, help="indexing workers")
    chosen = parser.parse_args()
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.WARNING))
    load()
    messages = list(dict.fromkeys(corpus_messages() or generated(8_000)))
    if chosen.messages:
        messages = messages[: chosen.messages]
    print(f"  {len(messages):,} messages, {sum(map(len, messages)) / 1e6:.1f} MB; {chosen.processes} indexing process(es)")
    packs_to_body(messages, chosen.processes)
    files_to_body(messages, chosen.processes)
    one_large_attachment()


class Bench:
    """Real servers in a folder of their own, an archive, and workers that can be watched."""

    def __init__(self, place: Path, postgres: EmbeddedPostgres, valkey: EmbeddedValkey) -> None:
        self.variables = {
            "ARCHIVER_DATA": str(place / "data"),
            "DATABASE_URL": postgres.url(),
            "REDIS_URL": valkey.url(),
            "MEILI_MASTER_KEY": _KEY,
            "MEILI_HOST": "http://127.0.0.1:1",
            "SYNC_FREQUENCY": "1d",
            "RECONCILE_FREQUENCY": "1d",
            "LOG_LEVEL": "warning",
        }
        self.search = self._start_search(place)
        self.settings: Settings = load_settings(self.variables, Path("none"))
        create_missing_keys(self.settings)
        self.engine: Engine = make_engine(postgres.url(), "bench")
        schema.migrate(self.engine)
        self.archive = open_archive(self.settings, self.engine)
        self.ingest = Ingest(self.engine, self.archive)
        self.postgres = next(one for one in psutil.Process().children() if "postgres" in one.name())
        self.workers: list[psutil.Popen] = []

    def _start_search(self, place: Path) -> psutil.Popen:
        program = (
            "import sys; from pathlib import Path; from archiver.search_server.server import serve;"
            "serve(Path(sys.argv[1]), sys.argv[2], port=0, ready=lambda url: print(url, flush=True))"
        )
        process = psutil.Popen([sys.executable, "-c", program, str(place / "search"), _KEY], stdout=subprocess.PIPE, text=True)
        self.variables["MEILI_HOST"] = process.stdout.readline().strip()
        return process

    def start(self, queue: str) -> psutil.Popen:
        worker = psutil.Popen([sys.executable, "-m", "workers", queue], env={**os.environ, **self.variables})
        self.workers.append(worker)
        return worker

    def store(self, batches: Iterator[Sequence[bytes]]) -> None:
        source, mailbox = uuid7(), uuid7()
        with self.engine.begin() as connection:
            connection.execute(text(_SOURCE), {"s": source})
            connection.execute(
                text("INSERT INTO mailboxes (id, source_id, address) VALUES (:m, :s, 'a@b')"), {"m": mailbox, "s": source}
            )
            origin = load_origin(connection, mailbox)
        for batch in batches:
            self.ingest.store_batch(origin, Batch(tuple(RawMessage(str(uuid7()), data) for data in batch)))

    def wait(self, states: str) -> None:
        """Until no message is in one of these states."""
        statement = text("SELECT EXISTS (SELECT 1 FROM messages WHERE search_state = ANY(string_to_array(:states, ',')))")
        while True:
            with self.engine.connect() as connection:
                if not connection.execute(statement, {"states": states}).scalar():
                    return
            time.sleep(_LOOK_SECONDS)

    def wait_for_lease(self) -> None:
        """Until the first messages are in work: the clock begins with them."""
        while not self.value("SELECT EXISTS (SELECT 1 FROM index_leases)"):
            time.sleep(0.005)

    def value(self, statement: str) -> Any:
        with self.engine.connect() as connection:
            return connection.execute(text(statement)).scalar()

    def cpu(self) -> dict[str, float]:
        """Processor seconds until now, by part; what has ended in between is lost."""
        postgres = sum(_seconds(one) for one in [self.postgres, *self.postgres.children(recursive=True)])
        workers = sum(_seconds(one) for one in [*self.workers, *(child for one in self.workers for child in readers_of(one))])
        here = time.process_time() + sum(_seconds(one) for one in readers_of(psutil.Process()))
        return {"workers": workers, "Postgres": postgres, "search": _seconds(self.search), "this process": here}

    def close(self) -> None:
        for process in [*self.workers, self.search]:
            process.terminate()
            process.wait()
        self.archive.close()
        self.engine.dispose()


def readers_of(process: psutil.Process) -> list[psutil.Process]:
    """The children that read mail for it."""
    return [child for child in process.children() if "archiver.parsing.child" in child.cmdline()]


def _seconds(process: psutil.Process) -> float:
    try:
        times = process.cpu_times()
        return float(times.user + times.system)
    except psutil.NoSuchProcess:
        return 0.0


@contextmanager
def bench() -> Iterator[Bench]:
    with tempfile.TemporaryDirectory(prefix="archiver-bench-") as place:
        folder = DataFolder(Path(place) / "data")
        folder.prepare()
        postgres, valkey = EmbeddedPostgres(folder), EmbeddedValkey(folder)
        postgres.prepare()
        valkey.prepare()
        with postgres.running(), valkey.running():
            made = Bench(Path(place), postgres, valkey)
            try:
                yield made
            finally:
                made.close()


@contextmanager
def watched(processes: Sequence[psutil.Process], peaks: list[float]) -> Iterator[None]:
    """Notes the greatest resident memory of each process, in MiB; their children are not counted."""
    over = threading.Event()
    peaks[:] = [0.0] * len(processes)

    def look() -> None:
        while not over.wait(0.05):
            for number, process in enumerate(processes):
                peaks[number] = max(peaks[number], process.memory_info().rss / 2**20)

    thread = threading.Thread(target=look)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


def packs_to_body(messages: list[bytes], processes: int) -> None:
    print("  packs to searchable:")
    with bench() as at:
        at.store(_batches(messages))
        at.start("ingestion")  # which calls the indexing workers when they come
        time.sleep(_START_SECONDS)
        workers = [at.start("indexing") for _ in range(processes)]
        peaks: list[float] = []
        with watched(workers, peaks):
            at.wait_for_lease()
            seconds, spent = _measured(at, lambda: at.wait("pending"))
            figure("packs to body", len(messages) / seconds, "messages/s", "≥ 3,000")
            _tell_cpu(spent, len(messages))
            waiting = at.value("SELECT count(*) FROM messages WHERE search_state = 'body'")
            seconds, _ = _measured(at, lambda: at.wait("body"))
            figure(f"attachments of {waiting:,} messages after it", seconds, "s")
        figure("an indexing worker's memory at most", max(peaks), "MiB", "≤ 400")
        figure("documents that were made again (threads that were joined)", at.value(_AGAIN), "")


_AGAIN = "SELECT count(*) FROM messages WHERE index_version > 1 AND search_state <> 'pending' AND NOT has_attachments"


def files_to_body(messages: list[bytes], processes: int) -> None:
    """Mail files read, stored and indexed at once, beside notmuch and mu on the same files."""
    print("  mail files to searchable:")
    with tempfile.TemporaryDirectory(prefix="archiver-bench-mail-") as folder:
        maildir = Path(folder) / "mail"
        for name in ("cur", "new", "tmp"):
            (maildir / name).mkdir(parents=True)
        for number, data in enumerate(messages):
            (maildir / "cur" / f"{number}:2,S").write_bytes(data)
        with bench() as at:
            for _ in range(processes):
                at.start("indexing")
            at.start("ingestion")
            time.sleep(_START_SECONDS)

            def act() -> None:
                paths = sorted((maildir / "cur").iterdir())
                at.store(
                    [path.read_bytes() for path in paths[start : start + _BATCH]] for start in range(0, len(paths), _BATCH)
                )
                at.wait("pending")

            seconds, spent = _measured(at, act)
        ours = len(messages) / seconds
        figure("archived and searchable", ours, "messages/s")
        _tell_cpu(spent, len(messages))
        for name, target, run in (("notmuch new", "≥ 8", _notmuch), ("mu index", "≥ 2", _mu)):
            if shutil.which(name.split()[0]) is None:
                print(f"  {name}: not installed")
                continue
            before, started = os.times(), time.monotonic()
            run(Path(folder), maildir)
            seconds, after = time.monotonic() - started, os.times()
            theirs = len(messages) / seconds
            figure(name, theirs, "messages/s")
            cpu = after.children_user + after.children_system - before.children_user - before.children_system
            figure("  its processor time for each message", cpu / len(messages) * 1e6, "µs")
            figure("  we are faster by", ours / theirs, "×", target)


def _notmuch(folder: Path, maildir: Path) -> None:
    config = folder / "notmuch-config"
    config.write_text(_NOTMUCH_CONFIG.format(maildir))
    environment = {**os.environ, "NOTMUCH_CONFIG": str(config)}
    subprocess.run(["notmuch", "new"], env=environment, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


def _mu(folder: Path, maildir: Path) -> None:
    home = folder / "mu"
    quiet = {"check": True, "stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    subprocess.run(["mu", "init", f"--muhome={home}", f"--maildir={maildir}"], **quiet)  # type: ignore[call-overload]
    subprocess.run(["mu", "index", f"--muhome={home}"], **quiet)  # type: ignore[call-overload]


def one_large_attachment() -> None:
    """Small files alone, and the same behind 100 MB that can be read: how long they take, and what the worker's memory does."""
    print("  200 small attachments, and one of 100 MB before them:")
    words = b"the quick brown fox jumps over the lazy dog\n"
    small = [_with_text(number, words * 500 + str(number).encode()) for number in range(1, 201)]
    large = _with_text(0, words * (_LARGE_BYTES // len(words)))
    for before in ([], [large]):
        with bench() as at:
            at.store(iter([*([before] if before else []), small]))
            worker = at.start("indexing")
            at.start("ingestion")
            peaks: list[float] = []
            with watched([worker], peaks):
                at.wait("pending")
                started = time.monotonic()
                while at.value(_SMALL_LEFT):
                    time.sleep(0.05)
                name = "behind the large one" if before else "alone"
                figure(f"the small ones {name}, searchable with their files", time.monotonic() - started, "s")
                at.wait("body")
            if before:
                figure("all of them", time.monotonic() - started, "s")
                figure("the worker's memory at most", max(peaks), "MiB", "≤ 400")


_SMALL_LEFT = "SELECT count(*) FROM messages WHERE search_state IN ('pending', 'body') AND size_bytes < 1000000"


def _with_text(number: int, content: bytes) -> bytes:
    chance = random.Random(number)
    encoded = base64.encodebytes(content).replace(b"\n", b"\r\n")
    return (
        b"From: a@example.org\r\nMessage-ID: <%d.%d@example.org>\r\nSubject: file %d\r\nMIME-Version: 1.0\r\n"
        b'Content-Type: multipart/mixed; boundary="b"\r\n\r\n--b\r\nContent-Type: text/plain\r\n\r\nsee the file\r\n--b\r\n'
        b'Content-Type: application/octet-stream; name="%d.txt"\r\nContent-Transfer-Encoding: base64\r\n\r\n%s--b--\r\n'
        % (number, chance.getrandbits(32), number, number, encoded)
    )


def _batches(messages: list[bytes]) -> Iterator[Sequence[bytes]]:
    return (messages[start : start + _BATCH] for start in range(0, len(messages), _BATCH))


def _measured(at: Bench, act: Callable[[], None]) -> tuple[float, dict[str, float]]:
    """Wall time, and processor time by part."""
    before, begun = at.cpu(), time.monotonic()
    act()
    seconds, after = time.monotonic() - begun, at.cpu()
    return seconds, {name: after[name] - before[name] for name in before}


def _tell_cpu(spent: dict[str, float], messages: int) -> None:
    for part, seconds in spent.items():
        figure(f"  processor time of {part} for each message", seconds / messages * 1e6, "µs")
    figure("  at full use of two cores that is", 2 * messages / sum(spent.values()), "messages/s")


if __name__ == "__main__":
    main()
