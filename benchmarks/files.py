"""Mail files: how fast an mbox is split, what memory that takes whatever its size, and how fast a whole import is."""

from __future__ import annotations

import argparse
import hashlib
import multiprocessing
import resource
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import psutil

from archiver.config import load_settings
from archiver.secrets import credentials_keyring
from archiver.sources import imports, runs
from archiver.sources.null_context import QuietContext
from benchmarks.engine import servers
from benchmarks.report import figure, load
from connectors.base import MailboxRef
from connectors.files import FilesConnector, ImportSettings
from connectors.files.mbox import Mbox
from connectors.files.open_file import OpenFile
from connectors.files.survey import survey

ADDRESS = "ann@example.org"
_LINES = [
    f"{hashlib.sha256(str(n).encode()).hexdigest()} some words of line {n}, as mail has them\n".encode() for n in range(5000)
]


def write_mbox(path: Path, size: int) -> int:
    """Messages of 2 to 40 KB, each another one. How many."""
    count = written = 0
    with path.open("wb", buffering=4 << 20) as file:
        while written < size:
            lines = 20 + (count * 7919) % 330
            body = b"".join(_LINES[(count * 31) % 4000 :][:lines])
            piece = (
                b"From ann@example.org Mon Jan  6 10:00:00 2020\nReceived: from a by b; Mon, 6 Jan 2020 10:00:00 +0000\n"
                b"From: Ann <ann@example.org>\nTo: bob@example.org\nSubject: Number %d\nMessage-ID: <%d@example.org>\n"
                b"Date: Mon, 6 Jan 2020 10:00:00 +0000\n\n%s%s\n"
                % (count, count, body, b">From here on it is text.\n" if count % 10 == 0 else b"")
            )
            file.write(piece)
            written += len(piece)
            count += 1
    return count


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--gigabytes", type=float, default=4.0, help="the size of the large mbox")
    parser.add_argument("--import-megabytes", type=int, default=200, help="the size of the mbox that is imported")
    options = parser.parse_args()
    load()
    with tempfile.TemporaryDirectory(prefix="archiver-bench-") as place:
        _split(Path(place), int(options.gigabytes * (1 << 30)))
        _import(Path(place), options.import_megabytes << 20)


class _Context(QuietContext):
    def __init__(self, scratch: Path) -> None:
        self._scratch = scratch

    def scratch_path(self) -> Path:
        return self._scratch


def _split(place: Path, large: int) -> None:
    """In processes of their own, so that the peak of memory is that of the work."""
    for size in (large // 16, large):
        path = place / "large.mbox"
        count = write_mbox(path, size)
        length = path.stat().st_size
        print(f"  an mbox of {length / 2**20:,.0f} MiB, {count:,} messages", flush=True)
        for name, work, target in (
            ("split alone", _only_split, "≥ 150"),
            ("split, unquoted, hashed, numbered, in batches", _whole_connector, ""),
        ):
            seconds, found, peak = _apart(work, path, place / "scratch")
            assert found == count, f"{found} of {count} messages were found"
            figure(f"{name}, by CPU time", length / 2**20 / seconds, "MiB/s", target)
            figure(f"{name}, peak of memory", peak, "MiB", "≤ 300")
        path.unlink()


def _apart(work: object, path: Path, scratch: Path) -> tuple[float, int, float]:
    queue: multiprocessing.Queue[tuple[float, int, float]] = multiprocessing.get_context("spawn").Queue()
    process = multiprocessing.get_context("spawn").Process(target=_measured, args=(work, path, scratch, queue))
    process.start()
    result = queue.get()
    process.join()
    return result


def _measured(work: object, path: Path, scratch: Path, queue: multiprocessing.Queue[tuple[float, int, float]]) -> None:
    started = time.process_time()
    found = work(path, scratch)  # type: ignore[operator]
    queue.put((time.process_time() - started, found, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024))


def _only_split(path: Path, _: Path) -> int:
    with OpenFile(path) as file:
        mbox = Mbox(file, survey(file))
        return sum(1 for span in mbox.spans() if mbox.content(span))


def _whole_connector(path: Path, scratch: Path) -> int:
    connector = FilesConnector(ImportSettings(paths=(path,), mailbox=ADDRESS), _Context(scratch))
    return sum(len(batch.messages) for batch in connector.fetch(MailboxRef(ADDRESS), {}, lambda _: set()))


def _import(place: Path, size: int) -> None:
    count = write_mbox(place / "import.mbox", size)
    with servers(place) as (environment, engine, _), start_worker(environment) as worker:
        keyring = credentials_keyring(load_settings(environment, Path("none")))
        for title in ("import, durable", "the same import again"):
            item = imports.begin(engine, keyring, [place / "import.mbox"], ADDRESS, {})
            run = runs.wait_until_found(engine, partial(imports.ended_run, import_id=item.id), 1800, lambda _: None)
            assert run.archived == (count if title == "import, durable" else 0), run
            figure(f"{title}: {count:,} messages, {size >> 20:,} MiB", count / run.seconds, "messages/s")
            figure(f"{title}, bytes", size / 2**20 / run.seconds, "MiB/s")
        figure("the worker's peak of memory", _peak(worker.pid), "MiB", "≤ 300")


def _peak(pid: int) -> float:
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) / 1024
    return psutil.Process(pid).memory_info().rss / 2**20


@contextmanager
def start_worker(environment: dict[str, str]) -> Iterator[subprocess.Popen[bytes]]:
    command = [sys.executable, "-m", "workers", "ingestion"]
    worker = subprocess.Popen(command, env={**environment, "LOG_LEVEL": "warning"}, stdout=subprocess.DEVNULL)
    try:
        yield worker
    finally:
        worker.send_signal(signal.SIGTERM)
        worker.wait()


if __name__ == "__main__":
    main()
