"""Placeholders for large files in a message: the hash under which the archive stores the file."""

from __future__ import annotations

import base64
from dataclasses import replace

from archiver.mail.message import Message

_MARK = b"\0archiver part\0"  # its length is a multiple of three, so its base64 form does not depend on what follows
_ENCODED_MARK = base64.b64encode(_MARK)


def mark(sha256: bytes) -> bytes:
    return base64.b64encode(_MARK + sha256)


def holds_nested(message: Message) -> bool:
    """Whether a file was left out of a nested mail, whose own hash covers all its bytes."""
    return any(_ENCODED_MARK in attachment.content for attachment in message.attachments if attachment.is_message)


def with_parts(message: Message, left_out: dict[bytes, int]) -> Message:
    """Adds size and hash of the omitted files, found by their SHA-256."""
    if not left_out:
        return message
    attachments = []
    for attachment in message.attachments:
        content = attachment.content if not attachment.is_message and attachment.part is not None else b""
        sha256 = content[len(_MARK) :]
        if content.startswith(_MARK) and sha256 in left_out:
            attachment = replace(attachment, measured=(left_out[sha256], sha256))
        attachments.append(attachment)
    return replace(message, attachments=tuple(attachments))
