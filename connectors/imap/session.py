"""The connections of one mailbox: opened on demand, and reopened on the current folder when they are lost."""

from __future__ import annotations

import logging
import re
import threading
from collections.abc import Callable
from dataclasses import dataclass, field

from connectors.base import Context
from connectors.errors import ConnectorError, StateLost, Throttled, Unavailable
from connectors.imap.errors import Broken, CommandRefused, Dropped, FolderClosed, FolderGone, one_line, throttling
from connectors.imap.folders import ImapFolder, Status, list_folders
from connectors.imap.uids import Uids
from connectors.imap.wire import Response, Wire, quoted

_DROPS = 12
_BARREN_DROPS = 4
_PAUSE_SECONDS = 15.0
_OFTEN_SECONDS = 60.0
_NO_SUCH = re.compile(r"not exist|doesn.t exist|no such|unknown (?:mailbox|folder)|not found", re.IGNORECASE)
_CODE = re.compile(rb"OK \[(UIDVALIDITY|UIDNEXT|HIGHESTMODSEQ) (\d{1,19})\]", re.IGNORECASE)
_ALL = re.compile(rb" ALL ([\d:,]+)", re.IGNORECASE)
_EXISTS = re.compile(rb"(\d{1,10}) EXISTS", re.IGNORECASE)

log = logging.getLogger("connectors.imap")


@dataclass(slots=True)
class ImapSession:
    open_wire: Callable[[], Wire]
    """Opens a new, logged-in connection."""
    context: Context
    closed: threading.Event
    connections: int = 1
    is_chosen: bool = False
    """The owner of the source has set `connections`, so that what is known about the provider does not count."""
    received: int = 0
    """Messages received so far; repeated losses without any in between count as failures."""
    round_trips: int = 0
    """How often closed connections have waited for the server, including their logins."""
    _wires: list[Wire] = field(default_factory=list)
    _folder: ImapFolder | None = None
    _validity: int = 0
    _received_on_opening: int = 0
    _drops: int = 0
    _barren: int = 0
    _received_before: int = 0

    @property
    def wire(self) -> Wire:
        if not self._wires:
            self._wires.append(self.open_wire())
            self._received_on_opening = self.received
        return self._wires[0]

    @property
    def is_fresh(self) -> bool:
        """Nothing was received on this connection yet."""
        return self.received == self._received_on_opening

    def folders(self) -> list[ImapFolder]:
        while True:
            try:
                found = list_folders(self.wire)
                break
            except Dropped as dropped:
                self.on_disconnect(dropped)
            except CommandRefused as refused:
                raise throttling(refused.code, refused.text) or Unavailable(f"folders can't be listed: {refused}") from refused
        if not found:  # even an empty mailbox has an INBOX; accepting this would mark everything as gone
            raise Unavailable("the server lists no folders")
        return found

    def examine(self, folder: ImapFolder) -> Status:
        """Opens a folder read-only. Raises FolderGone or FolderClosed."""
        for extra in self._wires[1:]:
            extra.close()
        del self._wires[1:]
        status = self._examine(self.wire, folder)
        self._folder, self._validity = folder, status.uid_validity
        return status

    def select(self, folder: ImapFolder) -> Status:
        """Opens a folder to change it."""
        return _opened(self.wire.run(b"SELECT " + quoted(folder.raw)))

    def wires(self, *, many: bool) -> list[Wire]:
        """Connections on the open folder; more than one only if `many` and the server allows it."""
        assert self._folder is not None, "examine first"
        while many and len(self._wires) < self._most_connections():
            try:
                extra = self.open_wire()
            except ConnectorError:
                if self.closed.is_set():
                    raise
                self.connections = len(self._wires)  # the server allows no more connections
                break
            self._wires.append(extra)
            if self._examine(extra, self._folder).uid_validity != self._validity:
                raise StateLost("the server has renumbered its messages", self._folder.name)
        return list(self._wires)

    def search(self, criteria: bytes) -> Uids:
        found = self._search_once(criteria)
        while (lowest := self.wire.left_out_from) > 1:  # a server that limits commands has processed only the messages above
            found |= self._search_once(b"UID 1:%d %s" % (lowest - 1, criteria))
            if self.wire.left_out_from >= lowest:
                raise Broken("a search that the server never finishes")
            self.context.progress()
        return found

    def _search_once(self, criteria: bytes) -> Uids:
        wire = self.wire
        if "ESEARCH" in wire.capabilities or "IMAP4REV2" in wire.capabilities:
            responses = wire.run(b"UID SEARCH RETURN (ALL) " + criteria)
        else:
            responses = wire.run(b"UID SEARCH " + criteria)
        found = Uids()
        for response in responses:
            given = _search(response)
            if given is not None:
                found = given
        return found

    def _most_connections(self) -> int:
        provider = self.wire.provider
        return self.connections if provider is None or self.is_chosen else min(self.connections, provider.connections)

    def on_disconnect(self, dropped: Dropped) -> None:
        """Prepares a new attempt after a growing pause. Raises after too many."""
        self.close_all()
        if self.closed.is_set():
            raise Unavailable("the connection was closed") from dropped
        pause = throttling(dropped.code, dropped.said)
        if pause is not None:
            raise pause from dropped
        self._drops += 1
        log.warning("imap_connection_lost drops=%d received=%d reason=%s", self._drops, self.received, one_line(str(dropped)))
        self._barren = self._barren + 1 if self.received == self._received_before else 0
        self._received_before = self.received
        if self._barren >= _BARREN_DROPS:
            raise Unavailable(str(dropped)) from dropped
        if self._drops >= _DROPS:
            raise Throttled(f"the server keeps closing the connection ({dropped})", _OFTEN_SECONDS) from dropped
        if self._drops > 1 and self.closed.wait(min(_PAUSE_SECONDS, 0.25 * 2**self._drops)):
            raise Unavailable("the connection was closed") from dropped
        self.context.progress()

    def close_all(self) -> None:
        for wire in self._wires:
            self.round_trips += wire.round_trips
            wire.close()
        self._wires.clear()

    def _examine(self, wire: Wire, folder: ImapFolder) -> Status:
        try:
            responses = wire.run(b"EXAMINE " + quoted(folder.raw))
        except CommandRefused as refused:
            pause = throttling(refused.code, refused.text)
            if pause is not None:
                raise pause from refused
            if (refused.code in ("NONEXISTENT", "TRYCREATE") or _NO_SUCH.search(refused.text)) and not self._is_listed(
                wire, folder
            ):
                raise FolderGone(folder.name) from refused
            raise FolderClosed(f"{folder.name}: {refused}") from refused
        return _opened(responses)

    def _is_listed(self, wire: Wire, folder: ImapFolder) -> bool:
        try:
            return any(response.text[:5].upper() == b"LIST " for response in wire.run(b'LIST "" ' + quoted(folder.raw)))
        except CommandRefused:
            return False


def _opened(responses: list[Response]) -> Status:
    codes: dict[bytes, int] = {}
    for response in responses:
        code, exists = _CODE.match(response.text), _EXISTS.fullmatch(response.text)
        if code:
            codes[code[1].upper()] = int(code[2])
        elif exists:
            codes[b"EXISTS"] = int(exists[1])
    if not codes.get(b"UIDVALIDITY") or b"EXISTS" not in codes:
        raise Broken("the server opens a folder without reporting its status")
    return Status(codes[b"EXISTS"], codes.get(b"UIDNEXT"), codes[b"UIDVALIDITY"], codes.get(b"HIGHESTMODSEQ"))


def _search(response: Response) -> Uids | None:
    text = response.text
    if text[:6].upper() == b"SEARCH":
        numbers = text[6:].split(b"(")[0].split()
        if not all(item.isdigit() and len(item) <= 10 for item in numbers):
            raise Broken("a search result that can't be read")
        return Uids.of(map(int, numbers))
    if text[:7].upper() == b"ESEARCH":
        found = _ALL.search(text)
        return Uids.parse(found[1]) if found else Uids()
    return None
