"""The API: how long 20 clients wait, and what a gigabyte in and out takes of memory.

`python -m benchmarks.api --messages 100000 --large 1024` (the defaults; smaller ones for a quick look).

Mail is composed of lines of real mail where a corpus is at hand (ARCHIVER_TEST_CORPUS), else of words by Zipf's law. A search
has one to three words of one line, so that it finds something: some find many thousand messages, some a few. Apart from these
stand searches for two of the words that nearly every message has, the worst that can be asked.
"""

from __future__ import annotations

import argparse
import hashlib
import http.client
import json
import logging
import os
import random
import re
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import quote

import psutil
import structlog
from sqlalchemy import Engine, text

from archiver.access import api_keys, users
from archiver.access.principal import LOCAL_OPERATOR, KeyScope, Principal, Right
from archiver.config import Settings, load_settings
from archiver.db import schema
from archiver.db.engine import make_engine
from archiver.db.states import UserRole
from archiver.db.tables import uuid7
from archiver.indexing.indexer import Indexer
from archiver.search.index import SearchServer
from archiver.secrets import SecretFolder, create_missing_keys
from archiver.store.open import open_archive
from archiver.supervisor.folder import DataFolder
from archiver.supervisor.postgres import EmbeddedPostgres
from archiver.supervisor.valkey import EmbeddedValkey
from archiver.sync.ingest.store_batch import Ingest, load_origin
from benchmarks.report import figure, load
from benchmarks.search import lines_of_mail, mail
from connectors.base import Batch, RawMessage

CLIENTS, REQUESTS = 20, 20
_WORD = re.compile("[A-Za-z]{2,}|[0-9]{3,}")
Paths = Callable[[random.Random], str]


def main() -> None:
    options = argparse.ArgumentParser()
    options.add_argument("--messages", type=int, default=100_000)
    options.add_argument("--large", type=int, default=1024, metavar="MIB")
    given = options.parse_args()
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.WARNING))
    load()
    lines = lines_of_mail()
    with (
        tempfile.TemporaryDirectory(prefix="archiver-bench-") as place,
        _servers(Path(place)) as (settings, engine, environment),
    ):
        ids, key = _fill(settings, engine, given.messages, lines)
        with _web(environment) as (port, process):
            measure(port, key, process, ids, lines)
            _large(port, key, process, given.large << 20)


def measure(port: int, key: str, process: psutil.Process, ids: list[str], lines: list[str]) -> None:
    _wait(port, key, process, "search", _searches(lines), "≤ 60")
    _wait(port, key, process, "message", lambda chance: f"/api/v1/messages/{chance.choice(ids)}", "≤ 40")
    _wait(port, key, process, "list", lambda _: "/api/v1/messages?limit=50", "")
    _wait(port, key, process, "search for what nearly all have", _worst_searches(lines), "")


def _searches(lines: list[str]) -> Paths:
    """One to three words that stand in one line, as people remember them."""
    known = [words for words in map(_WORD.findall, lines) if len(words) >= 3]
    return lambda chance: _search(chance.sample(chance.choice(known), chance.randint(1, 3)))


def _worst_searches(lines: list[str]) -> Paths:
    """Two of the words that nearly every message has."""
    common = [word for word, _ in Counter(word.lower() for line in lines for word in set(_WORD.findall(line))).most_common(6)]
    return lambda chance: _search(chance.sample(common, 2))


def _search(words: list[str]) -> str:
    return f"/api/v1/search?q={quote(' '.join(words))}&limit=20"


@contextmanager
def _servers(place: Path) -> Iterator[tuple[Settings, Engine, dict[str, str]]]:
    folder = DataFolder(place / "data")
    folder.prepare()
    postgres, valkey = EmbeddedPostgres(folder), EmbeddedValkey(folder)
    postgres.prepare()
    valkey.prepare()
    with postgres.running(), valkey.running():
        port = _free_port()
        own = {
            "ARCHIVER_DATA": str(folder.path),
            "DATABASE_URL": postgres.url(),
            "REDIS_URL": valkey.url(),
            "MEILI_HOST": f"http://127.0.0.1:{port}",
            "MEILI_MASTER_KEY": SecretFolder(folder.path).password("meili-master.key"),
            "API_REQUESTS_PER_MINUTE": "0",
            "ARCHIVER_PORT": str(_free_port()),
            "DISK_MIN_FREE_BYTES": "0",
        }
        environment = {**os.environ, **own}
        settings = load_settings(environment, Path("none"))
        create_missing_keys(settings)
        engine = make_engine(postgres.url(), "bench")
        schema.migrate(engine)
        search = subprocess.Popen([sys.executable, "-m", "archiver", "search-server", "--port", str(port)], env=environment)
        try:
            _until_open(port)
            yield settings, engine, environment
        finally:
            search.terminate()
            search.wait()
            engine.dispose()


def _fill(settings: Settings, engine: Engine, count: int, lines: list[str]) -> tuple[list[str], str]:
    source, mailbox = uuid7(), uuid7()
    with engine.begin() as connection:
        connection.execute(
            text("INSERT INTO ingestion_sources (id, kind, name, status) VALUES (:i, 'fake', 'b', 'imported')"), {"i": source}
        )
        connection.execute(
            text("INSERT INTO mailboxes (id, source_id, address) VALUES (:m, :s, 'ann@example.org')"),
            {"m": mailbox, "s": source},
        )
        user = users.add(connection, LOCAL_OPERATOR, "ann@example.org", role=UserRole.USER)
        who = Principal(user.email, user.role, frozenset(Right), user.id)
        _, key = api_keys.create(connection, who, "bench", [KeyScope.READ, KeyScope.SEARCH, KeyScope.INGEST], None)
    archive = open_archive(settings, engine)
    ingest = Ingest(engine, archive)
    with engine.connect() as connection:
        origin = load_origin(connection, mailbox)
    chance = random.Random(1)
    for start in range(0, count, 200):
        found = tuple(
            RawMessage(str(number), data=mail(number, chance, lines), folder="INBOX")
            for number in range(start, min(start + 200, count))
        )
        ingest.store_batch(origin, Batch(messages=found))
    Indexer(engine, archive, SearchServer(settings), 500).run()
    archive.close()
    with engine.begin() as connection:
        connection.execute(text("ANALYZE"))
        ids = connection.execute(text("SELECT id FROM messages ORDER BY random() LIMIT 5000")).scalars().all()
    print(f"  {count:,} messages archived and indexed", flush=True)
    return [str(one) for one in ids], key


@contextmanager
def _web(environment: dict[str, str]) -> Iterator[tuple[int, psutil.Process]]:
    process = subprocess.Popen([sys.executable, "-m", "archiver", "web"], env=environment, stderr=subprocess.DEVNULL)
    port = int(environment["ARCHIVER_PORT"])
    try:
        _until_open(port)
        yield port, psutil.Process(process.pid)
    finally:
        process.terminate()
        process.wait()


def _wait(port: int, key: str, process: psutil.Process, name: str, path: Paths, target: str) -> None:
    """Twenty clients, each of which asks once a second, as programs and people do; then as fast as they get answers."""
    for how, pause_seconds in (
        (f"{CLIENTS} clients, one request a second each", 1.0),
        (f"{CLIENTS} clients without a pause", 0.0),
    ):
        _client(port, key, path, 0, 0.0)
        before, all_before, started = _cpu_seconds(process), _cpu_of_all(), time.perf_counter()
        with ThreadPoolExecutor(CLIENTS) as pool:
            work = [pool.submit(_client, port, key, path, 1 + number, pause_seconds) for number in range(CLIENTS)]
            answers = [answer for one in work for answer in one.result()]
        seconds, cpu, cpu_of_all = time.perf_counter() - started, _cpu_seconds(process) - before, _cpu_of_all() - all_before
        taken = sorted(milliseconds for milliseconds, _ in answers)
        figure(f"{name}, {how}: p50", statistics.median(taken), "ms")
        figure(f"{name}, {how}: p95", taken[int(len(taken) * 0.95)], "ms", target)
        figure(f"{name}, {how}: CPU of the web process for each", cpu * 1000 / len(taken), "ms")
        figure(f"{name}, {how}: CPU with Postgres and search server", cpu_of_all * 1000 / len(taken), "ms")
        figure(f"{name}, {how}: requests", len(taken) / seconds, "/s")
    alone = sorted(milliseconds for milliseconds, _ in _client(port, key, path, 0, 0.0))
    figure(f"{name}, one client: p95", alone[int(len(alone) * 0.95)], "ms")
    totals = sorted(json.loads(body).get("total", -1) for _, body in answers)
    if totals[-1] >= 0:
        shown = ", ".join(f"{totals[int((len(totals) - 1) * share)]:,}" for share in (0.1, 0.25, 0.5, 0.75, 0.9, 1.0))
        print(f"  {name}: messages found, at 10, 25, 50, 75, 90 and 100 %: {shown}", flush=True)


def _client(port: int, key: str, path: Paths, number: int, pause_seconds: float) -> list[tuple[float, bytes]]:
    """What it asks depends on its number alone. The milliseconds and the body of each answer."""
    chance = random.Random(number)
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    time.sleep(pause_seconds * number / CLIENTS)
    answers = []
    for _ in range(REQUESTS):
        wanted, started = path(chance), time.perf_counter()
        connection.request("GET", wanted, headers={"Authorization": f"Bearer {key}"})
        answer = connection.getresponse()
        body = answer.read()
        assert answer.status == 200, body
        seconds = time.perf_counter() - started
        answers.append((seconds * 1000, body))
        time.sleep(max(0.0, pause_seconds - seconds))
    connection.close()
    return answers


def _large(port: int, key: str, process: psutil.Process, size: int) -> None:
    """One huge message in by an upload and by hand, and out again."""
    head = b"Subject: large\r\nContent-Type: application/octet-stream\r\n\r\n"
    piece = random.Random(1).randbytes(1 << 20)
    headers = {"Authorization": f"Bearer {key}"}

    def body() -> Iterator[bytes]:
        yield head
        for _ in range(size // len(piece)):
            yield piece

    length = len(head) + size // len(piece) * len(piece)
    digest = hashlib.sha256()
    for part in body():
        digest.update(part)
    before = _peak(process)
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=600)
    connection.request(
        "POST",
        "/api/v1/uploads",
        json.dumps({"name": "x", "size_bytes": length}),
        {**headers, "Content-Type": "application/json"},
    )
    upload = json.loads(connection.getresponse().read())["id"]
    started = time.perf_counter()
    connection.request(
        "PATCH", f"/api/v1/uploads/{upload}", body(), {**headers, "Upload-Offset": "0", "Content-Length": str(length)}
    )
    answer = connection.getresponse()
    assert answer.status == 204, answer.read()
    answer.read()
    figure("upload", length / (1 << 20) / (time.perf_counter() - started), "MiB/s")
    figure("memory of the web process at most, upload", _peak(process) / (1 << 20), "MiB", "≤ 200")
    started = time.perf_counter()
    connection.request("POST", "/api/v1/messages?mailbox=ann@example.org", body(), {**headers, "Content-Length": str(length)})
    answer = connection.getresponse()
    message = json.loads(answer.read())
    figure("POST /messages", length / (1 << 20) / (time.perf_counter() - started), "MiB/s")
    figure("memory of the web process at most, POST /messages", _peak(process) / (1 << 20), "MiB")
    started, got = time.perf_counter(), hashlib.sha256()
    connection.request("GET", f"/api/v1/messages/{message['id']}/raw", headers=headers)
    answer = connection.getresponse()
    while part := answer.read(1 << 20):
        got.update(part)
    assert got.digest() == digest.digest()
    figure("download", length / (1 << 20) / (time.perf_counter() - started), "MiB/s")
    figure("memory of the web process at most, download", _peak(process) / (1 << 20), "MiB", "≤ 200")
    figure("memory of the web process before", before / (1 << 20), "MiB")
    connection.close()


def _cpu_seconds(process: psutil.Process) -> float:
    user, system, *_ = process.cpu_times()
    return float(user + system)


def _cpu_of_all() -> float:
    """Of all servers that this process started, and their children."""
    return sum(map(_cpu_seconds, psutil.Process().children(recursive=True)))


def _peak(process: psutil.Process) -> int:
    lines = Path(f"/proc/{process.pid}/status").read_text().splitlines()
    return next(int(line.split()[1]) << 10 for line in lines if line.startswith("VmHWM"))


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def _until_open(port: int) -> None:
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", port)) == 0:
                return
        time.sleep(0.05)
    raise TimeoutError(f"nothing listens on {port}")


if __name__ == "__main__":
    main()
