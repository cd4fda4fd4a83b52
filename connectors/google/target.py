"""Restores mail into a Gmail mailbox (messages.insert), with its labels. Gmail takes the date from the Date field."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from email.utils import parsedate_to_datetime
from typing import Any

import orjson

from connectors.errors import AuthFailed
from connectors.google.api import Api, GoogleRefused
from connectors.google.labels import SYSTEM_NAMES, user_labels
from connectors.google.raw import DamagedResponse, read_message
from connectors.google.services import gmail_users
from connectors.http import read_body
from connectors.roles import role_of
from connectors.selection import FolderRole
from connectors.spool import Spool
from connectors.target import (
    GMAIL_FOLDER,
    DeliveredCopy,
    DeliveryResult,
    Outgoing,
    TargetFull,
    content_digest,
    header_field,
    labels_of,
    read_whole,
)

INSERT_COST, LIST_COST, LABEL_COST = 25.0, 5.0, 5.0
_LARGEST_BYTES = 150_000_000
_CANDIDATES = 5
_ANSWER_BYTES = 1 << 20
_UNSETTABLE = frozenset({"DRAFT", "CHAT"})
"""Labels that only Gmail itself sets."""
_ROLES = {
    FolderRole.INBOX: "INBOX",
    FolderRole.SENT: "SENT",
    FolderRole.SPAM: "SPAM",
    FolderRole.TRASH: "TRASH",
    FolderRole.DRAFTS: "DRAFT",
}
_MESSAGE_ID = re.compile(r"<([^<>\s\"]{1,900})>")
_BOUNDARY = b"archiver-3f1c9a62e07d4b58"


class LabelRefused(Exception):
    """A label that Gmail does not create."""


@dataclass(slots=True)
class GmailTarget:
    api: Api
    spool: Spool
    unit_cost: float
    """Quota units for one message that is read."""
    on_close: Callable[[], None]
    _labels: dict[str, str] = field(default_factory=dict)
    """Name → id."""

    def deliver(self, messages: Iterable[Outgoing], *, dry_run: bool = False) -> Iterator[list[DeliveredCopy]]:
        self._read_labels()
        for message in messages:
            yield [self._deliver(message, dry_run)]

    def close(self) -> None:
        self.on_close()

    def _deliver(self, message: Outgoing, dry_run: bool) -> DeliveredCopy:
        data = read_whole(message)
        if isinstance(data, DeliveredCopy):
            return data
        if len(data) > _LARGEST_BYTES:
            return DeliveredCopy(
                message.id, DeliveryResult.REFUSED, f"it has {len(data):,} bytes; Gmail accepts {_LARGEST_BYTES:,}"
            )
        try:
            if self._is_there(data, "Trash" in message.labels):
                return DeliveredCopy(message.id, DeliveryResult.PRESENT)
            if dry_run:
                return DeliveredCopy(message.id, DeliveryResult.ABSENT)
            self._insert(data, self._label_ids(message))
        except GoogleRefused as refused:
            self._raise_if_general(refused)
            return DeliveredCopy(message.id, DeliveryResult.REFUSED, str(refused))
        except LabelRefused as refused:
            return DeliveredCopy(message.id, DeliveryResult.REFUSED, str(refused))
        return DeliveredCopy(message.id, DeliveryResult.DELIVERED)

    def _raise_if_general(self, refused: GoogleRefused) -> None:
        """For a refusal that concerns every message."""
        if refused.refusal.status == 403:
            if "storage" in str(refused).lower():
                raise TargetFull(f"the account is full: {refused}") from refused
            raise AuthFailed(
                f"Gmail denies writing: {refused}. Restoring needs the scope gmail.modify (docs/restore.md)"
            ) from refused

    def _is_there(self, data: bytes, in_trash: bool) -> bool:
        request = gmail_users(self.api.base).messages().list(
            userId="me", q=search_for(data), includeSpamTrash=True, maxResults=_CANDIDATES
        )  # fmt: skip
        found = [str(one["id"]) for one in self.api.ask(request, LIST_COST).get("messages") or ()]
        wanted = content_digest(data)
        return any(self._has(one, wanted, in_trash) for one in found)

    def _has(self, message_id: str, wanted: bytes, in_trash: bool) -> bool:
        self.api.context.wait_for_turn(self.unit_cost, self.api.quotas)
        url = f"{self.api.base}/gmail/v1/users/me/messages/{message_id}?format=raw&alt=json"
        try:
            with self.api.stream(url) as response:
                found = read_message(response.iter_bytes(), self.spool)
        except DamagedResponse:
            return False
        except GoogleRefused as refused:
            if refused.refusal.status != 404:
                raise
            return False
        data = found.data
        if found.path is not None:
            data = found.path.read_bytes()
            found.path.unlink()
        is_in_trash = "TRASH" in (found.about.get("labelIds") or ())
        return content_digest(data or b"") == wanted and is_in_trash == in_trash

    def _insert(self, data: bytes, labels: list[str]) -> None:
        """Never sent twice: after a broken connection, the caller looks first whether it arrived."""
        self.api.context.wait_for_turn(INSERT_COST, self.api.quotas)
        url = f"{self.api.base}/upload/gmail/v1/users/me/messages?uploadType=multipart&internalDateSource=dateHeader"
        head = b"--%s\r\nContent-Type: application/json\r\n\r\n" % _BOUNDARY + orjson.dumps({"labelIds": labels})
        body = b"\r\n--%s\r\nContent-Type: message/rfc822\r\n\r\n" % _BOUNDARY + data + b"\r\n--%s--" % _BOUNDARY
        kind = {"Content-Type": f"multipart/related; boundary={_BOUNDARY.decode()}"}
        with self.api.stream(url, "POST", kind, head + body, once=True) as response:
            read_body(response, _ANSWER_BYTES, "the Gmail API")

    def _read_labels(self) -> None:
        try:
            answer = self.api.ask(gmail_users(self.api.base).labels().list(userId="me"), 1)
        except GoogleRefused as refused:
            self._raise_if_general(refused)
            raise AuthFailed(f"Gmail denies access: {refused}") from refused
        own = user_labels(answer)
        self._labels = {name: label for label, name in {**SYSTEM_NAMES, **own}.items()}

    def _label_ids(self, message: Outgoing) -> list[str]:
        ids = [self._label(name, message) for name in labels_of(message.folder, message.labels)]
        if message.parent:
            ids.append(self._create(message.parent))
        if "\\Seen" not in message.flags:
            ids.append("UNREAD")
        if "\\Flagged" in message.flags:
            ids.append("STARRED")
        return [one for one in dict.fromkeys(ids) if one not in _UNSETTABLE]

    def _label(self, name: str, message: Outgoing) -> str:
        """A folder for sent mail becomes Gmail's own label, in any language."""
        if message.folder != GMAIL_FOLDER and name not in self._labels:
            role = FolderRole.INBOX if name.upper() == "INBOX" else role_of(name)
            if role in _ROLES:
                return _ROLES[role]
        return self._labels.get(name) or self._create(name)

    def _create(self, name: str) -> str:
        if name not in self._labels:
            body: dict[str, Any] = {"name": name, "labelListVisibility": "labelShow", "messageListVisibility": "show"}
            try:
                answer = self.api.ask(gmail_users(self.api.base).labels().create(userId="me", body=body), LABEL_COST)
            except GoogleRefused as refused:
                self._raise_if_general(refused)
                raise LabelRefused(f"the label {name!r} can't be created: {refused}") from refused
            self._labels[name] = str(answer.get("id"))
        return self._labels[name]


def search_for(data: bytes) -> str:
    """Finds the message and few others: by its id; without one by its date; without both by its size."""
    found = _MESSAGE_ID.search(header_field(data, "Message-ID"))
    if found:
        return f"rfc822msgid:{found[1]}"
    try:
        at = int(parsedate_to_datetime(header_field(data, "Date")).timestamp())
    except (ValueError, OverflowError, OSError):
        return f"larger:{len(data) - 1} smaller:{len(data) + 1}"
    return f"after:{at - 1} before:{at + 1}"
