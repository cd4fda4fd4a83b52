"""Reads messages out of the packs for those who want their meaning: large files that are stored as parts stay where they are.

A message with a 100 MB attachment costs as little as one without: what stands in its place when it is parsed is the hash under
which the archive has the file.
"""

from __future__ import annotations

import base64
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from archiver.mail import limits
from archiver.mail.message import Message, read_texts
from archiver.mail.tnef import is_tnef
from archiver.store.archive import Archive
from archiver.store.errors import LostPack
from archiver.store.frames import Kind
from archiver.store.pack import Place
from archiver.store.reader import CachingReader, Frame
from archiver.store.recipe import Literal, PartRef, Recipe

_MARK = b"\0archiver part\0"  # its length is a multiple of three: it looks the same in base64 whatever follows
_ENCODED_MARK = base64.b64encode(_MARK)
_HEADER_BYTES = 64 << 10
_WHOLE_BYTES = 32 << 20
_CONTENT_TYPE = re.compile(rb"^content-type:[ \t\r\n]*([\w.+-]{1,80}/[\w.+-]{1,120})", re.IGNORECASE | re.MULTILINE)
_FILE_TYPES = (b"image/", b"audio/", b"video/", b"font/", b"application/")
_READ_TYPES = frozenset(  # the parser looks into these
    {b"application/ms-tnef", b"application/vnd.ms-tnef", b"application/pkcs7-mime", b"application/x-pkcs7-mime"}
)


@dataclass(frozen=True, slots=True)
class StoredMail:
    message: Message
    """As `read_texts` gives it."""
    parts: frozenset[bytes]
    """The SHA-256 of attachments whose content is not at hand in `message`, but as a part in the archive."""


@dataclass(frozen=True, slots=True)
class OpenedMail:
    """What the parser gets to see of a message."""

    sha256: bytes
    raw: bytes
    left_out: dict[bytes, int]
    """Files of which only the hash stands in `raw`: SHA-256 and length."""


class MailReader:
    """For one thread, and best used in pack order: what was read last is kept."""

    def __init__(self, archive: Archive) -> None:
        self._frames = archive.frames
        self._objects = CachingReader(archive.frames, archive.objects)

    def open(self, sha256: bytes, place: Place | None) -> OpenedMail:
        """Raises StoreError if the bytes are not what they were."""
        frame = self._open(sha256, place)
        data = frame.bytes()
        if not frame.is_recipe:
            return OpenedMail(sha256, data[: limits.MESSAGE_BYTES + 1], {})  # the parser reads no more
        recipe, at = Recipe.decode(data)
        return OpenedMail(sha256, *self._assemble(recipe, data, at))

    def parse(self, opened: Sequence[OpenedMail]) -> list[StoredMail]:
        """Best done for `message.SIDE_BY_SIDE` at once."""
        messages = read_texts([mail.raw for mail in opened])
        return [self._stored(mail, message) for mail, message in zip(opened, messages, strict=True)]

    def _stored(self, mail: OpenedMail, message: Message) -> StoredMail:
        if mail.left_out and len(mail.raw) <= _WHOLE_BYTES and _holds_nested(message):
            whole = self._objects.read(mail.sha256)  # its hash is that of all its bytes
            return StoredMail(read_texts([whole])[0], frozenset())
        return _with_parts(message, mail.left_out)

    def remember(self, part: bytes, place: Place) -> None:
        """Where a part lies, so that it need not be looked for."""
        self._objects.keep(part, place, None)

    def part(self, sha256: bytes) -> Iterator[bytes]:
        return self._objects.stream(sha256, Kind.PART)

    def _open(self, sha256: bytes, place: Place | None) -> Frame:
        try:
            if place is not None:
                frame = self._frames.open(place)
                if frame.sha256 == sha256:
                    return frame
        except LostPack:
            pass  # compaction has moved it
        return self._objects.open(sha256, Kind.MESSAGE)

    def _assemble(self, recipe: Recipe, data: bytes, at: int) -> tuple[bytes, dict[bytes, int]]:
        raw = bytearray()
        left_out: dict[bytes, int] = {}
        for step in recipe.steps:
            if len(raw) > limits.MESSAGE_BYTES:
                break
            if isinstance(step, Literal):
                raw += data[at : at + step.length]
                at += step.length
            elif self._is_file(step, raw):
                left_out[step.sha256] = step.length
                raw += base64.b64encode(_MARK + step.sha256)
            else:
                for piece in self._objects.part(step):
                    raw += piece
        return bytes(raw), left_out

    def _is_file(self, part: PartRef, before: bytearray) -> bool:
        """Whether the parser has no use for what is in the part."""
        if part.lines is None:
            return False
        header = bytes(before[max(before.rfind(b"\n--"), len(before) - _HEADER_BYTES, 0) :])
        kinds = _CONTENT_TYPE.findall(header)
        kind = kinds[-1].lower() if kinds else b""
        if not kind.startswith(_FILE_TYPES) or kind in _READ_TYPES:
            return False
        return kind != b"application/octet-stream" or not is_tnef(next(self.part(part.sha256), b""))


def _holds_nested(message: Message) -> bool:
    return any(_ENCODED_MARK in attachment.content for attachment in message.attachments if attachment.is_message)


def _with_parts(message: Message, left_out: dict[bytes, int]) -> StoredMail:
    if not left_out:
        return StoredMail(message, frozenset())
    attachments = []
    parts = set()
    for attachment in message.attachments:
        content = attachment.content if not attachment.is_message and attachment.part is not None else b""
        sha256 = content[len(_MARK) :]
        if content.startswith(_MARK) and sha256 in left_out:
            attachment = replace(attachment, measured=(left_out[sha256], sha256))
            parts.add(sha256)
        attachments.append(attachment)
    return StoredMail(replace(message, attachments=tuple(attachments)), frozenset(parts))
