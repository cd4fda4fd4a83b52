"""A large archive: whether mail comes in as fast as into a small one, and whether what grows with it still answers.

Postgres is filled by SQL with rows such as mail leaves behind; then a mailbox that is new there is archived for real, just
after a checkpoint, which is when large tables cost most.
"""

from __future__ import annotations

import argparse
import logging
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any
from uuid import UUID

import structlog
from sqlalchemy import Connection, text

from archiver.access.scope import EVERYTHING
from archiver.reading import statistics
from archiver.search import suggestions
from archiver.sources import summary as source_summary
from archiver.supervisor.postgres import EmbeddedPostgres
from archiver.supervisor.ready import notify_ready
from archiver.sync import ledger
from benchmarks.report import figure, load
from benchmarks.store import Stopwatch, World, generated, server, store, world

SMALL, LARGE, NEW = 10_000, 1_000_000, 20_000
OLD = UUID("01900000-0000-7000-8000-000000000001")
_PORTION = 100_000
_ORIGIN = (
    "INSERT INTO ingestion_sources (id, kind, name) VALUES (:old, 'imap', 'old')",
    "INSERT INTO mailboxes (id, source_id, address) VALUES (:old, :old, 'old@example.org')",
    "INSERT INTO packs (id, name, state) VALUES (:old, 'old.pack', 'sealed')",
)
_FILL = (
    """CREATE TEMPORARY TABLE portion AS
        SELECT n, sha256(CAST(CAST(n AS text) AS bytea)) AS hash, timestamptz '2010-01-01' + n * interval '7 minutes' AS at
        FROM generate_series(CAST(:first AS int), CAST(:last AS int)) AS n""",
    """INSERT INTO messages (id, sha256, canonical_sha256, internet_message_id, sent_at, received_at, sort_at, date_origin,
            sender, sender_name, subject, thread_id, thread_subject, size_bytes, search_state, indexed_version, parser_version)
        SELECT CAST(encode(substr(hash, 1, 16), 'hex') AS uuid), hash, sha256(hash), encode(substr(hash, 3, 20), 'hex') || '@x',
            at, at, at, 'header', 'user' || mod(n, 5000) || '@example.org', 'User ' || mod(n, 5000), 'About a thing ' || n,
            CAST(md5('t' || n / 3) AS uuid), CAST(md5('s' || n / 3) AS uuid), 4000, 'full', 1, 1 FROM portion""",
    """INSERT INTO participants (message_id, position, role, address, name)
        SELECT CAST(encode(substr(hash, 1, 16), 'hex') AS uuid), p, CASE p WHEN 0 THEN 'from' ELSE 'to' END,
            'user' || mod(n + 7 * p, 5000) || '@example.org', 'User' FROM portion, generate_series(0, 3) AS p""",
    """INSERT INTO message_copies (id, message_id, mailbox_id, provider_key, folder)
        SELECT CAST(md5('c' || n) AS uuid), CAST(encode(substr(hash, 1, 16), 'hex') AS uuid), :old, 'INBOX␟1␟' || n, 'INBOX'
        FROM portion""",
    """INSERT INTO objects (sha256, kind, pack_id, position, stored_bytes, raw_bytes)
        SELECT hash, 'message', :old, CAST(n AS bigint) * 1200, 1200, 4000 FROM portion""",
    "DROP TABLE portion",
)


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--messages", type=int, default=LARGE, help="in the large archive")
    large = options.parse_args().messages
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.WARNING))
    load()
    notify_ready()
    mail = list(generated(NEW))
    with tempfile.TemporaryDirectory(prefix="archiver-bench-") as folder, server(Path(folder)) as postgres:
        few = _archive(postgres, Path(folder), SMALL, mail)
        many = _archive(postgres, Path(folder), large, mail)
    figure(f"rate at {large:,} / rate at {SMALL:,}", few.wall / many.wall, "×", "≥ 0.8")
    figure("  by processor time, ours and Postgres'", (few.cpu + few.server) / (many.cpu + many.server), "×")


def _archive(postgres: EmbeddedPostgres, folder: Path, count: int, mail: list[bytes]) -> Stopwatch:
    with world(postgres, folder) as at:
        seconds = _seconds(lambda: fill_rows(at, count))
        print(f"  {count:,} messages, made in {seconds:.0f} s")
        watch = store(at, mail)
        figure("  store_batch into a new mailbox", len(mail) / watch.wall, "messages/s")
        figure("    our processor time", 1e6 * watch.cpu / len(mail), "µs/message")
        figure("    Postgres' processor time", 1e6 * watch.server / len(mail), "µs/message")
        if count > SMALL:
            with at.engine.connect() as connection:  # type: ignore[attr-defined]
                _answers(connection, count)
    return watch


def _answers(connection: Connection, count: int) -> None:
    listed = [f"INBOX␟1␟{number}" for number in range(1, count)]
    for name, ask in (
        ("a listing of the whole folder is compared", lambda: ledger.differences(connection, OLD, "INBOX", listed, "#")),
        ("an address is suggested", lambda: suggestions.complete(connection, EVERYTHING, "from:user12")),
        ("a folder is suggested", lambda: suggestions.complete(connection, EVERYTHING, "in:inb")),
        ("figures of the archive are counted", lambda: statistics.figures(connection, EVERYTHING)),
        ("figures of a source are counted", lambda: source_summary.kept(connection, OLD)),
    ):
        figure(f"  {name}", _seconds(ask), "s")


def fill_rows(at: World, count: int) -> None:
    with at.engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:  # type: ignore[attr-defined]
        for statement in _ORIGIN:
            connection.execute(text(statement), {"old": OLD})
        for first in range(1, count + 1, _PORTION):
            values = {"first": first, "last": min(count, first + _PORTION - 1), "old": OLD}
            for statement in _FILL:
                connection.execute(text(statement), values)
        connection.execute(text("VACUUM ANALYZE"))
        connection.execute(text("CHECKPOINT"))


def _seconds(work: Callable[[], Any]) -> float:
    started = time.monotonic()
    work()
    return time.monotonic() - started


if __name__ == "__main__":
    main()
