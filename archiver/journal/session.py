"""The dialogue with one mail server (RFC 5321). Temporary errors for everything that is our fault: the sender tries again.

Permanent errors say only that the sender has to change: not encrypted, not signed in, not our address, larger than announced.
"""

from __future__ import annotations

import base64
import binascii
import re
import ssl
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime
from itertools import chain
from typing import Protocol

from archiver.db.counters import Counters
from archiver.errors import ArchiverError
from archiver.journal.envelope import JournalEnvelope
from archiver.journal.policy import JournalPolicy, RateLimit
from archiver.journal.spool import JournalSpool
from archiver.journal.wire import Disconnected, LineTooLong, SmtpWire
from archiver.logs import get_logger

MEMORY_BYTES = 1 << 20
"""A larger message is written to the spool while it arrives."""
_MAX_RECIPIENTS = 10_000
_MAX_ERRORS = 20
_PATH = re.compile(rb"<(?:@[^:<>]*:)?([^<>]*)>(.*)\Z", re.DOTALL)
_SIZE = re.compile(rb"(?i)(?:^|\s)SIZE=(\d{1,18})(?=\s|\Z)")
_LOST = "451 4.3.0 The message could not be stored; try again later"

log = get_logger("journal")


class _TooLarge(Exception):
    """The message is larger than JOURNAL_MAX_BYTES; it was read to its end and dropped."""


class Stop(Protocol):
    def is_set(self) -> bool: ...


@dataclass(slots=True)
class SmtpSession:
    wire: SmtpWire
    client: str
    policy: JournalPolicy
    spool: JournalSpool
    rate: RateLimit
    counters: Counters
    stopping: Stop
    host_name: str
    tls: ssl.SSLContext | None = None
    _greeted: bool = False
    _signed_in: bool = False
    _sender: str | None = None
    _recipients: list[str] = field(default_factory=list)
    _errors: int = 0

    def run(self) -> None:
        """Until the client leaves."""
        try:
            self.wire.send(f"220 {self.host_name} ESMTP Archiver journal")
            while self._answer():
                if self.stopping.is_set():
                    return self.wire.send("421 4.3.2 Shutting down; try again later")
        except LineTooLong:
            self._leave("500 5.5.2 A command is too long")
        except Disconnected as gone:
            if self.stopping.is_set():
                self._leave("421 4.3.2 Shutting down; try again later")
            log.debug("journal_client_left", client=self.client, reason=str(gone))
        return None

    def _leave(self, reply: str) -> None:
        try:
            self.wire.send(reply)
        except Disconnected:
            return

    def _answer(self) -> bool:
        line = self.wire.read_command()
        verb, _, rest = line.partition(b" ")
        name = verb.decode("ascii", "replace").upper()
        if name == "QUIT":
            self.wire.send("221 2.0.0 Bye")
            return False
        handler = _HANDLERS.get(name)
        if handler is None:
            self._refuse("500 5.5.2 Unknown command")
        else:
            handler(self, rest.strip())
        if self._errors > _MAX_ERRORS:
            self.wire.send("421 4.7.0 Too many errors")
            return False
        return True

    def _refuse(self, reply: str) -> None:
        self._errors += 1
        self.counters.add("archiver_journal_refused", code=reply[:3])
        self.wire.send(reply)

    def _forget_mail(self) -> None:
        self._sender, self._recipients = None, []

    # commands

    def _helo(self, _: bytes) -> None:
        self._greeted = True
        self._forget_mail()
        self.wire.send(f"250 {self.host_name}")

    def _ehlo(self, _: bytes) -> None:
        self._greeted = True
        self._forget_mail()
        words = [f"SIZE {self.policy.max_bytes}", "8BITMIME", "SMTPUTF8", "PIPELINING", "ENHANCEDSTATUSCODES"]
        if self.tls and not self.wire.is_encrypted:
            words.append("STARTTLS")
        if self._may_sign_in():
            words.append("AUTH PLAIN LOGIN")
        lines = [self.host_name, *words]
        self.wire.send("\r\n".join(f"250{'-' if line is not lines[-1] else ' '}{line}" for line in lines))

    def _may_sign_in(self) -> bool:
        """A password is never asked for in clear text, unless there is no TLS at all (JOURNAL_REQUIRE_TLS=false)."""
        return self.policy.needs_password and (self.wire.is_encrypted or self.tls is None)

    def _starttls(self, _: bytes) -> None:
        if self.tls is None or self.wire.is_encrypted:
            return self._refuse("502 5.5.1 STARTTLS is not available")
        if self.wire.has_more:  # commands smuggled in before the encryption begins
            self._refuse("501 5.5.2 Nothing may follow STARTTLS")
            raise Disconnected("commands after STARTTLS")
        self.wire.send("220 2.0.0 Ready to start TLS")
        self.wire.encrypt(self.tls)
        self._greeted = self._signed_in = False
        return self._forget_mail()

    def _auth(self, rest: bytes) -> None:
        if not self._may_sign_in() or self._signed_in:
            return self._refuse("503 5.5.1 AUTH is not available")
        mechanism, _, initial = rest.partition(b" ")
        try:
            username, password = self._credentials(mechanism.upper(), initial.strip())
        except (binascii.Error, ValueError, UnicodeDecodeError):
            return self._refuse("501 5.5.2 The credentials can't be decoded")
        if not self.policy.knows(username, password):
            log.warning("journal_sign_in_failed", client=self.client)
            return self._refuse("535 5.7.8 The credentials are not valid")
        self._signed_in = True
        return self.wire.send("235 2.7.0 Signed in")

    def _credentials(self, mechanism: bytes, initial: bytes) -> tuple[str, str]:
        if mechanism == b"PLAIN":
            _, username, password = self._decode(initial or self._ask("334 ")).split("\0")
            return username, password
        if mechanism == b"LOGIN":
            username = self._decode(initial or self._ask("334 VXNlcm5hbWU6"))
            return username, self._decode(self._ask("334 UGFzc3dvcmQ6"))
        raise ValueError("unknown mechanism")

    def _ask(self, prompt: str) -> bytes:
        self.wire.send(prompt)
        return self.wire.read_command()

    @staticmethod
    def _decode(text: bytes) -> str:
        return base64.b64decode(text, validate=True).decode()

    def _mail(self, rest: bytes) -> None:
        path = _address_after(b"FROM:", rest)
        if self.policy.needs_tls and not self.wire.is_encrypted:
            return self._refuse("530 5.7.0 Use STARTTLS first")
        if self.policy.needs_password and not self._signed_in:
            return self._refuse("530 5.7.0 Sign in first")
        if not self._greeted or self._sender is not None:
            return self._refuse("503 5.5.1 Wrong order of commands")
        if path is None:
            return self._refuse("501 5.5.4 Expected MAIL FROM:<address>")
        address, parameters = path
        announced = _SIZE.search(parameters)
        if announced and int(announced[1]) > self.policy.max_bytes:
            return self._refuse_large()
        if not self.rate.allows(self.client):
            return self._refuse("450 4.7.1 Too many messages from your address; try again later")
        try:
            self.spool.check_space(int(announced[1]) if announced else 0)
        except (ArchiverError, OSError):
            return self._refuse("452 4.3.1 Not enough space; try again later")
        self._sender = address
        return self.wire.send("250 2.1.0 OK")

    def _rcpt(self, rest: bytes) -> None:
        path = _address_after(b"TO:", rest)
        if self._sender is None:
            return self._refuse("503 5.5.1 MAIL first")
        if path is None or not path[0]:
            return self._refuse("501 5.5.4 Expected RCPT TO:<address>")
        if not self.policy.accepts(path[0]):
            return self._refuse("550 5.1.1 This address does not accept journal mail")
        if len(self._recipients) >= _MAX_RECIPIENTS:
            return self._refuse("452 4.5.3 Too many recipients")
        self._recipients.append(path[0])
        return self.wire.send("250 2.1.5 OK")

    def _data(self, _: bytes) -> None:
        if self._sender is None or not self._recipients:
            return self._refuse("503 5.5.1 MAIL and RCPT first")
        self.wire.send("354 End data with <CR><LF>.<CR><LF>")
        envelope = JournalEnvelope(datetime.now(UTC), self.client, self._sender, tuple(self._recipients))
        self._forget_mail()
        pieces = self.wire.read_data()
        try:
            size = self._store(envelope, pieces)
        except _TooLarge:
            return self._refuse_large()
        except Disconnected:
            raise
        except (ArchiverError, OSError) as error:
            log.error("journal_not_stored", client=self.client, reason=str(error))
            return self._refuse_after(pieces, "452 4.3.1 Not enough space; try again later")
        except Exception:
            log.exception("journal_not_stored", client=self.client)
            return self._refuse_after(pieces, _LOST)
        self.counters.add("archiver_journal_received_messages")
        self.counters.add("archiver_journal_received_bytes", size)
        return self.wire.send("250 2.0.0 Stored")

    def _store(self, envelope: JournalEnvelope, pieces: Iterator[bytes]) -> int:
        """Returns once the message is durable."""
        counted = _Counted(pieces, self.policy.max_bytes)
        arriving, parts = iter(counted), list[bytes]()
        for piece in arriving:
            parts.append(piece)
            if counted.size > MEMORY_BYTES:
                self.spool.append_stream(envelope, chain(_drain(parts), arriving))
                return counted.size
        self.spool.append(envelope, b"".join(parts))
        return counted.size

    def _refuse_after(self, pieces: Iterator[bytes], reply: str) -> None:
        """The client sends its message to the end before it reads the reply."""
        for _ in pieces:
            pass
        self._refuse(reply)

    def _refuse_large(self) -> None:
        log.warning("journal_too_large", client=self.client, limit=self.policy.max_bytes)
        self._refuse(f"552 5.3.4 Larger than {self.policy.max_bytes} bytes (JOURNAL_MAX_BYTES)")

    def _rset(self, _: bytes) -> None:
        self._forget_mail()
        self.wire.send("250 2.0.0 OK")

    def _noop(self, _: bytes) -> None:
        self.wire.send("250 2.0.0 OK")

    def _vrfy(self, _: bytes) -> None:
        self.wire.send("252 2.1.5 Send mail, and see")


_HANDLERS: dict[str, Callable[[SmtpSession, bytes], None]] = {
    "HELO": SmtpSession._helo,
    "EHLO": SmtpSession._ehlo,
    "STARTTLS": SmtpSession._starttls,
    "AUTH": SmtpSession._auth,
    "MAIL": SmtpSession._mail,
    "RCPT": SmtpSession._rcpt,
    "DATA": SmtpSession._data,
    "RSET": SmtpSession._rset,
    "NOOP": SmtpSession._noop,
    "VRFY": SmtpSession._vrfy,
}


class _Counted:
    """Counts what passes. A message beyond the limit is read to its end, then raises."""

    def __init__(self, pieces: Iterator[bytes], limit: int) -> None:
        self._pieces, self._limit, self.size = pieces, limit, 0

    def __iter__(self) -> Iterator[bytes]:
        for piece in self._pieces:
            self.size += len(piece)
            if self.size <= self._limit:
                yield piece
        if self.size > self._limit:
            raise _TooLarge


def _address_after(word: bytes, rest: bytes) -> tuple[str, bytes] | None:
    """`FROM:<ann@example.org> SIZE=1` as address and parameters; the address is empty for the null sender."""
    if rest[: len(word)].upper() != word:
        return None
    found = _PATH.match(rest[len(word) :].strip())
    return (found[1].decode("utf-8", "replace").strip(), found[2]) if found else None


def _drain(parts: list[bytes]) -> Iterator[bytes]:
    """Frees each part once it is written."""
    while parts:
        yield parts.pop(0)
