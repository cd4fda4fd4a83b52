"""The files of a message: attached parts, and files inside parts (uuencode, yEnc, TNEF)."""

import hashlib
import re
from dataclasses import dataclass, field
from functools import cached_property

from archiver.mail.defects import Defects
from archiver.mail.parts import MimePart

_NAME_CHARS = 255
_UNSAFE = re.compile(r"[\x00-\x1f\x7f\u202a-\u202e\u2066-\u2069]")


@dataclass(frozen=True)
class Attachment:
    """A file. It is decoded when its content, size or hash is requested.

    `position` is its position in the structure: "2.1", or "2/1" for the first file inside part 2.
    """

    name: str
    content_type: str
    position: str
    inline: bool
    content_id: str
    is_message: bool  # a mail inside the mail: its text and files are already part of the outer one
    wrapped: bytes | None = field(default=None, repr=False, compare=False)
    part: MimePart | None = field(default=None, repr=False, compare=False)
    measured: tuple[int, bytes] | None = field(default=None, repr=False, compare=False)
    """Size and SHA-256 if they are known although the content was not read."""

    @property
    def content(self) -> bytes:
        if self.wrapped is not None:
            return self.wrapped
        return self.part.content(Defects()) if self.part is not None else b""

    @property
    def size_bytes(self) -> int:
        return self._size_and_hash[0]

    @property
    def sha256(self) -> bytes:
        return self._size_and_hash[1]

    @cached_property
    def _size_and_hash(self) -> tuple[int, bytes]:
        if self.measured is not None:
            return self.measured
        content = self.content
        return len(content), hashlib.sha256(content).digest()


def attachment_of(part: MimePart, *, name: str = "", is_message: bool = False) -> Attachment:
    position = ".".join(map(str, part.path)) or "1"
    return Attachment(
        name=clean_name(part.filename or name),
        content_type=part.content_type.value,
        position=position,
        inline=_is_inline(part),
        content_id=part.content_id,
        is_message=is_message,
        part=part,
    )


def wrapped_file(part: MimePart, number: int, name: str, content: bytes) -> Attachment:
    position = ".".join(map(str, part.path)) or "1"
    return Attachment(
        name=clean_name(name),
        content_type="application/octet-stream",
        position=f"{position}/{number}",
        inline=False,
        content_id="",
        is_message=False,
        wrapped=content,
    )


def clean_name(name: str) -> str:
    """The last component of a path, without control characters and the direction marks that disguise a name (`exe.gpj`)."""
    name = _UNSAFE.sub("", name).replace("\\", "/").rstrip("/").rpartition("/")[2].strip()
    if len(name) <= _NAME_CHARS:
        return name
    stem, dot, suffix = name.rpartition(".")
    return f"{stem[: _NAME_CHARS - 20]}{dot}{suffix[:19]}" if dot else name[:_NAME_CHARS]


def _is_inline(part: MimePart) -> bool:
    disposition = part.disposition.value
    if disposition == "attachment":
        return False
    if part.content_type.value in ("application/pgp-signature", "application/pkcs7-signature", "application/x-pkcs7-signature"):
        return True
    return disposition == "inline" or (bool(part.content_id) and not disposition)
