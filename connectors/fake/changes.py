"""Changes to messages at the source since the first run."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from connectors.base import ChangeKind, CopyChange
from connectors.fake.mail import FakeFolder
from connectors.fake.settings import Trouble


@dataclass(frozen=True, slots=True)
class FoundFakeMessage:
    """A message and where it is."""

    folder: FakeFolder
    position: int

    @property
    def key(self) -> str:
        return self.folder.key(self.position)


def find(folders: Sequence[FakeFolder], key: str) -> FoundFakeMessage | None:
    for folder in folders:
        position = folder.find(key)
        if position is not None:
            return FoundFakeMessage(folder, position)
    return None


def moved_key(key: str, target: str) -> str:
    """A move changes the key, as in IMAP."""
    return f"{target}/{key.replace('/', '-')}"


def absent(trouble: Trouble) -> frozenset[str]:
    """Keys that are no longer at the source."""
    return frozenset(trouble.gone) | trouble.moved.keys()


def arrived(trouble: Trouble, folders: Sequence[FakeFolder], folder: FakeFolder) -> Mapping[str, FoundFakeMessage]:
    """The messages that were moved into this folder, by new key, with their old location."""
    moved = {moved_key(key, target): find(folders, key) for key, target in trouble.moved.items() if target == folder.name}
    return {key: found for key, found in moved.items() if found is not None}


def changes(trouble: Trouble, folder: FakeFolder) -> tuple[CopyChange, ...]:
    """The changes to messages that were in this folder."""
    gone = [CopyChange(ChangeKind.GONE, key) for key in trouble.gone if folder.find(key) is not None]
    moved = [
        CopyChange(ChangeKind.MOVED, key, folder=target, new_provider_key=moved_key(key, target))
        for key, target in trouble.moved.items()
        if folder.find(key) is not None
    ]
    relabelled = [
        CopyChange(ChangeKind.RELABELLED, key, labels=labels)
        for key, labels in trouble.relabelled.items()
        if folder.find(key) is not None
    ]
    return (*gone, *moved, *relabelled)


def digest(trouble: Trouble) -> str:
    """Identifies a set of changes; empty if there are none."""
    if not (trouble.gone or trouble.moved or trouble.relabelled):
        return ""
    described = trouble.model_dump_json(include={"gone", "moved", "relabelled"})
    return hashlib.sha256(described.encode()).hexdigest()[:12]
