"""Restores mail into an IMAP account: creates folders, appends messages, and skips those that are already there."""

from __future__ import annotations

import hashlib
import re
import tempfile
import threading
from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import datetime
from typing import BinaryIO, cast

from connectors.base import SPOOL_BYTES, Context
from connectors.errors import ConnectorError, Throttled, Unavailable
from connectors.imap.connector import ImapConnector
from connectors.imap.errors import CommandRefused, Dropped, FolderClosed, FolderGone, throttling
from connectors.imap.folders import ImapFolder, encode_name
from connectors.imap.parse import fetch_items, number, values
from connectors.imap.session import ImapSession
from connectors.imap.settings import ImapSecrets, ImapSettings
from connectors.imap.wire import Wire, quoted
from connectors.roles import role_of
from connectors.selection import FolderRole
from connectors.target import DeliveredCopy, DeliveryResult, Outgoing, TargetFull

_IN_FLIGHT = 64
_REPORTED = 100
_IN_FLIGHT_BYTES = 1 << 20
_CHUNK = 1 << 18
_HEADER_BYTES = 1 << 18
_FIELDS = (b"message-id", b"date", b"from", b"subject")
_FIELD = re.compile(rb"^([!-9;-~]+)[ \t]*:(.*(?:\r?\n[ \t].*)*)", re.MULTILINE)
_SYSTEM_FLAGS = {"\\Seen", "\\Answered", "\\Flagged", "\\Draft"}
_KEYWORD = re.compile(r"[^\s(){%*\"\\\]=\x00-\x1f\x7f-\U0010ffff]+")
_MONTHS = ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"]


@dataclass(slots=True)
class _Flight:
    """A message that was sent, and not confirmed yet."""

    tag: bytes
    message: Outgoing
    folder: str
    fingerprint: bytes
    size: int


class ImapTarget:
    """Sends messages with CRLF line endings, as IMAP requires; nothing else is changed."""

    def __init__(self, settings: ImapSettings, secrets: ImapSecrets, context: Context, address: str = "") -> None:
        self._connector = ImapConnector(settings, secrets, context)
        self._session = ImapSession(lambda: self._connector.open_wire(address), context, threading.Event())
        self._folders: dict[str, ImapFolder] = {}
        self._by_role: dict[FolderRole, str] = {}
        self._prints: dict[str, set[bytes]] = {}
        """Folder → fingerprints of its messages."""

    def deliver(self, messages: Iterable[Outgoing], *, dry_run: bool = False) -> Iterator[list[DeliveredCopy]]:
        try:
            yield from self._compare(messages) if dry_run else self._deliver(messages)
        except Dropped as dropped:
            raise throttling(dropped.code, dropped.said) or Unavailable(str(dropped)) from dropped
        except (CommandRefused, FolderGone, FolderClosed) as refused:
            raise Unavailable(f"the server refused: {refused}") from refused

    def close(self) -> None:
        self._session.closed.set()
        self._session.close_all()
        self._connector.close()

    def _compare(self, messages: Iterable[Outgoing]) -> Iterator[list[DeliveredCopy]]:
        """Creates nothing: what a missing folder would get is absent."""
        self._list_folders()
        done: list[DeliveredCopy] = []
        for message in messages:
            name = self._name(message)
            if name in self._folders:
                self._open_folder(name)
            with _Copy() as copy:
                reason = copy.fill(message)
                found = copy.fingerprint in self._prints.setdefault(name, set())
                self._prints[name].add(copy.fingerprint)
            result = DeliveryResult.PRESENT if found else DeliveryResult.ABSENT
            done.append(DeliveredCopy(message.id, DeliveryResult.REFUSED if reason else result, reason))
            if len(done) >= _REPORTED:
                yield done
                done = []
        yield done

    def _deliver(self, messages: Iterable[Outgoing]) -> Iterator[list[DeliveredCopy]]:
        self._list_folders()
        flying: deque[_Flight] = deque()
        done: list[DeliveredCopy] = []
        try:
            for message in messages:
                self._deliver_one(message, flying, done)
                if len(done) >= _REPORTED:
                    yield done
                    done = []
            while flying:
                self._confirm(flying, done)
        except (ConnectorError, Dropped):
            yield done  # what was confirmed before
            raise
        yield done

    def _deliver_one(self, message: Outgoing, flying: deque[_Flight], done: list[DeliveredCopy]) -> None:
        name = self._name(message)
        with _Copy() as copy:
            reason = copy.fill(message) or self._open_or_explain(name, flying, done)
            if reason:
                done.append(DeliveredCopy(message.id, DeliveryResult.REFUSED, reason))
            elif copy.fingerprint in self._prints[name]:
                done.append(DeliveredCopy(message.id, DeliveryResult.PRESENT))
            else:
                self._send(message, name, copy, flying, done)
        while len(flying) >= _IN_FLIGHT or sum(one.size for one in flying) >= _IN_FLIGHT_BYTES:
            self._confirm(flying, done)

    def _open_or_explain(self, name: str, flying: deque[_Flight], done: list[DeliveredCopy]) -> str:
        """Why the folder can't be used; empty if it can. Its messages are read with nothing else in flight."""
        if name in self._prints:
            return ""
        while flying:
            self._confirm(flying, done)
        try:
            self._open_folder(name)
        except (CommandRefused, FolderGone, FolderClosed) as refused:
            self._folders.pop(name, None)
            return f"the folder {name!r} can't be used: {refused}"
        return ""

    def _send(self, message: Outgoing, name: str, copy: _Copy, flying: deque[_Flight], done: list[DeliveredCopy]) -> None:
        tag = self._append(self._session.wire, self._folders[name], message, copy)
        if tag is None:
            done.append(DeliveredCopy(message.id, DeliveryResult.REFUSED, "the server did not accept it"))
            return
        flying.append(_Flight(tag, message, name, copy.fingerprint, copy.size))
        self._prints[name].add(copy.fingerprint)

    def _list_folders(self) -> None:
        if not self._folders:
            listed = self._session.folders()
            self._folders = {folder.name: folder for folder in listed}
            self._by_role = {folder.role: folder.name for folder in reversed(listed) if folder.role}

    def _name(self, message: Outgoing) -> str:
        """The folder of this server: sent mail of another server belongs to the folder for sent mail, whatever its name."""
        path = "INBOX" if message.path.upper() == "INBOX" else message.path
        role = None if path in self._folders else role_of(path)
        return self._by_role.get(role, path) if role else path

    def _append(self, wire: Wire, folder: ImapFolder, message: Outgoing, copy: _Copy) -> bytes | None:
        """Without waiting, if the server allows it (LITERAL+)."""
        at_once = "LITERAL+" in wire.capabilities
        head = b"APPEND " + quoted(folder.raw) + b" (" + " ".join(_flags(message.flags)).encode() + b")"
        if message.received_at is not None:
            head += b' "' + _date(message.received_at).encode() + b'"'
        tag = wire.send(head + b" {%d%s}" % (copy.size, b"+" if at_once else b""))
        if not at_once:
            try:
                wire.wait_for_continuation(tag)
            except CommandRefused as refused:
                self._raise_if_full(refused)
                return None
        for piece in copy.pieces():
            wire.write(piece)
        wire.write(b"\r\n")
        return tag

    def _confirm(self, flying: deque[_Flight], done: list[DeliveredCopy]) -> None:
        """Reads the response to the oldest one."""
        first = flying.popleft()
        try:
            for _ in self._session.wire.responses(first.tag):
                pass
            done.append(DeliveredCopy(first.message.id, DeliveryResult.DELIVERED))
        except CommandRefused as refused:
            self._prints[first.folder].discard(first.fingerprint)
            self._raise_if_full(refused)
            done.append(DeliveredCopy(first.message.id, DeliveryResult.REFUSED, str(refused)))

    def _raise_if_full(self, refused: CommandRefused) -> None:
        if refused.code == "OVERQUOTA":
            raise TargetFull(f"the account is full: {refused}") from refused
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


class _Copy:
    """A message as it is sent, in memory or in a file, with CRLF line endings."""

    def __init__(self) -> None:
        self._file = tempfile.SpooledTemporaryFile(SPOOL_BYTES)  # noqa: SIM115
        self.size, self.fingerprint = 0, b""

    def __enter__(self) -> _Copy:
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()

    def fill(self, message: Outgoing) -> str:
        """Why the message can't be read; empty if it can."""
        try:
            self.size, self.fingerprint = _copy(message.pieces(), cast(BinaryIO, self._file))
        except ConnectorError:
            raise
        except Exception as error:  # noqa: BLE001  (an unreadable message is reported, and the others continue)
            return str(error) or type(error).__name__
        return ""

    def pieces(self) -> Iterator[bytes]:
        self._file.seek(0)
        while piece := self._file.read(_CHUNK):
            yield piece


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
