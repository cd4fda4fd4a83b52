"""Names of single messages in Archiver's exports: made from the SHA-256 of the bytes, so that a file can prove that it is one.

Such a file is a message as it is, whatever it begins with: a `From ` line, an empty line, or nothing at all.
"""

from __future__ import annotations

import re
from datetime import datetime
from uuid import UUID

_ID = r"[0-9a-f]{8}-[0-9a-f]{4}-8[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}"
_NAME = re.compile(rf"(?:.*/)?(?:({_ID})\.eml|-?\d+\.({_ID})\.archiver(?:[:;!]2,.*)?)")


def eml_name(message_id: UUID) -> str:
    return f"{message_id}.eml"


def maildir_name(message_id: UUID, at: datetime, flags: str) -> str:
    """`flags`: the letters of Maildir, in alphabetical order."""
    return f"{int(at.timestamp())}.{message_id}.archiver:2,{flags}"


def named_id(name: str) -> UUID | None:
    """The message's id, if the file is called as exports call theirs."""
    found = _NAME.fullmatch(name)
    return UUID(found[1] or found[2]) if found else None


def id_of(sha256: bytes) -> UUID:
    """A message's id: version 8 of RFC 9562, with 122 bits of the SHA-256."""
    value = int.from_bytes(sha256[:16])
    value = value & ~(0xF << 76) | (0x8 << 76)
    return UUID(int=value & ~(0b11 << 62) | (0b10 << 62))
