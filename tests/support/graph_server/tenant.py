"""An organisation that Graph could tell about: users, groups, mailboxes, folders, messages, and what happens to them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import count
from typing import Any

from connectors.target import header_field

WELL_KNOWN = {
    "inbox": "Posteingang",
    "sentitems": "Gesendete Elemente",
    "drafts": "Entwürfe",
    "junkemail": "Junk-E-Mail",
    "deleteditems": "Gelöschte Elemente",
}
_LINE = b"This line is here only to make the message long, and it does so well.\r\n"
_LINES = _LINE * 15_000


@dataclass(slots=True)
class Message:
    number: int
    folder: str
    ordinal: int
    size: int = 0
    is_read: bool = False
    is_draft: bool = False
    categories: tuple[str, ...] = ()
    edition: int = 0
    broken: int = 0
    """The HTTP status that its download is answered with."""
    attached: bool = False
    body: str = ""
    """Instead of the usual text."""
    charset: str = "utf-8"
    raw: bytes | None = None
    """Instead of what is made up: created from MIME."""
    is_flagged: bool = False
    properties: dict[str, str] = field(default_factory=dict)

    def key(self, immutable: bool) -> str:
        """Only the immutable one survives a move."""
        return f"immutable-{self.number}" if immutable else f"{self.folder}-{self.ordinal}"


@dataclass(slots=True)
class Folder:
    id: str
    name: str
    parent: str
    hidden: bool = False
    events: list[tuple[int, int]] = field(default_factory=list)
    """(sequence, message number): something happened to this message here."""


class Mailbox:
    def __init__(self, address: str) -> None:
        self.address = address
        self.folders: dict[str, Folder] = {}
        self.messages: dict[int, Message] = {}
        self.by_folder: dict[str, dict[int, Message]] = {}
        self.folder_events: list[tuple[int, str]] = []
        self.sequence = 0
        self.oldest_sequence = 0
        """Tokens before this one are forgotten: 410."""
        self._numbers, self._ordinals = count(1), count(1)
        for name, title in WELL_KNOWN.items():
            self.add_folder(title, folder_id=f"id-{name}")

    def add_folder(self, name: str, parent: str = "root", folder_id: str = "", hidden: bool = False) -> str:
        key = folder_id or f"id-{len(self.folders)}-{self.sequence}"
        self.folders[key] = Folder(key, name, parent, hidden)
        self.by_folder[key] = {}
        self._folder_event(key)
        return key

    def rename_folder(self, folder: str, name: str, parent: str | None = None) -> None:
        self.folders[folder].name = name
        self.folders[folder].parent = parent or self.folders[folder].parent
        self._folder_event(folder)

    def remove_folder(self, folder: str) -> None:
        for message in list(self.by_folder.pop(folder).values()):
            del self.messages[message.number]
        del self.folders[folder]
        self._folder_event(folder)

    def add(self, folder: str, **more: Any) -> Message:
        message = Message(next(self._numbers), folder, next(self._ordinals), **more)
        self.messages[message.number] = message
        self.by_folder[folder][message.number] = message
        self._event(folder, message.number)
        return message

    def move(self, number: int, folder: str) -> None:
        message = self.messages[number]
        del self.by_folder[message.folder][number]
        self._event(message.folder, number)
        message.folder, message.ordinal = folder, next(self._ordinals)
        self.by_folder[folder][number] = message
        self._event(folder, number)

    def delete(self, number: int) -> None:
        message = self.messages.pop(number)
        del self.by_folder[message.folder][number]
        self._event(message.folder, number)

    def change(self, number: int, **values: Any) -> None:
        message = self.messages[number]
        for name, value in values.items():
            setattr(message, name, tuple(value) if isinstance(value, list) else value)
        self._event(message.folder, number)

    def forget(self) -> None:
        """All tokens that were given so far are lost."""
        self.sequence += 1
        self.oldest_sequence = self.sequence

    def find(self, key: str, immutable: bool) -> Message | None:
        if immutable:
            prefix, _, number = key.partition("-")
            return self.messages.get(int(number)) if prefix == "immutable" and number.isdigit() else None
        return next((message for message in self.messages.values() if message.key(False) == key), None)

    def content(self, message: Message) -> Iterator[bytes]:
        if message.raw is not None:
            yield message.raw
            return
        head = (
            f"From: sender{message.number % 7}@example.org\r\nTo: {self.address}\r\nSubject: Message {message.number}\r\n"
            f"Date: Mon, 06 Jan 2025 10:{message.number % 60:02}:00 +0000\r\nMessage-ID: <{message.number}.{self.address}>\r\n"
            f"\r\n{message.body or f'Hello {self.address}, this is number {message.number}, edition {message.edition}.'}\r\n"
        ).encode(message.charset)
        yield head
        left = message.size - len(head)
        while left > 0:
            yield _LINES[:left]
            left -= len(_LINES)

    def message_id(self, message: Message) -> str:
        head = b"".join(self.content(message))[:65536]
        return header_field(head, "Message-ID")

    def _event(self, folder: str, number: int) -> None:
        self.sequence += 1
        self.folders[folder].events.append((self.sequence, number))

    def _folder_event(self, folder: str) -> None:
        self.sequence += 1
        self.folder_events.append((self.sequence, folder))


@dataclass(slots=True)
class User:
    address: str
    name: str = ""
    kind: str = "user"
    """user, guest, disabled, unlicensed, shared, nameless (without an address)"""
    groups: tuple[str, ...] = ()
    archive: bool = False

    @property
    def id(self) -> str:
        return f"user-{self.address}"

    def as_json(self) -> dict[str, Any]:
        has_plan = self.kind in ("user", "guest")
        return {
            "id": self.id,
            "displayName": self.name or self.address.partition("@")[0].title(),
            "mail": None if self.kind == "nameless" else self.address,
            "userPrincipalName": self.address,
            "userType": "Guest" if self.kind == "guest" else "Member",
            "accountEnabled": self.kind not in ("disabled", "shared"),
            "assignedPlans": [{"service": "exchange", "capabilityStatus": "Enabled"}] if has_plan else [],
        }


class Tenant:
    def __init__(self, users: list[dict[str, Any]], messages: int, folders: list[str], size: int) -> None:
        self.users = {user["address"]: User(**{**user, "groups": tuple(user.get("groups", ()))}) for user in users}
        self.mailboxes: dict[str, Mailbox] = {}
        self.unified: list[dict[str, Any]] = []
        """Groups with a mailbox, with their threads and posts."""
        for user in self.users.values():
            if user.kind in ("user", "shared"):
                self.mailboxes[user.address] = _filled(user.address, messages, folders, size)
            if user.archive:
                self.mailboxes[f"MBX:{user.address}"] = _filled(f"old.{user.address}", messages, folders, size)

    def mailbox(self, who: str) -> Mailbox | None:
        """By id or address."""
        return self.mailboxes.get(who.removeprefix("user-").lower()) or self.mailboxes.get(who)


def _filled(address: str, messages: int, folders: list[str], size: int) -> Mailbox:
    box = Mailbox(address)
    keys = [f"id-{name}" if name in WELL_KNOWN else box.add_folder(name) for name in folders]
    for number in range(messages):
        box.add(keys[number % len(keys)], size=size, is_read=number % 2 == 0)
    return box
