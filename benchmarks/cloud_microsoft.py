"""Microsoft 365 through the whole engine, against a server of our own: 20 ms for each call, and Graph's limits per mailbox."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

import psutil
from sqlalchemy import Engine

from archiver.config import load_settings
from archiver.secrets import credentials_keyring
from archiver.services import sources
from archiver.services.quiet_context import QuietContext
from benchmarks.cloud import _sync, _worker
from benchmarks.engine import _servers
from benchmarks.report import figure, load
from tests.graph_server.running import graph_server

_LATENCY = 0.02
_PER_MINUTE = 1000
"""10,000 requests in ten minutes, for each mailbox."""
_FOLDERS = 10


def main() -> None:
    load()
    with tempfile.TemporaryDirectory(prefix="archiver-bench-") as name:
        place = Path(name)
        with _servers(place) as (environment, engine, _), _worker(environment) as worker:
            wanted = [int(one) for one in os.environ.get("CLOUD_MAILBOXES", "1,10,100").split(",")]
            for mailboxes in wanted:
                _microsoft(place / f"microsoft-{mailboxes}", environment, engine, worker, mailboxes)


def _microsoft(place: Path, environment: dict[str, str], engine: Engine, worker: psutil.Process, mailboxes: int) -> None:
    messages = {1: 1500, 10: 1000}.get(mailboxes, 300)
    users = [{"address": f"u{number}@m{mailboxes}.example"} for number in range(mailboxes)]
    folders = ["inbox", "sentitems", *(f"Project {number}" for number in range(_FOLDERS - 5))]
    trouble = {"latency": _LATENCY, "quota": _PER_MINUTE, "quota_seconds": 60.0}
    with graph_server(place, users=users, messages=messages, folders=folders, size=4000, trouble=trouble) as server:
        keyring = credentials_keyring(load_settings(environment, Path("none")))
        name = f"microsoft {mailboxes}"
        source = sources.add(engine, keyring, QuietContext(), "microsoft", name, server.settings, server.secrets)
        server.control(forget="counts")
        cpu = worker.cpu_times()
        run = _sync(engine, source)
        used, seen = worker.cpu_times(), server.seen()
        assert run.archived == messages * mailboxes, run
        allowed = _PER_MINUTE / 60 * mailboxes
        what = f"Microsoft, {mailboxes} mailbox{'es' if mailboxes > 1 else ''}"
        figure(f"{what}: rate", run.archived / run.seconds, "messages/s")
        figure(f"{what}: of what the limit allows", 100 * run.archived / run.seconds / allowed, "%", "≥ 80")
        figure(f"{what}: API calls per message", _requests(seen["calls"]) / run.archived, "", "≤ 1.1")
        figure(f"{what}: refused, or more than 4 at once", sum(seen["violations"].values()), "calls", "0")
        spent = used.user + used.system - cpu.user - cpu.system
        figure(f"{what}: the worker's CPU time per message", 1000 * spent / run.archived, "ms")
        server.control(forget="counts")
        _sync(engine, source)
        again = server.calls()
        figure(f"{what}: HTTP calls per unchanged folder", again["batch"] / mailboxes / _FOLDERS, "", "≤ 1")
        figure(f"{what}: requests per unchanged folder, the tree included", _requests(again) / mailboxes / _FOLDERS, "")


def _requests(calls: dict[str, int]) -> int:
    """As Graph counts them: each one inside a batch, too."""
    return sum(count for kind, count in calls.items() if kind.startswith("counted "))


if __name__ == "__main__":
    main()
