"""The IMAP connector."""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager

from connectors.base import Batch, Context, Json, Known, MailboxRef
from connectors.errors import AuthFailed, Unavailable
from connectors.imap.accounts import Account, accounts
from connectors.imap.errors import CommandRefused, Dropped
from connectors.imap.fetching import ImapMailboxFetch
from connectors.imap.folders import provider_notes
from connectors.imap.idle import watch
from connectors.imap.login import connect, log_in
from connectors.imap.oauth import Token
from connectors.imap.providers import provider_of
from connectors.imap.refetching import ImapRefetch
from connectors.imap.session import ImapSession
from connectors.imap.settings import ImapSecrets, ImapSettings
from connectors.imap.wire import Wire
from connectors.selection import mailbox_rule
from connectors.spool import Spool


class ImapConnector:
    def __init__(self, settings: ImapSettings, secrets: ImapSecrets, context: Context) -> None:
        self._settings, self._secrets, self._context = settings, secrets, context
        self._token = Token(settings, secrets, context)
        self._spool = Spool("imap", context.progress)
        self._closed = threading.Event()
        self._lock = threading.Lock()
        self._wires: list[Wire] = []
        self.downloaded = 0
        """Number of messages whose bytes were downloaded."""
        self.round_trips = 0
        """How often a session that has ended waited for the server."""
        self.notes: tuple[str, ...] = ()
        """What `check` found out about the server that its owner should know."""

    def check(self) -> None:
        """Logs in as the first user and lists the folders."""
        self._ensure_open()
        account = next(iter(self._accounts().values()))
        with self._session(account) as session:
            folders = session.folders()
            self.notes = provider_notes(session.wire.provider, folders)

    def mailboxes(self) -> Iterator[MailboxRef]:
        self._ensure_open()
        for account in self._accounts().values():
            if mailbox_rule(self._settings, account.address) is None:
                yield account.ref

    def fetch(self, box: MailboxRef, state: Mapping[str, Json], known: Known) -> Iterator[Batch]:
        self._ensure_open()
        account = self._account(box)
        with self._session(account) as session:
            yield from ImapMailboxFetch(account.address.lower(), session, self._settings, self._context, known).batches(state)

    def refetch(self, box: MailboxRef, keys: Collection[str]) -> Iterator[Batch]:
        self._ensure_open()
        with self._session(self._account(box)) as session:
            yield from ImapRefetch(session, self._settings, self._context).batches(keys)

    def watch(self, box: MailboxRef, on_news: Callable[[], None]) -> None:
        """Calls `on_news` when mail may have arrived. Returns if the server has no IDLE; raises when the connection is lost."""
        self._ensure_open()
        with self._session(self._account(box)) as session:
            watch(session, self._settings, on_news)

    def open_wire(self, address: str) -> Wire:
        """A logged-in connection to one account; to the first one if no address is given."""
        account = self._account(MailboxRef(address)) if address else next(iter(self._accounts().values()))
        return self._open(account)

    def close(self) -> None:
        with self._lock:
            self._closed.set()
            for wire in self._wires:
                wire.interrupt()
        self._token.close()
        self._spool.close()

    def _ensure_open(self) -> None:
        if self._closed.is_set():
            raise Unavailable("the connection was closed")

    def _accounts(self) -> dict[str, Account]:
        return accounts(self._settings, self._secrets)

    def _account(self, box: MailboxRef) -> Account:
        account = self._accounts().get(box.address.lower())
        if account is None:
            raise Unavailable(f"the mailbox {box.address} is no longer part of this source")
        return account

    @contextmanager
    def _session(self, account: Account) -> Iterator[ImapSession]:
        chosen = self._settings.connections
        connections = chosen or self._context.connections
        session = ImapSession(lambda: self._open(account), self._context, self._closed, connections, chosen is not None)
        try:
            yield session
        except (Dropped, CommandRefused) as error:
            raise Unavailable("the connection was closed" if self._closed.is_set() else str(error)) from error
        finally:
            self.downloaded += session.received
            session.close_all()
            self.round_trips += session.round_trips

    def _open(self, account: Account) -> Wire:
        """A logged-in connection. A rejected token is renewed once."""
        if self._token.value is None and self._token.can_renew:
            self._token.renew()
        try:
            return self._open_once(account)
        except AuthFailed:
            if not self._token.can_renew:
                raise
        self._token.renew()
        return self._open_once(account)

    def _open_once(self, account: Account) -> Wire:
        self._ensure_open()
        self._context.wait_for_turn()
        wire = connect(self._settings, self._spool.write)
        with self._lock:
            self._wires = [*(other for other in self._wires if other.sock.fileno() >= 0), wire]
        try:
            if self._closed.is_set():
                raise Unavailable("the connection was closed")
            wire.provider = provider_of(self._settings.host, wire.server_name)
            log_in(wire, self._settings, account, self._token.value)
            wire.capabilities -= wire.provider.distrusted if wire.provider else frozenset()
            if self._settings.compress == "always" and "COMPRESS=DEFLATE" in wire.capabilities:
                wire.compress()
            _learn_server_name(wire)
            wire.provider = wire.provider or provider_of(self._settings.host, wire.server_name)
        except BaseException as error:
            wire.close()
            if isinstance(error, Dropped):
                raise Unavailable(str(error)) from error
            if isinstance(error, AuthFailed) and wire.provider and wire.provider.hint:
                raise AuthFailed(f"{error} ({wire.provider.name}: {wire.provider.hint})") from error
            raise
        self._context.progress()
        return wire


def _learn_server_name(wire: Wire) -> None:
    """Dovecot assigns ids to messages without announcing it; a server that hides its name may reveal it on request."""
    if {"OBJECTID", "X-GM-EXT-1"} & wire.capabilities or "ID" not in wire.capabilities or "dovecot" in wire.server_name.lower():
        return
    try:
        wire.server_name += " ".join(response.text.decode("latin-1") for response in wire.run(b"ID NIL"))
    except CommandRefused:
        return
