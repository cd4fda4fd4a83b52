"""What the archive must hold, in plain Python: the model that the real archive is compared with."""

from __future__ import annotations

import hashlib
import random
from dataclasses import dataclass, field
from uuid import UUID

from tests.support.store_world import mail

_ATTACHMENTS = [random.Random(seed).randbytes(20_000) for seed in (7, 8)]


def content(number: int) -> bytes:
    """A message; every fourth one has an attachment that it shares with others."""
    return mail(number, attachment=_ATTACHMENTS[number % 2] if number % 4 == 0 else None)


def hash_of(number: int) -> bytes:
    return hashlib.sha256(content(number)).digest()


@dataclass
class Expected:
    """Copies by mailbox and hash: a mail that was deleted in a mailbox is deleted there under every key."""

    live: dict[tuple[UUID, bytes], set[str]] = field(default_factory=dict)
    """Acknowledged, with the provider keys that they were acknowledged under."""
    deleted: set[tuple[UUID, bytes]] = field(default_factory=set)
    attempted: set[tuple[UUID, bytes]] = field(default_factory=set)
    """Handed in by a process that was killed: may come in by itself."""
    folders: dict[tuple[UUID, str], str] = field(default_factory=dict)
    """By mailbox and provider key, of copies whose key never changed."""
    at_risk: set[bytes] = field(default_factory=set)
    """Messages whose bytes were damaged on purpose: readable, or named."""
    journal_is_whole: bool = True
    """False once a whole pack was lost, with all that it knew about copies and deletions."""

    def store(self, mailbox: UUID, key: str, sha256: bytes, folder: str) -> None:
        if (mailbox, sha256) not in self.deleted:
            self.live.setdefault((mailbox, sha256), set()).add(key)
            self.folders.setdefault((mailbox, key), folder)

    def delete(self, mailbox: UUID, sha256: bytes) -> None:
        for key in self.live.pop((mailbox, sha256), set()):
            self.folders.pop((mailbox, key), None)
        self.attempted.discard((mailbox, sha256))
        self.deleted.add((mailbox, sha256))

    def copy(self) -> Expected:
        return Expected(
            {place: set(keys) for place, keys in self.live.items()},
            set(self.deleted),
            set(self.attempted),
            dict(self.folders),
            set(self.at_risk),
            self.journal_is_whole,
        )
