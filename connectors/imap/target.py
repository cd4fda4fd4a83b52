"""Restores mail into an IMAP account: creates folders, appends messages, and skips those that are already there."""

from __future__ import annotations

import hashlib
import re
import tempfile
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from datetime import datetime
from typing import BinaryIO, cast

from connectors.base import SPOOL_BYTES, Context
from connectors.errors import ConnectorError, Throttled, Unavailable
from connectors.imap.accounts import accounts
from connectors.imap.errors import CommandRefused, Dropped, FolderClosed, FolderGone, throttling
from connectors.imap.folders import ImapFolder, encode_name
from connectors.imap.login import connect, log_in
from connectors.imap.parse import fetch_items, number, values
from connectors.imap.session import ImapSession
from connectors.imap.settings import ImapSecrets, ImapSettings
from connectors.imap.wire import Wire, quoted
from connectors.spool import Spool

_IN_FLIGHT = 16
_IN_FLIGHT_BYTES = 1 << 20
_CHUNK = 1 << 18
_HEADER_BYTES = 1 << 18
_FIELDS = (b"message-id", b"date", b"from", b"subject")
_FIELD = re.compile(rb"^([!-9;-~]+)[ \t]*:(.*(?:\r?\n[ \t].*)*)", re.MULTILINE)
_SYSTEM_FLAGS = {"\\Seen", "\\Answered", "\\Flagged", "\\Draft"}
_KEYWORD = re.compile(r"[^\s(){%*\"\\\]=\x00-\x1f\x7f-\U0010ffff]+")
_MONTHS = ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"]


@dataclass(frozen=True, slots=True)
class Outgoing:
    """A message to append to a folder (`/` between levels)."""

    id: str
    folder: str
    pieces: Callable[[], Iterator[bytes]]
    flags: tuple[str, ...] = ()
    received_at: datetime | None = None


@dataclass(slots=True)
class Delivered:
    appended: int = 0
    present: int = 0
    """Messages that were already there."""
    failed: list[tuple[str, str]] = field(default_factory=list)
    """(id, reason)"""


class ImapTarget:
    """Sends messages with CRLF line endings, as IMAP requires; nothing else is changed."""

    def __init__(self, settings: ImapSettings, secrets: ImapSecrets, context: Context) -> None:
        self._settings, self._secrets = settings, secrets
        self._spool = Spool("imap", context.progress)
        self._session = ImapSession(self._open, context, threading.Event())
        self._folders: dict[str, ImapFolder] = {}
        self._prints: dict[str, set[bytes]] = {}
        """Folder → fingerprints of its messages."""

    def deliver(self, messages: Iterable[Outgoing]) -> Iterator[Delivered]:
        """Yields a report every few messages. Raises the errors of connectors.errors. A repeated run skips what is there."""
        try:
            yield from self._deliver(messages)
        except Dropped as dropped:
            raise throttling(dropped.code, dropped.said) or Unavailable(str(dropped)) from dropped
        except (CommandRefused, FolderGone, FolderClosed) as refused:
            raise Unavailable(f"the server refused: {refused}") from refused

    def close(self) -> None:
        self._session.closed.set()
        self._session.close_all()
        self._spool.close()

    def _open(self) -> Wire:
        account = next(iter(accounts(self._settings, self._secrets).values()))
        wire = connect(self._settings, self._spool.write)
        log_in(wire, self._settings, account, self._secrets.token.get_secret_value() if self._secrets.token else None)
        return wire

    def _deliver(self, messages: Iterable[Outgoing]) -> Iterator[Delivered]:
        wire = self._session.wire
        if not self._folders:
            self._folders = {folder.name: folder for folder in self._session.folders()}
        flying: deque[tuple[bytes, Outgoing, bytes]] = deque()
        bytes_flying = 0
        done = Delivered()
        for message in messages:
            folder = self._open_folder(message.folder)
            with tempfile.SpooledTemporaryFile(SPOOL_BYTES) as file:
                try:
                    size, fingerprint = _copy(message.pieces(), cast(BinaryIO, file))
                except ConnectorError:
                    raise
                except Exception as error:  # noqa: BLE001  (an unreadable message is reported, and the others continue)
                    done.failed.append((message.id, str(error)))
                    continue
                if fingerprint in self._prints[message.folder]:
                    done.present += 1
                    continue
                tag = self._append(wire, folder, message, cast(BinaryIO, file), size)
            if tag is None:
                done.failed.append((message.id, "the server did not accept it"))
                continue
            flying.append((tag, message, fingerprint))
            bytes_flying += size
            self._prints[message.folder].add(fingerprint)
            if len(flying) >= _IN_FLIGHT or bytes_flying >= _IN_FLIGHT_BYTES:
                self._confirm(wire, flying, done)
                bytes_flying = 0
                yield done
                done = Delivered()
        self._confirm(wire, flying, done)
        yield done

    def _append(self, wire: Wire, folder: ImapFolder, message: Outgoing, file: BinaryIO, size: int) -> bytes | None:
        """Without waiting, if the server allows it (LITERAL+)."""
        at_once = "LITERAL+" in wire.capabilities
        head = b"APPEND " + quoted(folder.raw) + b" (" + " ".join(_flags(message.flags)).encode() + b")"
        if message.received_at is not None:
            head += b' "' + _date(message.received_at).encode() + b'"'
        tag = wire.send(head + b" {%d%s}" % (size, b"+" if at_once else b""))
        if not at_once:
            try:
                wire.wait_for_continuation(tag)
            except CommandRefused as refused:
                self._raise_if_full(refused)
                return None
        file.seek(0)
        while piece := file.read(_CHUNK):
            wire.write(piece)
        wire.write(b"\r\n")
        return tag

    def _confirm(self, wire: Wire, flying: deque[tuple[bytes, Outgoing, bytes]], done: Delivered) -> None:
        while flying:
            tag, message, fingerprint = flying.popleft()
            try:
                for _ in wire.responses(tag):
                    pass
                done.appended += 1
            except CommandRefused as refused:
                self._prints[message.folder].discard(fingerprint)
                self._raise_if_full(refused)
                done.failed.append((message.id, str(refused)))

    def _raise_if_full(self, refused: CommandRefused) -> None:
        if refused.code == "OVERQUOTA":
            raise Unavailable(f"the account is full: {refused}") from refused
        pause = throttling(refused.code, refused.text)
        if pause is not None:
            raise Throttled(str(pause), pause.retry_after_seconds) from refused

    def _open_folder(self, name: str) -> ImapFolder:
        """The folder, created if necessary, after reading the fingerprints of its messages."""
        if name not in self._folders:
            self._folders[name] = self._create(name)
        folder = self._folders[name]
        if name not in self._prints:
            self._prints[name] = self._read_fingerprints(folder)
        return folder

    def _create(self, name: str) -> ImapFolder:
        wire = self._session.wire
        delimiter, prefix = "/", ""
        for response in wire.run(b'LIST "" ""'):
            match values(response.parts):
                case [bytes(kind), list(), bytes(found), *_] if kind.upper() == b"LIST":
                    delimiter = found.decode("latin-1")
        if "NAMESPACE" in wire.capabilities:
            for response in wire.run(b"NAMESPACE"):
                match values(response.parts):
                    case [bytes(kind), [[bytes(found), *_], *_], *_] if kind.upper() == b"NAMESPACE":
                        prefix = found.decode("latin-1")
        raw = encode_name(name, delimiter)
        if prefix and not raw.startswith(prefix.encode()) and name != "INBOX":
            raw = prefix.encode() + raw
        try:
            wire.run(b"CREATE " + quoted(raw))
        except CommandRefused as refused:
            if refused.code != "ALREADYEXISTS":
                raise
        return ImapFolder(name, raw)

    def _read_fingerprints(self, folder: ImapFolder) -> set[bytes]:
        status = self._session.examine(folder)
        found: set[bytes] = set()
        if not status.messages:
            return found
        wire = self._session.wire
        fields = b" ".join(_FIELDS).upper()
        for window in self._session.search(b"ALL").windows(1000):
            command = b"UID FETCH %d:%d (RFC822.SIZE BODY.PEEK[HEADER.FIELDS (%s)])" % (window[0], window[-1], fields)
            for response in wire.responses(wire.send(command)):
                items = fetch_items(response)
                header = next((value for name, value in items.items() if name.startswith(b"BODY[")), None) if items else None
                if items and isinstance(header, bytes):
                    found.add(_fingerprint(header, number(items.get(b"RFC822.SIZE")) or 0))
        return found


def _copy(pieces: Iterator[bytes], file: BinaryIO) -> tuple[int, bytes]:
    """Copies with CRLF line endings; returns the resulting size and the fingerprint."""
    size, head, held = 0, b"", b""
    for piece in pieces:
        data = held + piece
        held = b"\r" if data.endswith(b"\r") else b""
        data = data[: len(data) - len(held)].replace(b"\r\n", b"\n").replace(b"\n", b"\r\n")
        if len(head) < _HEADER_BYTES:
            head += data[:_HEADER_BYTES]
        size += file.write(data)
    size += file.write(held)
    return size, _fingerprint(head.partition(b"\r\n\r\n")[0], size)


def _fingerprint(header: bytes, size: int) -> bytes:
    """From the size and the identifying header fields, however they are folded."""
    fields = sorted(
        (name.lower(), b" ".join(value.split())) for name, value in _FIELD.findall(header) if name.lower() in _FIELDS
    )
    return hashlib.sha256(repr((fields, size)).encode()).digest()[:16]


def _flags(flags: Iterable[str]) -> list[str]:
    """The flags that may be set on a message: without \\Recent, \\Deleted and invalid ones."""
    return [flag for flag in flags if flag in _SYSTEM_FLAGS or _KEYWORD.fullmatch(flag)]


def _date(at: datetime) -> str:
    offset = at.utcoffset()
    minutes = int(offset.total_seconds() // 60) if offset else 0
    zone = f"{'-' if minutes < 0 else '+'}{abs(minutes) // 60:02}{abs(minutes) % 60:02}"
    return f"{at.day:02}-{_MONTHS[at.month - 1]}-{at.year:04} {at:%H:%M:%S} {zone}"
