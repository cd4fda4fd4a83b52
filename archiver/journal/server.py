"""Listens for mail servers. Each connection has a thread: as many as JOURNAL_CONNECTIONS allows, the others are put off."""

from __future__ import annotations

import contextlib
import socket
import ssl
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field

from archiver.config import Settings
from archiver.db.counters import Counters
from archiver.errors import ConfigError, InUse
from archiver.journal.policy import JournalPolicy, RateLimit
from archiver.journal.session import SmtpSession
from archiver.journal.spool import JournalSpool
from archiver.journal.wire import Disconnected, SmtpWire
from archiver.logs import get_logger

_BACKLOG = 256
_COMMAND_SECONDS = 300.0  # RFC 5321, section 4.5.3.2
_DATA_SECONDS = 180.0
_LOOK_SECONDS = 0.5
_STOP_SECONDS = 20.0

log = get_logger("journal")


@dataclass(slots=True)
class JournalServer:
    policy: JournalPolicy
    spool: JournalSpool
    counters: Counters
    host_name: str
    tls: ssl.SSLContext | None = None
    stopping: threading.Event = field(default_factory=threading.Event)
    _listeners: list[tuple[socket.socket, bool]] = field(default_factory=list)
    _sessions: dict[threading.Thread, SmtpWire] = field(default_factory=dict)
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _threads: list[threading.Thread] = field(default_factory=list)
    rate: RateLimit = field(init=False)

    def __post_init__(self) -> None:
        self.rate = RateLimit(self.policy.messages_per_minute)

    def listen(self, host: str, port: int, *, is_encrypted: bool = False) -> int:
        """Returns the port, which the system chooses if it is 0."""
        try:
            family = socket.AF_INET6 if ":" in host else socket.AF_INET
            listener = socket.create_server((host, port), family=family, backlog=_BACKLOG)
        except OSError as error:
            raise InUse(f"JOURNAL_HOST={host!r}, port {port}: can't listen there ({error.strerror})") from error
        listener.settimeout(_LOOK_SECONDS)
        self._listeners.append((listener, is_encrypted))
        return int(listener.getsockname()[1])

    def start(self) -> None:
        for listener, is_encrypted in self._listeners:
            thread = threading.Thread(target=self._accept, args=(listener, is_encrypted), name="journal-accept", daemon=True)
            thread.start()
            self._threads.append(thread)

    def stop(self) -> None:
        """Messages that are arriving are received and answered; idle connections get a temporary error."""
        self.stopping.set()
        for listener, _ in self._listeners:
            with contextlib.suppress(OSError):
                listener.shutdown(socket.SHUT_RDWR)  # wakes its thread, on Linux
        for thread in self._threads:
            thread.join()
        for listener, _ in self._listeners:
            listener.close()
        deadline = time.monotonic() + _STOP_SECONDS
        while (sessions := self._open_sessions()) and time.monotonic() < deadline:
            for thread, wire in sessions:
                wire.interrupt()
                thread.join(_LOOK_SECONDS / len(sessions))
        for _, wire in self._open_sessions():
            wire.close()

    def _open_sessions(self) -> list[tuple[threading.Thread, SmtpWire]]:
        with self._lock:
            return list(self._sessions.items())

    def _accept(self, listener: socket.socket, is_encrypted: bool) -> None:
        while not self.stopping.is_set():
            try:
                connection, address = listener.accept()
            except TimeoutError:
                continue
            except OSError:
                if self.stopping.wait(_LOOK_SECONDS):  # too many open files, for example
                    return
                continue
            self._begin(connection, str(address[0]), is_encrypted)

    def _begin(self, connection: socket.socket, client: str, is_encrypted: bool) -> None:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)  # replies are short, and the client waits for each
        wire = SmtpWire(connection, _COMMAND_SECONDS, _DATA_SECONDS)
        if (refusal := self._refusal(client)) is not None:
            self.counters.add("archiver_journal_refused", code="421")
            log.warning("journal_connection_refused", client=client, reason=refusal)
            with contextlib.suppress(Disconnected):
                connection.settimeout(1)
                if not is_encrypted:
                    wire.send(f"421 {refusal}")
            return wire.close()
        thread = threading.Thread(target=self._serve, args=(wire, client, is_encrypted), name="journal-session", daemon=True)
        with self._lock:
            self._sessions[thread] = wire
        return thread.start()

    def _refusal(self, client: str) -> str | None:
        if not self.policy.admits(client):
            return f"4.7.1 Your address {client} is not in JOURNAL_NETWORKS"
        with self._lock:
            is_full = len(self._sessions) >= self.policy.connections
        return "4.7.0 Too many connections; try again later" if is_full else None

    def _serve(self, wire: SmtpWire, client: str, is_encrypted: bool) -> None:
        try:
            if is_encrypted:
                assert self.tls is not None
                wire.encrypt(self.tls)
            session = SmtpSession(
                wire, client, self.policy, self.spool, self.rate, self.counters, self.stopping, self.host_name, self.tls
            )
            session.run()
        except Disconnected as gone:
            log.info("journal_client_left", client=client, reason=str(gone))
        except Exception:
            log.exception("journal_session_failed", client=client)
        finally:
            wire.close()
            with self._lock:
                self._sessions.pop(threading.current_thread(), None)


def tls_context(settings: Settings) -> ssl.SSLContext | None:
    """Raises ConfigError if the certificate can't be used."""
    if settings.journal_tls_certificate is None or settings.journal_tls_key is None:
        return None
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    try:
        context.load_cert_chain(settings.journal_tls_certificate, settings.journal_tls_key)
    except (OSError, ssl.SSLError) as error:
        reason = error.strerror or "it is not a certificate with its key, both in PEM"
        raise ConfigError(f"JOURNAL_TLS_CERTIFICATE={str(settings.journal_tls_certificate)!r}: {reason}") from error
    return context


def open_server(
    settings: Settings, spool: JournalSpool, counters: Counters, report: Callable[[str, int], None] = lambda _, __: None
) -> JournalServer:
    """Listens on the configured ports; `start` accepts connections."""
    name = settings.journal_name or socket.getfqdn()
    server = JournalServer(JournalPolicy.of(settings), spool, counters, name, tls_context(settings))
    for port, is_encrypted in ((settings.journal_port, False), (settings.journal_tls_port, True)):
        if port is not None:
            report(settings.journal_host, server.listen(settings.journal_host, port, is_encrypted=is_encrypted))
    return server
