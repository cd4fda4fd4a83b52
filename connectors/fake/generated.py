"""Any amount of plain mail, each message generated from its number alone, without state."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime

from connectors.base import MailboxRef, RawMessage
from connectors.selection import FolderRole

_FIRST_AT = datetime(2020, 1, 1, 8, tzinfo=UTC)
_EVERY = timedelta(minutes=17)
_ROLES = {
    "inbox": FolderRole.INBOX,
    "sent": FolderRole.SENT,
    "archive": FolderRole.ARCHIVE,
    "drafts": FolderRole.DRAFTS,
    "junk": FolderRole.SPAM,
    "spam": FolderRole.SPAM,
    "trash": FolderRole.TRASH,
}
_LINES = tuple(
    f"{first} {second} {third}, and {second} {first} {third} as we said before.\r\n"
    for first in ("The order", "Your parcel", "Our offer", "This note", "The plan")
    for second in ("for the north site", "of last Tuesday", "with all annexes", "in its second draft")
    for third in ("is on its way", "waits for a signature", "has been paid", "was sent back")
)


@dataclass(frozen=True, slots=True)
class GeneratedFolder:
    """Every `step`-th message of a mailbox, starting with `first`."""

    address: str
    name: str
    first: int
    step: int
    total: int
    bytes_per_message: int
    seed: int

    @property
    def role(self) -> FolderRole | None:
        return _ROLES.get(self.name.lower())

    def count(self) -> int:
        return max(0, -(-(self.total - self.first) // self.step))

    def key(self, position: int) -> str:
        return f"{self.name}/{self.first + position * self.step}"

    def find(self, key: str) -> int | None:
        name, _, number = key.rpartition("/")
        if name != self.name or not number.isdecimal():
            return None
        position, rest = divmod(int(number) - self.first, self.step)
        return position if rest == 0 and 0 <= position < self.count() else None

    def received_at(self, position: int) -> datetime:
        return _FIRST_AT + _EVERY * (self.first + position * self.step)

    def unreadable(self, _: int) -> None:
        return None

    def message(self, position: int) -> RawMessage:
        at = self.received_at(position)
        flags = ("\\Seen",) if position % 3 else ()
        return RawMessage(self.key(position), self._bytes(position, at), folder=self.name, flags=flags, received_at=at)

    def _bytes(self, position: int, at: datetime) -> bytes:
        key = self.key(position)
        digest = hashlib.blake2b(f"{self.seed} {self.address} {key}".encode(), digest_size=12)
        number = int.from_bytes(digest.digest()[:4])
        head = (
            f"From: Colleague {number % 40} <colleague{number % 40}@example.net>\r\nTo: {self.address}\r\n"
            f"Subject: Message {key.rpartition('/')[2]}: {_LINES[number % len(_LINES)].partition(',')[0]}\r\n"
            f"Date: {format_datetime(at)}\r\nMessage-ID: <{digest.hexdigest()}@example.net>\r\n"
            "MIME-Version: 1.0\r\nContent-Type: text/plain; charset=us-ascii\r\n\r\n"
        )
        return (head + _text(number, self.bytes_per_message - len(head))).encode()


def _text(number: int, length: int) -> str:
    """Text of exactly this length, ending with a line break if there is room for one."""
    if length < 2:
        return ""
    lines = _LINES[number % len(_LINES) :] + _LINES[: number % len(_LINES)]
    text = "".join(lines)
    text *= -(-length // len(text))
    text = text[: length - 2]
    return (text[:-1] + "." if text.endswith("\r") else text) + "\r\n"


@dataclass(frozen=True, slots=True)
class GeneratedMail:
    mailboxes_count: int
    messages_per_mailbox: int
    folder_names: tuple[str, ...]
    bytes_per_message: int
    seed: int

    def mailboxes(self) -> Iterator[MailboxRef]:
        for number in range(1, self.mailboxes_count + 1):
            yield MailboxRef(f"user{number}@example.org", f"User {number}", f"id-{number}")

    def folders(self, address: str) -> tuple[GeneratedFolder, ...]:
        number = address.removeprefix("user").removesuffix("@example.org")
        if not number.isdecimal() or not 1 <= int(number) <= self.mailboxes_count:
            return ()
        return tuple(
            GeneratedFolder(
                address=address,
                name=name,
                first=first,
                step=len(self.folder_names),
                total=self.messages_per_mailbox,
                bytes_per_message=self.bytes_per_message,
                seed=self.seed,
            )
            for first, name in enumerate(self.folder_names)
        )
