"""Builds a message from a post in a group's conversation, because Graph has no MIME text of it (resource type `post`).

The same post gives the same bytes: ids and boundaries are hashes, and there is no clock.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from email.message import EmailMessage
from email.policy import SMTP
from email.utils import format_datetime, formataddr

from connectors.base import Json

_MARK = "X-Archiver-Converted-From"
_ORIGIN = "Microsoft 365 group post"
_LEFT_OUT = "X-Archiver-Left-Out"
_FILE = "#microsoft.graph.fileAttachment"
_TEXT_CHARS = 900


@dataclass(frozen=True, slots=True)
class GroupThread:
    id: str
    topic: str
    delivered_at: str
    """Of its last post; as Graph writes it, which sorts by time."""


def received_at(post: Mapping[str, Json]) -> datetime | None:
    for name in ("receivedDateTime", "createdDateTime"):
        try:
            found = datetime.fromisoformat(str(post.get(name) or "").replace("Z", "+00:00"))
        except ValueError:
            continue
        if found.tzinfo:
            return found
    return None


def build_post(post: Mapping[str, Json], thread: GroupThread, address: str, name: str) -> bytes:
    """`post` with its attachments; `address` and `name` of the group."""
    message = EmailMessage(policy=SMTP)
    message["From"] = _person(post.get("from") or post.get("sender"))
    message["To"] = formataddr((_line(name), address))
    message["Subject"] = _line(thread.topic) or "(no subject)"
    at = received_at(post)
    if at is not None:
        message["Date"] = format_datetime(at)
    domain = address.rpartition("@")[2]
    message["Message-ID"] = f"<{_digest(str(post.get('id')))}@{domain}>"
    message["References"] = f"<{_digest(thread.id)}@{domain}>"
    message[_MARK] = _ORIGIN
    given = post.get("body")
    body = given if isinstance(given, dict) else {}
    is_html = str(body.get("contentType") or "").lower() == "html"
    message.set_content(_text(body.get("content")), subtype="html" if is_html else "plain", cte="base64")
    _attach(message, [one for one in post.get("attachments") or () if isinstance(one, dict)])
    if message.is_multipart():
        message.set_boundary(f"=_{_digest(str(post.get('id')) + thread.id)}")
    return message.as_bytes()


def _attach(message: EmailMessage, attachments: Sequence[Mapping[str, Json]]) -> None:
    """What Graph returns as a file; items and links are named in a header."""
    for one in attachments:
        name = _line(str(one.get("name") or "attachment"))
        content = _decode(one.get("contentBytes")) if one.get("@odata.type") == _FILE else None
        if content is None:
            message[_LEFT_OUT] = name
            continue
        kind, _, subtype = str(one.get("contentType") or "").partition("/")
        if not (
            kind.isalnum()
            and subtype
            and subtype.isascii()
            and subtype.replace("-", "").replace(".", "").replace("+", "").isalnum()
        ):
            kind, subtype = "application", "octet-stream"
        if kind.lower() in ("message", "multipart"):
            kind, subtype = "application", "octet-stream"
        message.add_attachment(content, maintype=kind, subtype=subtype, filename=name)


def _decode(content: Json) -> bytes | None:
    try:
        return base64.b64decode(content, validate=True) if isinstance(content, str) else None
    except (binascii.Error, ValueError):
        return None


def _person(value: Json) -> str:
    found = value.get("emailAddress") if isinstance(value, dict) else None
    found = found if isinstance(found, dict) else {}
    address = _line(str(found.get("address") or "unknown@invalid")).replace(" ", "")
    return formataddr((_line(str(found.get("name") or "")), address if address.isascii() else "unknown@invalid"))


def _line(text: str) -> str:
    clean = "".join(char if char.isprintable() else " " for char in _text(text))
    return " ".join(clean.split())[:_TEXT_CHARS]


def _text(value: Json) -> str:
    return str(value or "").encode("utf-8", "replace").decode()


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8", "replace")).hexdigest()[:32]
