"""Where the people of Lantern Works keep a message: folder, flags and labels."""

from __future__ import annotations

import zlib
from dataclasses import dataclass

from connectors.sample.people import Person
from connectors.sample.scenes import Scene
from connectors.sample.topics import LIST, ORDER, WORK
from connectors.selection import Role

_FOLDERS = {topic.name: topic.folder for topic in (*WORK, ORDER, LIST)} | {
    "newsletter": "Newsletters",
    "invoice": "Finance/Invoices",
    "travel": "Travel",
}
_ROLES = {"INBOX": Role.INBOX, "Sent": Role.SENT, "Drafts": Role.DRAFTS, "Junk": Role.SPAM, "Trash": Role.TRASH}


@dataclass(frozen=True, slots=True)
class Place:
    folder: str
    flags: tuple[str, ...] = ()
    labels: tuple[str, ...] = ()


def role_of(folder: str) -> Role | None:
    return Role.ARCHIVE if folder.startswith("Archive/") else _ROLES.get(folder)


def places(scene: Scene, index: int, person: Person) -> list[Place]:
    """None, if the message is not this person's; two, if it went to its own sender."""
    note = scene.notes[index]
    found = []
    if note.sender is person:
        found.append(Place("Drafts", ("\\Draft",)) if scene.kind == "draft" else Place("Sent", ("\\Seen",)))
    if person in note.recipients:
        found.append(_received(scene, index, person))
    return found


def _received(scene: Scene, index: int, person: Person) -> Place:
    chance = zlib.crc32(f"{scene.number} {index} {person.address}".encode())
    flags = tuple(flag for flag, is_set in _flags(scene, index, person, chance) if is_set)
    if scene.kind == "spam":
        return Place("Junk", flags)
    if chance % 29 == 0:
        return Place("Trash", flags)
    own = _FOLDERS.get(scene.topic, "")
    if person.sorts and own and chance % 3:
        return Place(own, flags)
    if not person.sorts and chance % 4 == 1:
        return Place(f"Archive/{scene.notes[index].sent_at.year}", flags, _labels(person, own, chance))
    return Place("INBOX", flags, _labels(person, own, chance))


def _flags(scene: Scene, index: int, person: Person, chance: int) -> tuple[tuple[str, bool], ...]:
    answered = index + 1 < len(scene.notes) and scene.notes[index + 1].sender is person
    return ("\\Seen", chance % 11 != 0), ("\\Answered", answered), ("\\Flagged", chance % 17 == 0)


def _labels(person: Person, folder: str, chance: int) -> tuple[str, ...]:
    if not person.labels:
        return ()
    labels = [folder.rpartition("/")[2]] if folder else []
    if chance % 7 == 0:
        labels.append("Important")
    return tuple(labels)
