"""The variants of mbox, and how each has quoted the lines that begin with `From `.

mboxrd   `>From ` means `From `, `>>From ` means `>From `, and so on, in the whole message
mboxo    `>From ` means `From ` in the body; nothing else was changed
mboxcl   the same, with a Content-Length
mboxcl2  nothing was quoted; a Content-Length says where the message ends
mbox     nothing was quoted, and nothing says where the message ends
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import Enum

from connectors import mboxrd
from connectors.files.header import header_of


class Quoting(Enum):
    NONE = "none"
    ONE = "one"
    ALL = "all"

    def undo(self, data: bytes) -> bytes:
        """Of a whole message. In a header of an mboxo `>From ` is a trace line of UUCP: its programs quote bodies only."""
        if self is Quoting.NONE or b">From " not in data:
            return data
        end = len(header_of(data)) if self is Quoting.ONE else 0
        return data[:end] + self.undo_lines(data[end:])

    def undo_lines(self, text: bytes) -> bytes:
        """Of text that begins at the beginning of a line."""
        if self is Quoting.NONE or b">From " not in text:
            return text
        if self is Quoting.ALL and b">>From " in text:
            return mboxrd.unquote(text)
        return (b"\n" + text).replace(b"\n>From ", b"\nFrom ")[1:]


@dataclass(frozen=True, slots=True)
class MboxVariant:
    name: str
    quoting: Quoting
    has_lengths: bool = False
    reason: str = ""
    """Why a file was taken for this variant."""

    def because(self, reason: str) -> MboxVariant:
        return replace(self, reason=reason)


VARIANTS = {
    "mboxo": MboxVariant("mboxo", Quoting.ONE),
    "mboxrd": MboxVariant("mboxrd", Quoting.ALL),
    "mboxcl": MboxVariant("mboxcl", Quoting.ONE, has_lengths=True),
    "mboxcl2": MboxVariant("mboxcl2", Quoting.NONE, has_lengths=True),
    "mbox": MboxVariant("mbox", Quoting.NONE),
}


def forced_variant(kind: str) -> MboxVariant | None:
    """What the user has said, if that names a variant; `mbox` alone says only that it is one."""
    return VARIANTS[kind].because("as requested") if kind in VARIANTS and kind != "mbox" else None
