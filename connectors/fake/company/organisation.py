"""The mail of Lantern Works: each folder knows its messages, and generates one on demand."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import lru_cache
from typing import Literal

from connectors.base import MailboxRef, RawMessage
from connectors.fake.company import automatic, talk
from connectors.fake.company.filing import Filing, places, role_of
from connectors.fake.company.pen import Pen, pen_for
from connectors.fake.company.people import Employee
from connectors.fake.company.scenes import Scene, SceneList
from connectors.selection import FolderRole

Size = Literal["small", "medium", "large"]
_SIZES: dict[Size, tuple[int, int]] = {"small": (6, 124), "medium": (10, 580), "large": (24, 9300)}
"""Number of people, and number of scenes."""

_WRITERS: dict[str, Callable[[Pen, int], bytes]] = {
    "work": talk.work,
    "order": talk.order,
    "foreign": talk.foreign,
    "list": talk.mailing_list,
    "draft": talk.draft,
    "away": talk.away,
    "invoice": automatic.supplier_invoice,
    "newsletter": automatic.newsletter,
    "meeting": automatic.meeting,
    "travel": automatic.travel,
    "spam": automatic.spam,
    "bounce": automatic.bounce,
    "broken": automatic.broken,
    "unreadable": automatic.unreadable,
}


@dataclass(frozen=True, slots=True)
class FiledMessage:
    """A message in a folder, before it is generated."""

    scene: Scene
    index: int
    place: Filing


class SampleFolder:
    def __init__(self, name: str, entries: list[FiledMessage], stage: SceneList) -> None:
        self.name = name
        self._entries = entries
        self._stage = stage
        self._positions: dict[str, int] | None = None

    @property
    def role(self) -> FolderRole | None:
        return role_of(self.name)

    def count(self) -> int:
        return len(self._entries)

    def key(self, position: int) -> str:
        entry = self._entries[position]
        return f"{self.name}/{entry.scene.number}.{entry.index}"

    def find(self, key: str) -> int | None:
        if self._positions is None:
            self._positions = {self.key(position): position for position in range(self.count())}
        return self._positions.get(key)

    def received_at(self, position: int) -> datetime:
        entry = self._entries[position]
        return entry.scene.notes[entry.index].sent_at + timedelta(seconds=3)

    def unreadable(self, position: int) -> str | None:
        return "the server says that this message is damaged" if self._entries[position].scene.kind == "unreadable" else None

    def message(self, position: int) -> RawMessage:
        entry = self._entries[position]
        pen = pen_for(entry.scene, self._stage.random(entry.scene.number, 1))
        data = _WRITERS[entry.scene.kind](pen, entry.index)
        place = entry.place
        return RawMessage(
            self.key(position),
            data,
            folder=self.name,
            flags=place.flags,
            labels=place.labels,
            received_at=self.received_at(position),
        )


class SampleMail:
    def __init__(self, size: Size, seed: int) -> None:
        self._stage = _stage(size, seed)
        self._folders = lru_cache(maxsize=1)(self._lay_out)

    def mailboxes(self) -> Iterator[MailboxRef]:
        for person in self._stage.staff:
            yield MailboxRef(person.address, person.name, f"lw-{zlib.crc32(person.address.encode()):08x}")

    def folders(self, address: str) -> tuple[SampleFolder, ...]:
        return self._folders(address)

    def _lay_out(self, address: str) -> tuple[SampleFolder, ...]:
        """Assigns the messages of one mailbox to its folders. Other people's mail is ignored."""
        person = next((person for person in self._stage.staff if person.address == address), None)
        if person is None:
            return ()
        folders: dict[str, list[FiledMessage]] = {"INBOX": [], "Sent": [], "Drafts": [], "Junk": [], "Trash": []}
        for scene in self._stage.scenes(person):
            for entry in _entries(scene, person):
                folders.setdefault(entry.place.folder, []).append(entry)
        return tuple(SampleFolder(name, entries, self._stage) for name, entries in folders.items())


@lru_cache(maxsize=2)
def _stage(size: Size, seed: int) -> SceneList:
    return SceneList(seed, *_SIZES[size])


def _entries(scene: Scene, person: Employee) -> Iterator[FiledMessage]:
    for index in range(len(scene.notes)):
        for place in places(scene, index, person):
            yield FiledMessage(scene, index, place)
