"""Cloud sources through the whole engine, against servers of our own: 20 ms for each call, and quotas like the real ones."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psutil
from sqlalchemy import Engine

from archiver.config import load_settings
from archiver.secrets import credentials_keyring
from archiver.services import runs, sources
from archiver.services.quiet_context import QuietContext
from benchmarks.engine import _servers
from benchmarks.report import figure, load
from tests.google_server import google_server

_LATENCY = 0.02
_PER_USER, _PER_MESSAGE = 6000, 20
_MESSAGES = 300
"""A minute of what a new Google project may read of one mailbox."""


def main() -> None:
    load()
    with tempfile.TemporaryDirectory(prefix="archiver-bench-") as name:
        place = Path(name)
        with _servers(place) as (environment, engine, _), _worker(environment) as worker:
            wanted = [int(one) for one in os.environ.get("CLOUD_MAILBOXES", "1,10,100").split(",")]
            for mailboxes in wanted:
                _google(place / f"google-{mailboxes}", environment, engine, worker, mailboxes)


@contextmanager
def _worker(environment: dict[str, str]) -> Iterator[psutil.Process]:
    command = [sys.executable, "-m", "workers", "ingestion"]
    process = subprocess.Popen(command, env={**environment, "LOG_LEVEL": "error"}, stdout=subprocess.DEVNULL)
    try:
        yield psutil.Process(process.pid)
    finally:
        process.terminate()
        process.wait()


def _google(place: Path, environment: dict[str, str], engine: Engine, worker: psutil.Process, mailboxes: int) -> None:
    users = [{"address": f"u{number}@m{mailboxes}.test"} for number in range(mailboxes)]
    quota = {"per_user": _PER_USER, "per_project": 1_200_000, "units_per_message": _PER_MESSAGE}
    with google_server(place, users, messages=_MESSAGES, size=4000, latency=_LATENCY, **quota) as server:
        keyring = credentials_keyring(load_settings(environment, Path("none")))
        everything = {"include_spam": True, "include_trash": True, "include_drafts": True}
        settings: dict[str, Any] = {**server.settings, **everything}
        name = f"google {mailboxes}"
        source = sources.add(engine, keyring, QuietContext(), "google", name, settings, {"key": server.key})
        server.tell(reset_calls=True)
        cpu = worker.cpu_times()
        run = _sync(engine, source)
        used = worker.cpu_times()
        assert run.archived == _MESSAGES * mailboxes, run
        allowed = _PER_USER / _PER_MESSAGE / 60 * mailboxes
        told = server.tell()
        calls = {kind: count for kind, count in told["calls"].items() if kind not in ("token", "users")}
        what = f"Google, {mailboxes} mailbox{'es' if mailboxes > 1 else ''}"
        figure(f"{what}: rate", run.archived / run.seconds, "messages/s")
        figure(f"{what}: of what the quota allows", 100 * run.archived / run.seconds / allowed, "%", "≥ 80")
        figure(f"{what}: API calls per message", sum(calls.values()) / run.archived, "", "≤ 1.05")
        figure(f"{what}: refused with 429", told["refused"], "calls", "0")
        spent = used.user + used.system - cpu.user - cpu.system
        figure(f"{what}: the worker's CPU time per message", 1000 * spent / run.archived, "ms")
        if mailboxes >= 100:  # (with few, most of it is waiting) on a machine that others use, this is what to look at
            figure(f"{what}: what a core of its own would do", run.archived / spent, "messages/s", f"≥ {0.8 * allowed:.0f}")
        server.tell(reset_calls=True)
        _sync(engine, source)
        again = {kind: count for kind, count in server.calls().items() if kind not in ("token", "users")}
        figure(f"{what}: API calls per unchanged mailbox", sum(again.values()) / mailboxes, "", "≤ 1")


def _sync(engine: Engine, source: sources.Source) -> runs.Run:
    with engine.begin() as connection:
        before = runs.newest_run(connection, source.id)
        current = sources.load(connection, source.id)
        assert current is not None
        sources.sync_now(connection, current)
    return runs.wait_for_run(engine, source.id, before, 1200, lambda _: None)


if __name__ == "__main__":
    main()
