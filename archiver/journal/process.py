"""The process of `archiver journal`: receives mail into the spool, and delivers it into the archive."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable
from functools import partial
from pathlib import Path

from sqlalchemy import Engine

from archiver.config import Settings
from archiver.db import schema
from archiver.db.counters import Counters
from archiver.db.engine import DATABASE_ERRORS, make_engine
from archiver.db.pause import WorkerPresence
from archiver.errors import ArchiverError, ConfigError
from archiver.journal.activity import spool_folder
from archiver.journal.assignment import OwnDomains
from archiver.journal.delivery import JournalDelivery
from archiver.journal.server import open_server
from archiver.journal.spool import JournalSpool
from archiver.logs import get_logger
from archiver.parsing.readers import process_readers
from archiver.secrets import storage_keyring
from archiver.store.archive import Archive
from archiver.store.capacity import check_disk, explain_full_disk
from archiver.store.keys import PackKeys
from archiver.store.open import open_archive
from archiver.sync.ingest.store_batch import Ingest

_BEAT_SECONDS = 5.0
_RETRY_SECONDS = 5.0

log = get_logger("journal")

Prepare = Callable[[Engine, Archive], object]
"""Brings the database up to date with the packs before anything is written."""


def serve_journal(settings: Settings, prepare: Prepare, ready: Callable[[], None], alive_file: Path | None = None) -> None:
    """Until SIGTERM or SIGINT. Mail is accepted as soon as the spool can be written, even while Postgres is down."""
    if not settings.has_journal:
        raise ConfigError("journaling is off: set JOURNAL_PORT (or JOURNAL_TLS_PORT)")
    if settings.database_url is None:
        raise ConfigError("`archiver journal` needs DATABASE_URL; `archiver up` sets it to its embedded server")
    stopping = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stopping.set())
    counters = Counters()
    engine = make_engine(settings.database_url.get_secret_value(), "journal", pool_size=8)
    spool = open_spool(settings)
    with spool.hold():
        server = open_server(settings, spool, counters, lambda host, port: log.info("journal_listens", host=host, port=port))
        counting = threading.Thread(target=counters.write_until, args=(stopping, engine), daemon=True)
        delivering = threading.Thread(
            target=_deliver, args=(settings, engine, spool, counters, prepare, stopping), name="journal-delivery", daemon=True
        )
        counting.start()
        delivering.start()
        server.start()
        ready()
        while not stopping.wait(_BEAT_SECONDS):
            if alive_file is not None:
                alive_file.touch()
            if not delivering.is_alive():
                raise ArchiverError("the delivery of journalled mail ended; see the log")
        server.stop()
        spool.arrived.set()
        delivering.join()
        counting.join()
        process_readers().close()
        engine.dispose()


def open_spool(settings: Settings) -> JournalSpool:
    with explain_full_disk():
        return JournalSpool(
            spool_folder(settings.archiver_data), PackKeys(storage_keyring(settings)), partial(check_disk, settings)
        )


def _deliver(
    settings: Settings,
    engine: Engine,
    spool: JournalSpool,
    counters: Counters,
    prepare: Prepare,
    stopping: threading.Event,
) -> None:
    while not stopping.is_set():
        try:
            presence = _open_database(engine)
            archive = open_archive(settings, engine)
            prepare(engine, archive)
            break
        except (ArchiverError, *DATABASE_ERRORS) as error:
            log.warning("journal_delivery_waits", seconds=_RETRY_SECONDS, reason=str(error).splitlines()[0][:300])
            stopping.wait(_RETRY_SECONDS)
    else:
        return
    own = OwnDomains.of(settings.journal_domains, settings.journal_addresses)
    scratch = settings.archiver_data / "scratch" / "journal"
    beat = _Heartbeat(presence)
    delivery = JournalDelivery(
        spool,
        engine,
        Ingest(engine, archive),
        process_readers(),
        own,
        settings.journal_reports,
        scratch,
        counters,
        stopping,
        beat.may_work,
    )
    try:
        delivery.run()
        presence.leave()
    except DATABASE_ERRORS:
        log.warning("journal_left_without_notice")
    finally:
        archive.close()


def _open_database(engine: Engine) -> WorkerPresence:
    schema.check(engine)
    return WorkerPresence.join(engine, "journal")


class _Heartbeat:
    """Shows that the process is alive, and pauses the delivery while a migration asks for it."""

    def __init__(self, presence: WorkerPresence) -> None:
        self._presence, self._is_paused = presence, False

    def may_work(self) -> bool:
        self._is_paused = self._presence.beat(is_paused=self._is_paused) is not None
        if self._is_paused:
            self._presence.beat(is_paused=True)
        return not self._is_paused
