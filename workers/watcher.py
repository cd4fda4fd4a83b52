"""Waits for new mail on open connections, for the sources that ask for it, and starts a cycle when there is some.

Each mailbox is watched by one process only: the one that holds its advisory lock in Postgres, in a transaction on a connection
of the watcher's own. When the process or the connection dies, the lock is free for another one. News that is lost costs time
and no mail: the schedule goes on.
"""

from __future__ import annotations

import threading
from collections import defaultdict
from dataclasses import dataclass, field
from typing import Any, cast
from uuid import UUID

import psycopg
from sqlalchemy.exc import DBAPIError

from archiver.errors import ArchiverError
from archiver.logs import get_logger
from archiver.services import source_access, source_kinds, source_rows
from archiver.services.quiet_context import QuietContext
from archiver.sync import news
from archiver.sync.news import WatchedMailbox
from connectors.base import MailboxRef, Watching
from connectors.errors import AuthFailed, ConnectorError
from workers.work import Work

_LOOK_SECONDS = 5.0
_NEWS_SECONDS = 0.5
_TROUBLE_SECONDS = 5.0
_LONGEST_PAUSE_SECONDS = 300.0
_REFUSED_SECONDS = 3600.0
_LEASE = "SELECT pg_try_advisory_xact_lock(hashtextextended('archiver:watch:' || %s, 0))"
_MAY_REST = "SET LOCAL idle_in_transaction_session_timeout = 0"

log = get_logger("watcher")


@dataclass(slots=True)
class Watcher:
    """`start()` once for a process; it ends with it, or when a stop is asked for."""

    work: Work
    database_url: str
    _watches: dict[UUID, Watch] = field(default_factory=dict)

    def start(self) -> None:
        if self.work.settings.idle_max:
            threading.Thread(target=self._run, daemon=True, name="watcher").start()

    def _run(self) -> None:
        while not self.work.stopping.is_set():
            try:
                with psycopg.connect(self.database_url, prepare_threshold=None, application_name="archiver-watcher") as leases:
                    self._hold(leases)
            except (psycopg.Error, DBAPIError) as error:
                log.warning("watcher_waits", error=(str(error).splitlines() or [type(error).__name__])[0])
            except Exception:
                log.exception("watcher_failed")
            finally:
                for watch in self._watches.values():
                    watch.stop()
                self._watches.clear()
            self.work.stopping.wait(_TROUBLE_SECONDS)

    def _hold(self, leases: psycopg.Connection[Any]) -> None:
        rounds = int(_LOOK_SECONDS / _NEWS_SECONDS)
        number = 0
        while not self.work.stopping.wait(_NEWS_SECONDS):
            if number % rounds == 0:
                self._choose(leases)
            self._tell()
            number += 1

    def _choose(self, leases: psycopg.Connection[Any]) -> None:
        """Watches what is to be watched and nobody else does, and no more what is not."""
        with self.work.engine.connect() as connection:
            wanted = {mailbox.id: mailbox for mailbox in news.watched(connection, source_kinds.WATCHED)}
        unwanted = [mailbox_id for mailbox_id, watch in self._watches.items() if wanted.get(mailbox_id) != watch.mailbox]
        for mailbox_id in unwanted:
            self._watches.pop(mailbox_id).stop()
        if unwanted:
            self._lease_again(leases)
        leases.execute(_MAY_REST)  # and it asks whether the connection is still there, on which the leases live
        for mailbox_id, mailbox in wanted.items():
            is_full = len(self._watches) >= self.work.settings.idle_max
            if not is_full and mailbox_id not in self._watches and _leased(leases, mailbox_id):
                self._watches[mailbox_id] = Watch(self.work, mailbox).start()
        if not self._watches:
            leases.rollback()  # without leases there is no need for a transaction

    def _lease_again(self, leases: psycopg.Connection[Any]) -> None:
        """The locks of a transaction end together. What another process leases in between is watched by that one."""
        leases.rollback()
        for mailbox_id in list(self._watches):
            if not _leased(leases, mailbox_id):
                self._watches.pop(mailbox_id).stop()

    def _tell(self) -> None:
        """One cycle for all mailboxes of a source that have news. What can't be told now is told later."""
        waiting: dict[UUID, list[Watch]] = defaultdict(list)
        for watch in self._watches.values():
            if watch.has_news.is_set():
                waiting[watch.mailbox.source_id].append(watch)
        for source_id, watches in waiting.items():
            for watch in watches:
                watch.has_news.clear()  # before the cycle begins: what comes from now on is news again
            with self.work.engine.begin() as connection:
                told = news.announce(connection, source_id, [watch.mailbox.id for watch in watches])
            if not told:
                for watch in watches:
                    watch.has_news.set()


def _leased(leases: psycopg.Connection[Any], mailbox_id: UUID) -> bool:
    row = leases.execute(_LEASE, (str(mailbox_id),)).fetchone()
    return row is not None and bool(row[0])


@dataclass(slots=True)
class Watch:
    """One mailbox, in a thread of its own, which sleeps in a read almost always."""

    work: Work
    mailbox: WatchedMailbox
    has_news: threading.Event = field(default_factory=threading.Event)
    _heard: bool = False
    """This connection got as far as waiting."""
    _stopped: threading.Event = field(default_factory=threading.Event)
    _connector: Watching | None = None

    def start(self) -> Watch:
        threading.Thread(target=self._run, daemon=True, name=f"watch {self.mailbox.id}").start()
        return self

    def stop(self) -> None:
        self._stopped.set()
        if self._connector is not None:
            self._connector.close()

    def _run(self) -> None:
        failures = 0
        while not self._stopped.is_set():
            self._heard = False
            pause = _REFUSED_SECONDS
            try:
                self._watch()
                log.info("mailbox_not_watchable", mailbox=str(self.mailbox.id))
            except AuthFailed as error:
                log.warning("watch_refused", mailbox=str(self.mailbox.id), error=str(error))
            except Exception as error:
                failures = 0 if self._heard else failures + 1
                pause = min(2.0**failures, _LONGEST_PAUSE_SECONDS)
                expected = isinstance(error, ConnectorError | ArchiverError | DBAPIError)
                log.info("watch_interrupted", mailbox=str(self.mailbox.id), error=str(error), exc_info=not expected)
            self._stopped.wait(pause)

    def _news(self) -> None:
        self._heard = True
        self.has_news.set()

    def _watch(self) -> None:
        """Returns when the server can't tell."""
        with self.work.engine.connect() as connection:
            source = source_rows.load(connection, self.mailbox.source_id)
        if source is None:
            return
        connector = cast(Watching, source_access.open_source(source, self.work.keyring, QuietContext()))
        self._connector = connector
        try:
            if not self._stopped.is_set():
                ref = MailboxRef(self.mailbox.address, self.mailbox.display_name, self.mailbox.provider_id)
                connector.watch(ref, self._news)
        finally:
            connector.close()
