"""Cloud sources through the whole engine, against servers of our own: 20 ms for each call, and quotas like the real ones."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psutil
from sqlalchemy import Engine

from archiver.config import load_settings
from archiver.secrets import credentials_keyring
from archiver.sources import rows as source_rows
from archiver.sources import runs
from archiver.sources import service as sources
from archiver.sources.null_context import QuietContext
from benchmarks.engine import servers
from benchmarks.report import figure, load
from tests.support.google_server import google_server

_LATENCY = 0.02
_IDLE_SECONDS = 0.1
"""Of processor time in a second: a worker that has started and has nothing to do."""
_PER_USER, _PER_MESSAGE = 6000, 20
_MESSAGES = 300
"""A minute of what a new Google project may read of one mailbox."""


def main() -> None:
    measure(_google, workers=1)


def measure(cloud: Callable[[Path, dict[str, str], Engine, Workers, int], None], workers: int, **settings: str) -> None:
    """`cloud` is measured with 1, 10 and 100 mailboxes, or with as many as CLOUD_MAILBOXES says."""
    load()
    wanted = [int(one) for one in os.environ.get("CLOUD_MAILBOXES", "1,10,100").split(",")]
    with tempfile.TemporaryDirectory(prefix="archiver-bench-") as name, servers(Path(name)) as (own, engine, _):
        environment = {**own, **settings}
        with running(environment, workers) as started:
            _warm_up(environment, engine, started)
            for mailboxes in wanted:
                cloud(Path(name) / f"cloud-{mailboxes}", environment, engine, started, mailboxes)


class Workers:
    """Processes whose processor time counts."""

    def __init__(self, processes: Sequence[psutil.Process]) -> None:
        self.processes = processes

    @property
    def seconds(self) -> float:
        return sum(times.user + times.system for times in (process.cpu_times() for process in self.processes))


@contextmanager
def running(environment: dict[str, str], count: int) -> Iterator[Workers]:
    commands = [[sys.executable, "-m", "workers", "ingestion", f"--number={number}"] for number in range(1, count + 1)]
    environment = {**environment, "LOG_LEVEL": "error"}
    processes = [subprocess.Popen(command, env=environment, stdout=subprocess.DEVNULL) for command in commands]
    try:
        yield Workers([psutil.Process(process.pid) for process in processes])
    finally:
        for process in processes:
            process.terminate()
        for process in processes:
            process.wait()


def _warm_up(environment: dict[str, str], engine: Engine, workers: Workers) -> None:
    """What a worker does once, when it starts, is not what a message costs."""
    keyring = credentials_keyring(load_settings(environment, Path("none")))
    settings = {"mailboxes": 20, "messages_per_mailbox": 20}
    source = sources.add(engine, keyring, QuietContext(), "fake", "warm", settings, {})
    sync(engine, source)
    while True:
        before = workers.seconds
        time.sleep(1)
        if workers.seconds - before < _IDLE_SECONDS * len(workers.processes):
            return


def _google(place: Path, environment: dict[str, str], engine: Engine, workers: Workers, mailboxes: int) -> None:
    users = [{"address": f"u{number}@m{mailboxes}.test"} for number in range(mailboxes)]
    quota = {"per_user": _PER_USER, "per_project": 1_200_000, "units_per_message": _PER_MESSAGE}
    with google_server(place, users, messages=_MESSAGES, size=4000, latency=_LATENCY, **quota) as server:
        keyring = credentials_keyring(load_settings(environment, Path("none")))
        everything = {"include_spam": True, "include_trash": True, "include_drafts": True}
        settings: dict[str, Any] = {**server.settings, **everything}
        name = f"google {mailboxes}"
        source = sources.add(engine, keyring, QuietContext(), "google", name, settings, {"key": server.key})
        server.tell(reset_calls=True)
        before = workers.seconds
        run = sync(engine, source)
        spent = workers.seconds - before
        assert run.archived == _MESSAGES * mailboxes, run
        allowed = _PER_USER / _PER_MESSAGE / 60 * mailboxes
        told = server.tell()
        calls = {kind: count for kind, count in told["calls"].items() if kind not in ("token", "users")}
        what = f"Google, {mailboxes} mailbox{'es' if mailboxes > 1 else ''}"
        figure(f"{what}: rate", run.archived / run.seconds, "messages/s")
        figure(f"{what}: of what the quota allows", 100 * run.archived / run.seconds / allowed, "%", "≥ 80")
        figure(f"{what}: API calls per message", sum(calls.values()) / run.archived, "", "≤ 1.05")
        figure(f"{what}: refused with 429", told["refused"], "calls", "0")
        figure(f"{what}: the worker's CPU time per message", 1000 * spent / run.archived, "ms")
        if mailboxes >= 100:  # (with few, most of it is waiting) on a machine that others use, this is what to look at
            figure(f"{what}: what a core of its own would do", run.archived / spent, "messages/s", f"≥ {0.8 * allowed:.0f}")
        server.tell(reset_calls=True)
        sync(engine, source)
        again = {kind: count for kind, count in server.calls().items() if kind not in ("token", "users")}
        figure(f"{what}: API calls per unchanged mailbox", sum(again.values()) / mailboxes, "", "≤ 1")


def sync(engine: Engine, source: source_rows.Source) -> runs.Run:
    with engine.begin() as connection:
        before = runs.newest_run(connection, source.id)
        current = source_rows.load(connection, source.id)
        assert current is not None
        sources.sync_now(connection, current)
    return runs.wait_for_run(engine, source.id, before, 1200, lambda _: None)


if __name__ == "__main__":
    main()
