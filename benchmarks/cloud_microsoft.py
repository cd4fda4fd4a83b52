"""Microsoft 365 through the whole engine, against a server of our own: 20 ms for each call, and Graph's limits per mailbox."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

import psutil
from sqlalchemy import Engine

from archiver.config import load_settings
from archiver.secrets import credentials_keyring
from archiver.sources import service as sources
from archiver.sources.null_context import QuietContext
from benchmarks.cloud import Workers, measure, sync
from benchmarks.report import figure
from tests.support.graph_server.running import graph_server

_LATENCY = 0.02
_PER_MINUTE = 1000
"""10,000 requests in ten minutes, for each mailbox."""
_FOLDERS = 10
_AT_ONCE = 8
"""Mailboxes, for each worker. With 20 ms for each call most of a mailbox's time is waiting."""


def main() -> None:
    """Three workers, or CLOUD_WORKERS: one has one core's worth and six mailboxes in memory, most of which wait for a call."""
    workers = int(os.environ.get("CLOUD_WORKERS", "3"))
    measure(_microsoft, workers, INGESTION_WORKER_CONCURRENCY=str(_AT_ONCE))


def _microsoft(place: Path, environment: dict[str, str], engine: Engine, workers: Workers, mailboxes: int) -> None:
    messages = {1: 1500}.get(mailboxes, 1000)
    users = [{"address": f"u{number}@m{mailboxes}.example"} for number in range(mailboxes)]
    folders = ["inbox", "sentitems", *(f"Project {number}" for number in range(_FOLDERS - 5))]
    trouble = {"latency": _LATENCY, "quota": _PER_MINUTE, "quota_seconds": 60.0}
    with graph_server(place, users=users, messages=messages, folders=folders, size=4000, trouble=trouble) as server:
        keyring = credentials_keyring(load_settings(environment, Path("none")))
        name = f"microsoft {mailboxes}"
        source = sources.add(engine, keyring, QuietContext(), "microsoft", name, server.settings, server.secrets)
        server.control(forget="counts")
        before, before_all = workers.seconds, _seconds_of_all()
        run = sync(engine, source)
        spent, after_all, seen = workers.seconds - before, _seconds_of_all(), server.seen()
        spent_by_all = sum(seconds - before_all.get(process, 0.0) for process, seconds in after_all.items())
        assert run.archived == messages * mailboxes, run
        allowed = _PER_MINUTE / 60 * mailboxes
        what = f"Microsoft, {mailboxes} mailbox{'es' if mailboxes > 1 else ''}"
        figure(f"{what}: rate", run.archived / run.seconds, "messages/s")
        figure(f"{what}: of what the limit allows", 100 * run.archived / run.seconds / allowed, "%", "≥ 80")
        figure(f"{what}: API calls per message", _requests(seen["calls"]) / run.archived, "", "≤ 1.1")
        figure(f"{what}: refused, or more than 4 at once", sum(seen["violations"].values()), "calls", "0")
        figure(f"{what}: CPU time per message, {len(workers.processes)} workers", 1000 * spent / run.archived, "ms")
        figure(f"{what}: … with the servers, the emulating one too", 1000 * spent_by_all / run.archived, "ms", _most(allowed))
        server.control(forget="counts")
        sync(engine, source)
        again = server.calls()
        figure(f"{what}: HTTP calls per unchanged folder", again["batch"] / mailboxes / _FOLDERS, "", "≤ 1")
        figure(f"{what}: requests per unchanged folder, the tree included", _requests(again) / mailboxes / _FOLDERS, "")


def _most(allowed: float) -> str:
    """What two cores have for a message, if they are to reach 80 %. On a machine that others use, this is what to look at."""
    return f"≤ {2000 / (0.8 * allowed):.2f}" if allowed > 1000 else ""


def _seconds_of_all() -> dict[int, float]:
    """Processor time of all processes of this benchmark. Some of Postgres' come and go."""
    found = {}
    for process in psutil.Process().children(recursive=True):
        with contextlib.suppress(psutil.Error):
            times = process.cpu_times()
            found[process.pid] = times.user + times.system
    return found


def _requests(calls: dict[str, int]) -> int:
    """As Graph counts them: each one inside a batch, too."""
    return sum(count for kind, count in calls.items() if kind.startswith("counted "))


if __name__ == "__main__":
    main()
