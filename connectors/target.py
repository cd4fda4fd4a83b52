"""The way back: mailboxes that mail is restored to."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Protocol

from connectors.errors import ConnectorError, Unavailable

GMAIL_FOLDER = "All Mail"
"""Mail from Gmail is in no folder: its labels say where it belongs."""
_ROLE_LABELS = {"Inbox": "INBOX", "Sent": "Sent", "Drafts": "Drafts", "Spam": "Spam", "Trash": "Trash"}
_UNNAMED_LABELS = ("Important", "Chats", "Category/")
UNLABELLED = "Archive"
_FIELD = re.compile(rb"^([!-9;-~]+)[ \t]*:(.*(?:\r?\n[ \t].*)*)", re.MULTILINE)
_HEADER_BYTES = 1 << 18


class TargetFull(Unavailable):
    """The mailbox has no room for more mail."""


class DeliveryResult(StrEnum):
    DELIVERED = "delivered"
    PRESENT = "present"
    """It was there already."""
    ABSENT = "absent"
    """It would be delivered; only in a dry run."""
    REFUSED = "refused"


@dataclass(frozen=True, slots=True)
class Outgoing:
    """A message to put into a folder (`/` between levels), with its labels."""

    id: str
    folder: str
    pieces: Callable[[], Iterator[bytes]]
    flags: tuple[str, ...] = ()
    received_at: datetime | None = None
    labels: tuple[str, ...] = ()
    sha256: str = ""
    """Of the original bytes, in hexadecimal."""
    parent: str = ""
    """The folder, or label, that everything is put below."""

    @property
    def path(self) -> str:
        return "/".join(filter(None, (self.parent, folder_of(self.folder, self.labels))))


@dataclass(frozen=True, slots=True)
class DeliveredCopy:
    """What happened to one message."""

    id: str
    result: DeliveryResult
    reason: str = ""


def read_whole(message: Outgoing) -> bytes | DeliveredCopy:
    """The bytes of a message. One that can't be read is refused with the reason, and the others continue."""
    try:
        return b"".join(message.pieces())
    except ConnectorError:
        raise
    except Exception as error:  # noqa: BLE001  (whatever the store raises: it is not known here)
        return DeliveredCopy(message.id, DeliveryResult.REFUSED, str(error) or type(error).__name__)


class MailTarget(Protocol):
    """One mailbox. Raises the errors of connectors.errors."""

    def deliver(self, messages: Iterable[Outgoing], *, dry_run: bool = False) -> Iterator[list[DeliveredCopy]]:
        """Reports every few messages, each message once. What is there already is skipped, so a run can be repeated. What the
        server refuses is reported, and the others continue."""

    def close(self) -> None: ...


class SourceTrash(Protocol):
    """One mailbox whose archived messages are moved to its trash. Raises the errors of connectors.errors."""

    def move(self, keys: Sequence[str]) -> set[str]:
        """Moves these messages, and returns the keys of those that were there. Nothing is deleted for good."""

    def close(self) -> None: ...


def folder_of(folder: str, labels: Iterable[str]) -> str:
    """Where mail belongs on a server with folders."""
    if folder != GMAIL_FOLDER:
        return folder or "INBOX"
    found = set(labels)
    role = next((name for label, name in _ROLE_LABELS.items() if label in found), None)
    own = sorted(label for label in found if not label.startswith(_UNNAMED_LABELS))
    return role or (own[0] if own else UNLABELLED)


def labels_of(folder: str, labels: Iterable[str]) -> tuple[str, ...]:
    """The labels of mail on a server without folders."""
    own = tuple(dict.fromkeys(labels))
    return own if folder == GMAIL_FOLDER else (folder or "INBOX", *own)


def header_field(data: bytes, name: str) -> str:
    """The first field of this name in the header, unfolded; empty if there is none."""
    head = re.split(rb"\r?\n\r?\n", data[:_HEADER_BYTES], maxsplit=1)[0]
    wanted = name.lower().encode()
    found = next((value for key, value in _FIELD.findall(head) if key.lower() == wanted), b"")
    return b" ".join(found.split()).decode("latin-1")


def content_digest(data: bytes) -> bytes:
    """Of a message, whatever line endings a server has made of it."""
    return hashlib.sha256(data.replace(b"\r\n", b"\n").rstrip(b"\n")).digest()
