"""Restoring to Dovecot: messages per second through the whole workflow, into an empty account and into a full one."""

from __future__ import annotations

import argparse
import logging
import tempfile
import time
from pathlib import Path

import structlog

from archiver.db import schema
from archiver.db.engine import make_engine
from archiver.exports.selection import Selection
from archiver.restores.destination import RestoreDestination
from archiver.supervisor.folder import DataFolder
from archiver.supervisor.postgres import EmbeddedPostgres
from benchmarks.report import figure, load
from tests.integration.restores.conftest import RestoreWorld
from tests.support.dovecot import PASSWORD, Dovecot, dovecot, message

MESSAGE_BYTES = 4000


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--messages", type=int, default=10_000)
    messages = parser.parse_args().messages
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.WARNING))
    load()
    with tempfile.TemporaryDirectory(prefix="archiver-bench-") as folder, dovecot() as server:
        data = DataFolder(Path(folder) / "postgres")
        data.prepare()
        postgres = EmbeddedPostgres(data)
        postgres.prepare()
        with postgres.running():
            engine = make_engine(postgres.url("postgres"), "bench")
            schema.migrate(engine)
            world = RestoreWorld(Path(folder), engine, postgres.url("postgres"))
            _measure(world, server, messages)
            engine.dispose()


def _measure(world: RestoreWorld, server: Dovecot, messages: int) -> None:
    source = world.add_source("imap", server.settings("here"), {"password": PASSWORD})
    box = world.add_mailbox(source, "here@localhost")
    world.store_mail(box, [message(number, MESSAGE_BYTES) for number in range(messages)])
    destination = RestoreDestination(imap=server.settings("there"))
    for title in ("an empty account", "an account that has it all"):
        restore_id = world.request(Selection(everything=True), destination, password=PASSWORD)
        started = time.perf_counter()
        world.work_off()
        figure(f"dry run, {title}", messages / (time.perf_counter() - started), "messages/s")
        world.start(restore_id)
        started, processor = time.perf_counter(), time.process_time()
        world.work_off()
        seconds, own = time.perf_counter() - started, time.process_time() - processor
        job = world.job(restore_id)
        assert job.restored + job.present == messages, job
        figure(f"restore, {title}", messages / seconds, "messages/s", "≥ 1,000" if job.restored else "")
        figure(f"restore, {title}: own processor time", own / messages * 1e6, "µs each")


if __name__ == "__main__":
    main()
