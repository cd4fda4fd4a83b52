"""Metadata of messages, requested before they are fetched."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import NamedTuple

from connectors.base import FailedMessage, RawMessage
from connectors.imap.errors import CommandRefused, throttling
from connectors.imap.folders import decode_name
from connectors.imap.keys import GMAIL, id_key, id_text, uid_key
from connectors.imap.parse import Value, date, fetch_items, number, texts
from connectors.imap.uids import Uids
from connectors.imap.wire import Part, Wire

_THREAD = b"X-GM-THRID"


class Meta(NamedTuple):
    uid: int
    key: str
    folder: str
    size: int = 0
    """As reported by the server; some report it wrongly."""
    flags: tuple[str, ...] = ()
    labels: tuple[str, ...] = ()
    received_at: datetime | None = None
    trouble: str = ""
    """Why it can't be fetched, if that is already known."""

    def message(self, body: Part) -> RawMessage:
        data, path = (body, None) if isinstance(body, bytes) else (None, body)
        return RawMessage(self.key, data, path, self.folder, self.flags, self.labels, self.received_at)

    def failed(self, reason: str) -> FailedMessage:
        return FailedMessage(self.key, reason, self.folder, detail={"uid": self.uid, "size": self.size})


@dataclass(frozen=True, slots=True)
class MessageFetcher:
    """Requests the metadata of messages in one folder."""

    folder: str
    validity: int
    ids: str
    """What keys are built from (connectors.imap.keys); empty for UIDs."""

    def metas(self, wire: Wire, uids: Sequence[int]) -> list[Meta]:
        """In UID order, without messages that no longer exist. A message that breaks the response is identified."""
        if not uids:
            return []
        items = b"UID FLAGS INTERNALDATE RFC822.SIZE" + self._extra()
        found = {meta.uid: meta for meta in self._ask(wire, uids, items)}
        return [found[uid] for uid in uids if uid in found]

    def changed(self, wire: Wire, up_to: int, since: int) -> Iterator[Meta]:
        """Messages whose flags or labels have changed (RFC 7162)."""
        while up_to > 0:
            command = b"UID FETCH 1:%d (UID FLAGS%s) (CHANGEDSINCE %d)" % (up_to, self._extra(), since)
            for response in wire.responses(wire.send(command)):
                items = fetch_items(response)
                meta = self._meta(items) if items and b"FLAGS" in items else None
                if meta is not None:
                    yield meta
            up_to = min(wire.left_out_from, up_to) - 1

    def id_values(self, wire: Wire, uids: Sequence[int]) -> dict[int, str]:
        """UID → server-assigned id."""
        found = {}
        command = b"UID FETCH %s (UID %s)" % (Uids.of(uids).encoded(), self.ids.encode())
        for response in wire.responses(wire.send(command)):
            items = fetch_items(response)
            uid = number(items.get(b"UID")) if items else None
            if items and uid is not None:
                found[uid] = id_text(items.get(self.ids.encode()))
        return found

    def _extra(self) -> bytes:
        if not self.ids:
            return b""
        return b" " + self.ids.encode() + (b" X-GM-LABELS " + _THREAD if self.ids == GMAIL else b"")

    def _ask(self, wire: Wire, uids: Sequence[int], items: bytes) -> Iterator[Meta]:
        wanted = set(uids)
        tag = wire.send(b"UID FETCH %s (%s)" % (Uids.of(uids).encoded(), items))
        try:
            for response in wire.responses(tag):
                found = fetch_items(response)
                meta = self._meta(found) if found and b"RFC822.SIZE" in found else None
                if meta is not None and meta.uid in wanted:
                    wanted.discard(meta.uid)
                    yield meta
        except CommandRefused as refused:
            pause = throttling(refused.code, refused.text)
            if pause is not None:
                raise pause from refused
            yield from self._one_by_one(wire, sorted(wanted), items, refused)

    def _one_by_one(self, wire: Wire, uids: list[int], items: bytes, refused: CommandRefused) -> Iterator[Meta]:
        """Bisects what was refused until the responsible messages are known."""
        if len(uids) == 1:
            key = uid_key(self.folder, self.validity, uids[0])
            yield Meta(uids[0], key, self.folder, trouble=f"the server returned no metadata for it: {refused}")
        elif uids:
            middle = len(uids) // 2
            yield from self._ask(wire, uids[:middle], items)
            yield from self._ask(wire, uids[middle:], items)

    def _meta(self, items: Mapping[bytes, Value]) -> Meta | None:
        uid = number(items.get(b"UID"))
        if uid is None:
            return None
        value = id_text(items.get(self.ids.encode())) if self.ids else ""
        key = id_key(self.folder, self.ids, value) if value else uid_key(self.folder, self.validity, uid)
        size, received_at = number(items.get(b"RFC822.SIZE")) or 0, date(items.get(b"INTERNALDATE"))
        meta = Meta(uid, key, self.folder, size, flags_of(items.get(b"FLAGS")), (), received_at)
        if self.ids != GMAIL:
            return meta
        labels = tuple(sorted(decode_name(label, None) for label in texts(items.get(b"X-GM-LABELS")) if label))
        thread = id_text(items.get(_THREAD))
        return meta._replace(labels=labels, flags=(*meta.flags, *((f"X-GM-THRID={thread}",) if thread else ())))


def flags_of(value: Value) -> tuple[str, ...]:
    """Without \\Recent, which describes the session rather than the message."""
    return tuple(sorted({flag.decode("utf-8", "replace") for flag in texts(value)} - {"\\Recent"}))
