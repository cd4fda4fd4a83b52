"""What is inside a message: text, safe HTML and files, read from its bytes when somebody looks."""

from __future__ import annotations

import base64
from dataclasses import dataclass

from archiver.errors import NotFound, UsageError
from archiver.mail.message import Message, read_message
from archiver.mail.safe_html import safe_html
from archiver.store.archive import Archive

LARGEST_BYTES = 64 << 20
"""A larger message is not opened here: its bytes can be downloaded."""
_TEXT_CHARS = 1_000_000
_EMBEDDED_BYTES = 24 << 20
IMAGE_TYPES = frozenset({"image/png", "image/jpeg", "image/gif", "image/webp"})
"""Those that browsers draw without running anything."""


@dataclass(frozen=True, slots=True)
class FileInfo:
    number: int
    name: str
    content_type: str
    size_bytes: int
    sha256: str
    inline: bool
    content_id: str


@dataclass(frozen=True, slots=True)
class Content:
    opened: bool
    """False: the message is too large to be opened here."""
    text: str = ""
    text_is_cut: bool = False
    html: str = ""
    """Safe to show in a sandboxed frame; images of other servers are taken out."""
    blocked_images: int = 0
    links: tuple[str, ...] = ()
    """Where the links of the HTML really lead."""
    attachments: tuple[FileInfo, ...] = ()
    is_encrypted: bool = False
    is_signed: bool = False


@dataclass(frozen=True, slots=True)
class File:
    name: str
    content_type: str
    sha256: bytes
    data: bytes


def read(archive: Archive, sha256: bytes, size_bytes: int, files_at: str) -> Content:
    """`files_at` is the address below which images inside the message can be loaded by their number."""
    if size_bytes > LARGEST_BYTES:
        return Content(opened=False)
    message = read_message(archive.read(sha256))
    numbers = {file.content_id.strip("<>"): number for number, file in enumerate(message.attachments) if file.content_id}
    shown = safe_html(message.html, lambda cid: f"{files_at}/{numbers[cid]}" if cid in numbers else None)
    return Content(
        opened=True,
        text=message.text[:_TEXT_CHARS],
        text_is_cut=len(message.text) > _TEXT_CHARS,
        html=shown.html,
        blocked_images=shown.blocked_remote,
        links=shown.links,
        attachments=_files(message),
        is_encrypted=message.flags.encrypted,
        is_signed=message.flags.signed,
    )


def frame(archive: Archive, sha256: bytes, size_bytes: int, *, keep_remote: bool) -> str:
    """The HTML for a sandboxed frame that can fetch nothing from us: images that came with the mail are inside it."""
    if size_bytes > LARGEST_BYTES:
        raise UsageError("this message is too large to be opened here: download it as a whole")
    message = read_message(archive.read(sha256))
    images = {file.content_id.strip("<>"): file for file in message.attachments if file.content_id}
    left = _EMBEDDED_BYTES

    def embedded(cid: str) -> str | None:
        nonlocal left
        file = images.get(cid)
        if file is None or file.content_type not in IMAGE_TYPES or file.size_bytes > left:
            return None
        left -= file.size_bytes
        return f"data:{file.content_type};base64,{base64.b64encode(file.content).decode()}"

    return safe_html(message.html, embedded, keep_remote=keep_remote).html


def read_file(archive: Archive, sha256: bytes, size_bytes: int, number: int) -> File:
    if size_bytes > LARGEST_BYTES:
        raise UsageError("this message is too large to be opened here: download it as a whole")
    files = read_message(archive.read(sha256)).attachments
    if not 0 <= number < len(files):
        raise NotFound(f"this message has no attachment {number}")
    file = files[number]
    return File(file.name or f"attachment-{number}", file.content_type, file.sha256, file.content)


def _files(message: Message) -> tuple[FileInfo, ...]:
    return tuple(
        FileInfo(number, file.name, file.content_type, file.size_bytes, file.sha256.hex(), file.inline, file.content_id)
        for number, file in enumerate(message.attachments)
    )
