"""The embedded search server: indexing rate, search times, start, size and memory, over real HTTP with the official client.

    python -m benchmarks.search_server [--documents N] [--searches N]

The texts are lines of real mail where a corpus is at hand (ARCHIVER_TEST_CORPUS), else words by Zipf's law; the median message
has 2 KB. The server is a process of its own on the same machine, so client and server share its cores, as they do in use.
"""

from __future__ import annotations

import argparse
import os
import random
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import islice
from pathlib import Path
from typing import Any

import meilisearch
import orjson
import psutil
import requests

KEY = "a-key-for-measuring"
UID = "messages"
BATCH_BYTES = 3_000_000
SETTINGS = {
    "searchableAttributes": ["subject", "from", "to", "body"],
    "filterableAttributes": ["from", "to", "mailbox", "folder", "year", "date", "size"],
    "sortableAttributes": ["date"],
}
SERVER = """
import sys
from pathlib import Path
from archiver.search_server.server import serve
serve(Path(sys.argv[1]), sys.argv[2], port=0, ready=lambda url: print(url, flush=True))
"""


class Server:
    """A search server as a child process."""

    def __init__(self, data: Path) -> None:
        begun = time.perf_counter()
        self.process = subprocess.Popen([sys.executable, "-c", SERVER, str(data), KEY], stdout=subprocess.PIPE, text=True)
        assert self.process.stdout is not None
        self.url = self.process.stdout.readline().strip()
        self.session = requests.Session()
        self.session.headers["Authorization"] = f"Bearer {KEY}"
        while True:
            try:
                if self.session.get(f"{self.url}/indexes", timeout=30).ok:
                    break
            except requests.ConnectionError:
                time.sleep(0.01)
        self.start_seconds = time.perf_counter() - begun
        self.client = meilisearch.Client(self.url, KEY)

    def resident_mib(self) -> float:
        return psutil.Process(self.process.pid).memory_info().rss / 2**20

    def watch_memory(self, stop: threading.Event, peaks: dict[str, float]) -> None:
        """Notes the greatest private memory (RssAnon), and with the mapped index files, which the kernel may drop (VmRSS)."""
        while not stop.wait(0.2):
            status = Path(f"/proc/{self.process.pid}/status").read_text()
            for name in ("RssAnon", "VmRSS"):
                peaks[name] = max(peaks.get(name, 0.0), int(status.split(f"{name}:")[1].split()[0]) / 1024)

    def cpu_seconds(self) -> float:
        times = psutil.Process(self.process.pid).cpu_times()
        return times.user + times.system

    def wait_until_calm(self) -> None:
        """Until merges are done: a second with hardly any CPU."""
        end = time.monotonic() + 300
        while time.monotonic() < end:
            before = self.cpu_seconds()
            time.sleep(1)
            if self.cpu_seconds() - before < 0.05:
                return

    def stop(self) -> float:
        begun = time.perf_counter()
        self.process.terminate()
        self.process.wait(60)
        return time.perf_counter() - begun


def real_lines() -> list[str]:
    corpus = Path(os.environ.get("ARCHIVER_TEST_CORPUS", Path(__file__).parents[2] / "shared" / "corpus")) / "public" / "real"
    lines: list[str] = []
    for path in sorted(corpus.rglob("*"))[:2500] if corpus.is_dir() else []:
        if path.is_file():
            body = path.read_bytes()[:60_000].decode("latin-1").split("\n\n", 1)[-1]
            lines += [line for line in body.split("\n") if len(line) > 20 and line.count(" ") > 2]
    return lines or _zipf_lines()


def _zipf_lines() -> list[str]:
    chance = random.Random(7)
    words = ["".join(chance.choices("abcdefghijklmnoprstuvwy", k=chance.randint(2, 11))) for _ in range(120_000)]
    weights = [1 / (rank + 2) for rank in range(len(words))]
    return [" ".join(chance.choices(words, weights, k=10)) for _ in range(50_000)]


def messages(count: int, lines: list[str]) -> Iterator[dict[str, Any]]:
    chance = random.Random(1)
    people = [f"user{number}@corp{number % 50}.example.org" for number in range(3000)]
    for number in range(count):
        wanted = int(chance.lognormvariate(0, 0.8) * 2000)
        body: list[str] = []
        size = 0
        while size < wanted:
            line = lines[chance.randrange(len(lines))]
            body.append(line)
            size += len(line) + 1
        yield {
            "id": f"m{number:08d}",
            "subject": lines[chance.randrange(len(lines))][:60],
            "from": people[chance.randrange(3000)],
            "to": [people[chance.randrange(3000)], people[chance.randrange(3000)]],
            "body": "\n".join(body),
            "date": 1_000_000_000 + number * 37,
            "year": 2000 + number % 20,
            "mailbox": [f"mailbox{number % 40}"],
            "folder": [f"mailbox{number % 40}/Inbox"],
            "size": size,
        }


def bodies(count: int, lines: list[str]) -> Iterator[tuple[int, int, bytes]]:
    """Request bodies: how many messages, how many bytes of text, and the JSON."""
    rows: list[bytes] = []
    text = 0
    for message in messages(count, lines):
        rows.append(orjson.dumps(message))
        text += len(rows[-1])
        if text > BATCH_BYTES:
            yield len(rows), text, b"[" + b",".join(rows) + b"]"
            rows, text = [], 0
    if rows:
        yield len(rows), text, b"[" + b",".join(rows) + b"]"


def index(server: Server, count: int, lines: list[str]) -> tuple[float, int]:
    """Seconds spent on sending and indexing (not on making the messages), and bytes of text."""
    server.client.wait_for_task(server.client.index(UID).update_settings(SETTINGS).task_uid, timeout_in_ms=60_000)
    seconds, text, last = 0.0, 0, 0
    source = bodies(count, lines)
    while True:
        stretch = list(islice(source, 20))
        if not stretch:
            break
        begun = time.perf_counter()
        with ThreadPoolExecutor(2) as senders:
            for answer in senders.map(lambda body: _send(server, body), [body for _, _, body in stretch]):
                last = max(last, answer)
        server.client.wait_for_task(last, timeout_in_ms=600_000, interval_in_ms=10)
        seconds += time.perf_counter() - begun
        text += sum(size for _, size, _ in stretch)
    return seconds, text


def _send(server: Server, body: bytes) -> int:
    headers = {"Content-Type": "application/json"}
    answer = server.session.post(f"{server.url}/indexes/{UID}/documents", data=body, headers=headers, timeout=600)
    answer.raise_for_status()
    return int(answer.json()["taskUid"])


def search_times(
    server: Server, count: int, lines: list[str], until: Callable[[], bool] = lambda: False
) -> tuple[list[float], list[int]]:
    chance = random.Random(3)
    seconds: list[float] = []
    totals: list[int] = []
    url = f"{server.url}/indexes/{UID}/search"
    for _ in range(count):
        if until():
            break
        words = [word for word in lines[chance.randrange(len(lines))].split() if word.isalpha() and len(word) > 3]
        if len(words) < 2:
            continue
        body = {
            "q": " ".join(chance.sample(words, 2)),
            "filter": f"mailbox IN [mailbox{chance.randrange(40)}, mailbox{chance.randrange(40)}]",
            "facets": ["from", "year", "folder"],
            "attributesToHighlight": ["subject", "body"],
            "attributesToCrop": ["body"],
            "attributesToRetrieve": ["id", "subject", "from", "date"],
        }
        begun = time.perf_counter()
        answer = server.session.post(url, json=body, timeout=60)
        seconds.append(time.perf_counter() - begun)
        totals.append(answer.json()["estimatedTotalHits"])
    return seconds, totals


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--documents", type=int, default=100_000)
    parser.add_argument("--searches", type=int, default=500)
    chosen = parser.parse_args()
    print(f"load before: {', '.join(f'{one:.2f}' for one in os.getloadavg())} on {os.cpu_count()} cores")
    lines = real_lines()
    with tempfile.TemporaryDirectory(prefix="search-server-") as folder:
        data = Path(folder)
        server = Server(data)
        print(f"empty: start {server.start_seconds:.2f} s, {server.resident_mib():.0f} MiB resident")
        try:
            stop, peaks = threading.Event(), {"RssAnon": 0.0, "VmRSS": 0.0}
            watcher = threading.Thread(target=server.watch_memory, args=(stop, peaks))
            watcher.start()
            seconds, text = index(server, chosen.documents, lines)
            stop.set()
            watcher.join()
            print(
                f"indexing: {chosen.documents / seconds:,.0f} messages/s ({text / seconds / 1e6:.1f} MB/s) in {seconds:.0f} s,"
                f" server CPU {server.cpu_seconds() / chosen.documents * 1e6:.0f} µs a message,"
                f" at most {peaks['RssAnon']:.0f} MiB private"
                f" ({peaks['VmRSS']:.0f} MiB with mapped index files)"
            )
            server.wait_until_calm()
            report_searches(server, chosen.searches, lines)
            print(f"stop: {server.stop():.2f} s")
            size = sum(path.stat().st_size for path in (data / "indexes").rglob("*") if path.is_file())
            print(f"size: {size / 1e6:,.0f} MB for {text / 1e6:,.0f} MB of text = {size / text:.2f}")
            server = Server(data)
            begun, resident = server.start_seconds, server.resident_mib()
            print(f"start with {chosen.documents:,} documents: {begun:.2f} s, {resident:.0f} MiB resident")
            report_searches(server, chosen.searches, lines)
            report_searches_while_indexing(server, chosen.searches, min(chosen.documents, 40_000), lines)
        finally:
            server.stop()
    print(f"load after: {', '.join(f'{one:.2f}' for one in os.getloadavg())}")


def report_searches(server: Server, count: int, lines: list[str]) -> None:
    search_times(server, 20, lines)
    before = server.cpu_seconds()
    seconds, totals = search_times(server, count, lines)
    each = (server.cpu_seconds() - before) / len(seconds)
    print(
        f"two words, filter, three facets, highlights: {percentiles(seconds)}, server CPU {each * 1e3:.1f} ms each"
        f" (median {statistics.median(totals):.0f} hits, load {os.getloadavg()[0]:.2f})"
    )


def report_searches_while_indexing(server: Server, count: int, documents: int, lines: list[str]) -> None:
    """The same searches while messages that are there already come once more."""
    done = threading.Event()
    rates: list[float] = []

    def write() -> None:
        seconds, _ = index(server, documents, lines)
        rates.append(documents / seconds)
        done.set()

    writer = threading.Thread(target=write)
    writer.start()
    seconds, _ = search_times(server, count, lines, done.is_set)
    writer.join()
    print(f"the same while indexing {rates[0]:,.0f} messages/s: {percentiles(seconds)}, {len(seconds)} searches")


def percentiles(seconds: list[float]) -> str:
    cuts = statistics.quantiles(seconds, n=100)
    return f"p50 {cuts[49] * 1e3:.1f} ms, p95 {cuts[94] * 1e3:.1f} ms, p99 {cuts[98] * 1e3:.1f} ms"


if __name__ == "__main__":
    main()
