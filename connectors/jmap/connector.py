"""The JMAP connector."""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Iterator, Mapping

from connectors.base import Batch, Context, Json, Known, MailboxRef
from connectors.errors import Unavailable
from connectors.jmap.client import JmapClient
from connectors.jmap.downloads import JmapDownloads
from connectors.jmap.fetching import JmapMailboxFetch
from connectors.jmap.settings import JmapSecrets, JmapSettings
from connectors.selection import mailbox_rule
from connectors.spool import Spool


class JmapConnector:
    def __init__(self, settings: JmapSettings, secrets: JmapSecrets, context: Context) -> None:
        self._settings, self._context = settings, context
        self.client = JmapClient(settings, secrets, context)
        self._spool = Spool("jmap", context.progress)
        self._lock = threading.Lock()
        self._downloads: JmapDownloads | None = None

    @property
    def downloaded(self) -> int:
        """Number of messages whose bytes were downloaded."""
        return self._downloads.received if self._downloads else 0

    def check(self) -> None:
        """Logs in, and lists the folders of each account."""
        self.client.http.ensure_open()
        for box in self._accounts():
            self._fetch(box, lambda _: set()).list_folders()

    def mailboxes(self) -> Iterator[MailboxRef]:
        self.client.http.ensure_open()
        for box in self._accounts():
            rule = mailbox_rule(self._settings, box.address)
            if rule is None:
                yield box
            else:
                self._context.leave_out(box.address, rule)

    def fetch(self, box: MailboxRef, state: Mapping[str, Json], known: Known) -> Iterator[Batch]:
        self.client.http.ensure_open()
        yield from self._fetch(box, known).batches(state)

    def refetch(self, box: MailboxRef, keys: Collection[str]) -> Iterator[Batch]:
        self.client.http.ensure_open()
        yield from self._fetch(box, lambda _: set()).refetch(keys)

    def watch(self, box: MailboxRef, on_news: Callable[[], None]) -> None:
        """Calls `on_news` when mail may have arrived. Returns if the server has no events; raises when the connection ends."""
        self.client.http.ensure_open()
        if not self.client.session.event_url:
            return
        with self.client.events("Email") as lines:
            if lines is None:
                return
            on_news()
            for line in lines:
                if line.startswith("event:") and line[6:].strip() == "state":
                    on_news()
        raise Unavailable("the server ended the connection")

    def close(self) -> None:
        self.client.close()
        with self._lock:
            if self._downloads:
                self._downloads.close()
        self._spool.close()

    def _accounts(self) -> list[MailboxRef]:
        session = self.client.session
        wanted = session.accounts if self._settings.include_shared else {session.primary: session.accounts[session.primary]}
        return [MailboxRef(self._address(name, key), name, key) for key, name in wanted.items()]

    def _address(self, name: str, key: str) -> str:
        """An account is mostly named by its address."""
        own = key == self.client.session.primary
        found = next((one for one in (name, self.client.session.user if own else "") if "@" in one), "")
        return (found or f"{name or key}@{self._settings.host}").lower()

    def _fetch(self, box: MailboxRef, known: Known) -> JmapMailboxFetch:
        session = self.client.session
        account = next((one for one in self._accounts() if one.address == box.address.lower()), None)
        if account is None or account.provider_id is None:
            raise Unavailable(f"the mailbox {box.address} is no longer part of this source")
        with self._lock:
            if self._downloads is None:
                at_once = min(self._settings.downloads_at_once, session.requests_at_once)
                self._downloads = JmapDownloads(self.client, self._context, self._spool, at_once)
        return JmapMailboxFetch(
            self.client, self._downloads, self._context, self._settings, account.provider_id, account.address, known
        )
