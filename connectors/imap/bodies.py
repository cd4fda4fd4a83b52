"""The messages themselves: many in one FETCH, two FETCHes in flight on each connection, given in the order of their UIDs.

A message that spoils the FETCH it is in (a refusal, a lost connection, no answer) makes suspects of all that did not come with
it. Suspects are fetched alone; the one that fails alone, too, has failed, and the others go on.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from connectors.base import SPOOL_BYTES, Context, FailedMessage, RawMessage
from connectors.imap.message import Meta
from connectors.imap.parse import Value, body
from connectors.imap.session import Session
from connectors.imap.trouble import Broken, Dropped, Refused, throttling
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
"""None: it is not there any more."""


class Again(Exception):
    """The folder has to be looked at again, from where we are; some messages are suspects now."""


@dataclass(slots=True)
class Bodies:
    """For one folder, as it was numbered when it was opened."""

    session: Session
    context: Context
    suspects: dict[int, int]
    """UID → 1 after it was in bad company, 2 when it was the first thing asked for on a new connection, which was lost over
    it. Outlives connections."""
    _received: dict[int, Part | None] = field(default_factory=dict)
    _held: int = 0

    def fetch(self, metas: Sequence[Meta]) -> Iterator[tuple[Meta, Got]]:
        """One for each, in order. Raises Again or Dropped; what was given by then need not be asked for again."""
        pays = len(metas) >= _MANY_MESSAGES or sum(meta.size for meta in metas) >= _MANY_BYTES
        wires = self.session.wires(many=pays)
        groups = deque(_groups(metas, self.suspects))
        flying: deque[tuple[Wire, bytes, list[Meta]]] = deque()
        turn = 0
        while groups or flying:
            while groups and len(flying) < _IN_FLIGHT * len(wires) and not (flying and self._is_alone(groups[0])):
                group = groups.popleft()
                if self.suspects.get(group[0].uid, 0) > 1 or group[0].trouble:
                    yield group[0], group[0].failed(group[0].trouble or _HANGS_UP)
                    continue
                self.context.wait_for_turn()
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
            for response in wire.answers(tag):
                given = body(response)
                if given is None:
                    continue
                self._keep(*given)
                while missing and missing[0].uid in self._received:
                    yield self._give(missing.popleft())
        except Refused as refused:
            yield from self._refused(refused, missing, flying)
            return
        except Dropped:
            self._suspect(missing)
            if self._is_alone(group) and missing and self.session.is_fresh:
                self.suspects[group[0].uid] += 1
            raise
        while missing:
            if missing[0].uid in self._received:
                yield self._give(missing.popleft())
            elif self._is_alone(group):
                meta = missing.popleft()
                there = len(self.session.search(b"UID %d" % meta.uid)) > 0
                yield meta, meta.failed("the server lists it and does not give it") if there else None
            else:
                self._start_again(missing, flying)

    def _refused(
        self, refused: Refused, missing: deque[Meta], flying: deque[tuple[Wire, bytes, list[Meta]]]
    ) -> Iterator[tuple[Meta, Got]]:
        pause = throttling(refused.code, refused.text)
        if pause is not None:
            raise pause from refused
        while missing and missing[0].uid in self._received:
            yield self._give(missing.popleft())
        if len(missing) == 1 and self._is_alone(list(missing)):
            yield missing[0], missing[0].failed(f"the server refuses it: {refused}")
        elif missing:
            self._start_again(missing, flying)

    def _start_again(self, missing: deque[Meta], flying: deque[tuple[Wire, bytes, list[Meta]]]) -> None:
        """What is in flight has to land first: its answers would be taken for those of the next commands."""
        self._suspect(missing)
        for wire, tag, _ in flying:
            try:
                for _ in wire.answers(tag):
                    self.context.progress()
            except Refused:
                continue
        raise Again

    def _suspect(self, missing: deque[Meta]) -> None:
        for meta in missing:
            if meta.uid not in self._received:
                self.suspects.setdefault(meta.uid, 1)

    def _keep(self, uid: int, content: Value) -> None:
        part = None if isinstance(content, list) else content
        self._received[uid] = part
        self._held += len(part) if isinstance(part, bytes) else 0
        if self._held > _HELD_BYTES:
            raise Broken("the server sends far more than it had announced, and not in order")

    def _give(self, meta: Meta) -> tuple[Meta, Got]:
        body = self._received.pop(meta.uid)
        self._held -= len(body) if isinstance(body, bytes) else 0
        if body is None or (body == b"" and meta.size > 0):
            return meta, meta.failed(f"the server gives nothing of its {meta.size:,} bytes")
        self.session.received += 1
        self.context.progress(1)
        return meta, meta.message(body)


def _groups(metas: Sequence[Meta], suspects: dict[int, int]) -> Iterator[list[Meta]]:
    """By number and by bytes; large ones, suspects, and those of which we know no good each alone."""
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
    return b"UID FETCH %s (UID BODY.PEEK[])" % Uids.of(meta.uid for meta in group).encoded()
