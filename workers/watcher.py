"""Waits for new mail on open connections, for sources with push enabled, and starts a cycle when some arrives.

Only one process watches a mailbox: the one that holds its lease. A lost notification costs time but no mail, because the
scheduled cycles continue.
"""

from __future__ import annotations

import threading
from collections import defaultdict
from dataclasses import dataclass, field
from typing import cast
from uuid import UUID

from archiver.db.engine import DATABASE_ERRORS
from archiver.errors import ArchiverError
from archiver.logs import get_logger
from archiver.sources import access as source_access
from archiver.sources import kinds as source_kinds
from archiver.sources import rows as source_rows
from archiver.sources.null_context import QuietContext
from archiver.sync import push
from archiver.sync.mailbox_leases import MailboxLeases, open_leases
from archiver.sync.push import WatchedMailbox
from connectors.base import MailboxRef, Watching
from connectors.errors import AuthFailed, ConnectorError, first_line
from workers.context import WorkerContext

_POLL_SECONDS = 5.0
"""How often the set of watched mailboxes is compared with Postgres."""
_NEWS_SECONDS = 0.5
"""How often new mail is announced: mailboxes that get mail at the same time share a cycle."""
_TROUBLE_SECONDS = 5.0
_LONGEST_PAUSE_SECONDS = 300.0
_REFUSED_SECONDS = 3600.0
"""Rejected credentials are retried rarely, because more attempts may lock the account."""

log = get_logger("watcher")


@dataclass(slots=True)
class PushWatcher:
    """Call `start()` once per process; the thread ends with the process, or when a stop is requested."""

    work: WorkerContext
    database_url: str
    _watches: dict[UUID, MailboxWatch] = field(default_factory=dict)

    def start(self) -> None:
        if self.work.settings.idle_max:
            threading.Thread(target=self._run, daemon=True, name="watcher").start()

    def _run(self) -> None:
        while not self.work.stopping.is_set():
            try:
                with open_leases(self.database_url) as leases:
                    self._watch_while_leased(leases)
            except DATABASE_ERRORS as error:
                log.warning("watcher_waits", error=first_line(error))
            except Exception:
                log.exception("watcher_failed")
            finally:
                for watch in self._watches.values():
                    watch.stop()
                self._watches.clear()
            self.work.stopping.wait(_TROUBLE_SECONDS)

    def _watch_while_leased(self, leases: MailboxLeases) -> None:
        rounds = int(_POLL_SECONDS / _NEWS_SECONDS)
        number = 0
        while not self.work.stopping.wait(_NEWS_SECONDS):
            if number % rounds == 0:
                self._update_watches(leases)
            self._announce()
            number += 1

    def _update_watches(self, leases: MailboxLeases) -> None:
        """Starts watching mailboxes that no other process watches, and stops watching those no longer wanted."""
        with self.work.engine.connect() as connection:
            wanted = {mailbox.id: mailbox for mailbox in push.load_watched(connection, source_kinds.WATCHED)}
        unwanted = [mailbox_id for mailbox_id, watch in self._watches.items() if wanted.get(mailbox_id) != watch.mailbox]
        for mailbox_id in unwanted:
            self._watches.pop(mailbox_id).stop()
        if unwanted:
            self._renew_leases(leases)
        leases.check()
        for mailbox_id, mailbox in wanted.items():
            is_full = len(self._watches) >= self.work.settings.idle_max
            if not is_full and mailbox_id not in self._watches and leases.take(mailbox_id):
                self._watches[mailbox_id] = MailboxWatch(self.work, mailbox).start()
        if not self._watches:
            leases.release_all()  # without leases there is no need for a transaction

    def _renew_leases(self, leases: MailboxLeases) -> None:
        """The locks of a transaction end together. A mailbox that another process leases in between is watched there."""
        leases.release_all()
        for mailbox_id in list(self._watches):
            if not leases.take(mailbox_id):
                self._watches.pop(mailbox_id).stop()

    def _announce(self) -> None:
        """Announces one cycle per source for all its mailboxes with new mail; if that fails, it is tried again later."""
        waiting: dict[UUID, list[MailboxWatch]] = defaultdict(list)
        for watch in self._watches.values():
            if watch.has_news.is_set():
                waiting[watch.mailbox.source_id].append(watch)
        for source_id, watches in waiting.items():
            for watch in watches:
                watch.has_news.clear()  # before the cycle begins: mail that arrives from now on is new again
            with self.work.engine.begin() as connection:
                is_announced = push.announce(connection, source_id, [watch.mailbox.id for watch in watches])
            if not is_announced:
                for watch in watches:
                    watch.has_news.set()


@dataclass(slots=True)
class MailboxWatch:
    """Watches one mailbox in a thread of its own, which is almost always blocked in a read."""

    work: WorkerContext
    mailbox: WatchedMailbox
    has_news: threading.Event = field(default_factory=threading.Event)
    _has_waited: bool = False
    """The current connection got as far as waiting for mail."""
    _stopped: threading.Event = field(default_factory=threading.Event)
    _connector: Watching | None = None

    def start(self) -> MailboxWatch:
        threading.Thread(target=self._run, daemon=True, name=f"watch {self.mailbox.id}").start()
        return self

    def stop(self) -> None:
        self._stopped.set()
        if self._connector is not None:
            self._connector.close()

    def _run(self) -> None:
        failures = 0
        while not self._stopped.is_set():
            self._has_waited = False
            pause = _REFUSED_SECONDS
            try:
                self._wait_for_news()
                log.info("mailbox_not_watchable", mailbox=str(self.mailbox.id))
            except AuthFailed as error:
                log.warning("watch_refused", mailbox=str(self.mailbox.id), error=str(error))
            except Exception as error:
                failures = 0 if self._has_waited else failures + 1
                pause = min(2.0**failures, _LONGEST_PAUSE_SECONDS)
                expected = isinstance(error, (ConnectorError, ArchiverError, *DATABASE_ERRORS))
                log.info("watch_interrupted", mailbox=str(self.mailbox.id), error=str(error), exc_info=not expected)
            self._stopped.wait(pause)

    def _on_news(self) -> None:
        self._has_waited = True
        self.has_news.set()

    def _wait_for_news(self) -> None:
        """Returns if the server does not support notifications."""
        with self.work.engine.connect() as connection:
            source = source_rows.load(connection, self.mailbox.source_id)
        if source is None:
            return
        connector = cast(Watching, source_access.open_source(source, self.work.keyring, QuietContext()))
        self._connector = connector
        try:
            if not self._stopped.is_set():
                ref = MailboxRef(self.mailbox.address, self.mailbox.display_name, self.mailbox.provider_id)
                connector.watch(ref, self._on_news)
        finally:
            connector.close()
