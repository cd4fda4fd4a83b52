"""Where the people of Lantern Works file a message: folder, flags and labels."""

from __future__ import annotations

import zlib
from dataclasses import dataclass

from connectors.fake.company.people import Employee
from connectors.fake.company.scenes import Scene
from connectors.fake.company.topics import LIST, ORDER, WORK
from connectors.selection import FolderRole

_FOLDERS = {topic.name: topic.folder for topic in (*WORK, ORDER, LIST)} | {
    "newsletter": "Newsletters",
    "invoice": "Finance/Invoices",
    "travel": "Travel",
}
_ROLES = {
    "INBOX": FolderRole.INBOX,
    "Sent": FolderRole.SENT,
    "Drafts": FolderRole.DRAFTS,
    "Junk": FolderRole.SPAM,
    "Trash": FolderRole.TRASH,
}


@dataclass(frozen=True, slots=True)
class Filing:
    folder: str
    flags: tuple[str, ...] = ()
    labels: tuple[str, ...] = ()


def role_of(folder: str) -> FolderRole | None:
    return FolderRole.ARCHIVE if folder.startswith("Archive/") else _ROLES.get(folder)


def places(scene: Scene, index: int, person: Employee) -> list[Filing]:
    """Empty if the message is not in this person's mailbox; two if the person sent it to themselves."""
    note = scene.notes[index]
    found = []
    if note.sender is person:
        found.append(Filing("Drafts", ("\\Draft",)) if scene.kind == "draft" else Filing("Sent", ("\\Seen",)))
    if person in note.recipients:
        found.append(_received(scene, index, person))
    return found


def _received(scene: Scene, index: int, person: Employee) -> Filing:
    chance = zlib.crc32(f"{scene.number} {index} {person.address}".encode())
    flags = tuple(flag for flag, is_set in _flags(scene, index, person, chance) if is_set)
    if scene.kind == "spam":
        return Filing("Junk", flags)
    if chance % 29 == 0:
        return Filing("Trash", flags)
    own = _FOLDERS.get(scene.topic, "")
    if person.sorts and own and chance % 3:
        return Filing(own, flags)
    if not person.sorts and chance % 4 == 1:
        return Filing(f"Archive/{scene.notes[index].sent_at.year}", flags, _labels(person, own, chance))
    return Filing("INBOX", flags, _labels(person, own, chance))


def _flags(scene: Scene, index: int, person: Employee, chance: int) -> tuple[tuple[str, bool], ...]:
    answered = index + 1 < len(scene.notes) and scene.notes[index + 1].sender is person
    return ("\\Seen", chance % 11 != 0), ("\\Answered", answered), ("\\Flagged", chance % 17 == 0)


def _labels(person: Employee, folder: str, chance: int) -> tuple[str, ...]:
    if not person.labels:
        return ()
    labels = [folder.rpartition("/")[2]] if folder else []
    if chance % 7 == 0:
        labels.append("Important")
    return tuple(labels)
