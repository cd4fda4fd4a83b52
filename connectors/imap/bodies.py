"""Fetches the messages themselves: many in one FETCH, two FETCHes in flight per connection, delivered in UID order.

If a message breaks its FETCH (a refusal, a lost connection, no response), all messages of it that did not arrive become
suspects. Suspects are fetched alone; one that also fails alone has failed, and the others continue.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from connectors.base import SPOOL_BYTES, Context, FailedMessage, RawMessage
from connectors.errors import Throttled
from connectors.imap.errors import Broken, CommandRefused, Dropped, throttling
from connectors.imap.message import Meta
from connectors.imap.parse import Value, body
from connectors.imap.session import ImapSession
from connectors.imap.uids import Uids
from connectors.imap.wire import Part, Wire

GROUP_MESSAGES = 100
GROUP_BYTES = 4 << 20
_IN_FLIGHT = 2
_MANY_BYTES = 16 << 20
_MANY_MESSAGES = 400
_HELD_BYTES = 64 << 20
_HANGS_UP = "the server closes the connection whenever this message is fetched"

Got = RawMessage | FailedMessage | None
"""None if the message no longer exists."""


class Again(Exception):
    """The folder has to be inspected again from the current position; some messages are suspects now."""


@dataclass(slots=True)
class Bodies:
    """The messages of one folder, under the UIDVALIDITY it was opened with."""

    session: ImapSession
    context: Context
    suspects: dict[int, int]
    """UID → 1 if it was part of a failed FETCH, 2 if it was the first request on a new connection that was then lost. Survives
    connections."""
    _received: dict[int, Part | None] = field(default_factory=dict)
    _held: int = 0

    def fetch(self, metas: Sequence[Meta]) -> Iterator[tuple[Meta, Got]]:
        """Yields one result per message, in order. Raises Again or Dropped; what was yielded until then is done."""
        pays = len(metas) >= _MANY_MESSAGES or sum(meta.size for meta in metas) >= _MANY_BYTES
        wires = self.session.wires(many=pays)
        # Several commands are in flight on each connection, so that a round trip costs nothing. Responses are read in the order
        # of the commands, but the messages of one FETCH may arrive in any order.
        groups = deque(_groups(metas, self.suspects))
        flying: deque[tuple[Wire, bytes, list[Meta]]] = deque()
        turn = 0
        while groups or flying:
            while groups and len(flying) < _IN_FLIGHT * len(wires) and not (flying and self._is_alone(groups[0])):
                group = groups.popleft()
                if self.suspects.get(group[0].uid, 0) > 1 or group[0].trouble:
                    yield group[0], group[0].failed(group[0].trouble or _HANGS_UP)
                    continue
                try:
                    self.context.wait_for_turn(float(len(group)))
                except Throttled:
                    if not flying:
                        raise
                    groups.appendleft(group)  # what was requested before arrives first: its turn is used up
                    break
                wire = wires[turn % len(wires)]
                turn += 1
                flying.append((wire, wire.send(_command(group)), group))
                if self._is_alone(group):
                    break
            if flying:
                wire, tag, group = flying.popleft()
                yield from self._group(wire, tag, group, flying)

    def _is_alone(self, group: list[Meta]) -> bool:
        return group[0].uid in self.suspects or bool(group[0].trouble)

    def _group(
        self, wire: Wire, tag: bytes, group: list[Meta], flying: deque[tuple[Wire, bytes, list[Meta]]]
    ) -> Iterator[tuple[Meta, Got]]:
        missing = deque(group)
        try:
            for response in wire.responses(tag):
                given = body(response)
                if given is None:
                    continue
                self._store(*given)
                while missing and missing[0].uid in self._received:
                    yield self._deliver(missing.popleft())
        except CommandRefused as refused:
            yield from self._refused(refused, missing, flying)
            return
        except Dropped:
            self._suspect(missing)
            # Some servers drop the connection when they read one damaged message. It is found by fetching suspects alone; a
            # loss on a connection that has already delivered something may have other reasons.
            if self._is_alone(group) and missing and self.session.is_fresh:
                self.suspects[group[0].uid] += 1
            raise
        while missing:
            if missing[0].uid in self._received:
                yield self._deliver(missing.popleft())
            elif self._is_alone(group):
                meta = missing.popleft()
                there = len(self.session.search(b"UID %d" % meta.uid)) > 0
                yield meta, meta.failed("the server lists it but does not return it") if there else None
            else:
                self._restart(missing, flying)

    def _refused(
        self, refused: CommandRefused, missing: deque[Meta], flying: deque[tuple[Wire, bytes, list[Meta]]]
    ) -> Iterator[tuple[Meta, Got]]:
        pause = throttling(refused.code, refused.text)
        if pause is not None:
            raise pause from refused
        while missing and missing[0].uid in self._received:
            yield self._deliver(missing.popleft())
        if len(missing) == 1 and self._is_alone(list(missing)):
            yield missing[0], missing[0].failed(f"the server refused to return it: {refused}")
        elif missing:
            self._restart(missing, flying)

    def _restart(self, missing: deque[Meta], flying: deque[tuple[Wire, bytes, list[Meta]]]) -> None:
        """Reads the responses in flight first, because they would be mistaken for those of the next commands."""
        self._suspect(missing)
        for wire, tag, _ in flying:
            try:
                for _ in wire.responses(tag):
                    self.context.progress()
            except CommandRefused:
                continue
        raise Again

    def _suspect(self, missing: deque[Meta]) -> None:
        for meta in missing:
            if meta.uid not in self._received:
                self.suspects.setdefault(meta.uid, 1)

    def _store(self, uid: int, content: Value) -> None:
        part = None if isinstance(content, list) else content
        self._received[uid] = part
        self._held += len(part) if isinstance(part, bytes) else 0
        if self._held > _HELD_BYTES:
            raise Broken("the server sends far more than it announced, and out of order")

    def _deliver(self, meta: Meta) -> tuple[Meta, Got]:
        body = self._received.pop(meta.uid)
        self._held -= len(body) if isinstance(body, bytes) else 0
        # An empty literal for a message with a size means that the server can't read it, not that the message is empty.
        if body is None or (body == b"" and meta.size > 0):
            return meta, meta.failed(f"the server returned none of its {meta.size:,} bytes")
        self.session.received += 1
        self.context.progress(1)
        return meta, meta.message(body)


def _groups(metas: Sequence[Meta], suspects: dict[int, int]) -> Iterator[list[Meta]]:
    """Groups by number and by bytes; large messages, suspects and those with known trouble are fetched alone."""
    group: list[Meta] = []
    size = 0
    for meta in metas:
        alone = meta.uid in suspects or meta.size > SPOOL_BYTES or bool(meta.trouble)
        if group and (alone or len(group) >= GROUP_MESSAGES or size + meta.size > GROUP_BYTES):
            yield group
            group, size = [], 0
        if alone:
            yield [meta]
        else:
            group.append(meta)
            size += meta.size
    if group:
        yield group


def _command(group: list[Meta]) -> bytes:
    # PEEK, because BODY[] would set \Seen: an archive must not mark mail as read.
    return b"UID FETCH %s (UID BODY.PEEK[])" % Uids.of(meta.uid for meta in group).encoded()
