"""Reads messages from the packs for parsing, without loading large files that are stored as parts.

A message with a 100 MB attachment costs as little as one without: the parser sees the hash under which the archive stores the
file in place of its content.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from archiver.mail import limits
from archiver.mail.formats.tnef import is_tnef
from archiver.parsing import marks as mail_marks
from archiver.parsing.readers import MailGroup, ReadMail
from archiver.store.archive import Archive
from archiver.store.errors import LostPack
from archiver.store.frames import FrameKind
from archiver.store.pack import PackLocation
from archiver.store.reader import CachingReader, Frame
from archiver.store.recipe import Literal, PartRef, Recipe

_HEADER_BYTES = 64 << 10
_WHOLE_BYTES = 32 << 20
_CONTENT_TYPE = re.compile(rb"^content-type:[ \t\r\n]*([\w.+-]{1,80}/[\w.+-]{1,120})", re.IGNORECASE | re.MULTILINE)
_FILE_TYPES = (b"image/", b"audio/", b"video/", b"font/", b"application/")
_READ_TYPES = frozenset(  # the parser reads the content of these
    {b"application/ms-tnef", b"application/vnd.ms-tnef", b"application/pkcs7-mime", b"application/x-pkcs7-mime"}
)


@dataclass(frozen=True, slots=True)
class OpenedMail:
    """What the parser sees of a message."""

    sha256: bytes
    raw: bytes
    left_out: dict[bytes, int]
    """Files that `raw` has only as a hash: SHA-256 and length."""


class MailReader:
    """Not thread-safe. Fastest in pack order, because the last frames read are cached."""

    def __init__(self, archive: Archive) -> None:
        self._frames = archive.frames
        self._objects = CachingReader(archive.frames, archive.objects)

    def open(self, sha256: bytes, place: PackLocation | None) -> OpenedMail:
        """Raises StoreError if the bytes are damaged."""
        frame = self._open(sha256, place)
        data = frame.bytes()
        if not frame.is_recipe:
            return OpenedMail(sha256, data[: limits.MESSAGE_BYTES + 1], {})  # the parser reads no more
        recipe, at = Recipe.decode(data)
        return OpenedMail(sha256, *self._assemble(recipe, data, at))

    def read(self, group: MailGroup, opened: Sequence[OpenedMail]) -> list[ReadMail]:
        """Parses in a child process, best `message.SIDE_BY_SIDE` at once. Raises ChildFailed if a message kills the child."""
        left_out = {number: mail.left_out for number, mail in enumerate(opened) if mail.left_out}
        found, nested = group.read([mail.raw for mail in opened], left_out)
        for number in nested:
            if len(opened[number].raw) <= _WHOLE_BYTES:
                found[number] = group.read_whole(number, self._objects.read(opened[number].sha256))
        return found

    def remember(self, part: bytes, place: PackLocation) -> None:
        """Caches the location of a part, which saves a lookup."""
        self._objects.add(part, place, None)

    def part(self, sha256: bytes) -> Iterator[bytes]:
        return self._objects.stream(sha256, FrameKind.PART)

    def _open(self, sha256: bytes, place: PackLocation | None) -> Frame:
        try:
            if place is not None:
                frame = self._frames.open(place)
                if frame.sha256 == sha256:
                    return frame
        except LostPack:
            pass  # compaction has moved it
        return self._objects.open(sha256, FrameKind.MESSAGE)

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
                raw += mail_marks.mark(step.sha256)
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
