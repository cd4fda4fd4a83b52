"""What the builder of messages needs of an item, whatever file it is in."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from typing import Protocol

from archiver.outlook.properties import PropertySet

PROPERTY_BYTES = 64 << 20
"""A property that is larger, such as a body, is left out. Attachments are read in pieces, and may have any size."""
ORPHANED, RECOVERED = "Orphaned items", "Recovered items"
"""The folders of items that are in none."""
TO, CC, BCC = 1, 2, 3
ALL_KINDS = frozenset(range(16))
"""Of recipients. 0 is the organiser of a meeting."""
KIND_BITS = 0x0F
RECIPIENTS = 20_000
ATTACHMENTS = 5_000
DEPTH = 12
"""Messages in messages."""
PIECE_BYTES = 57 << 14
"""A multiple of 57, which gives whole lines of base64."""


class OutlookAttachment(Protocol):
    @property
    def properties(self) -> PropertySet: ...

    def pieces(self) -> Iterator[bytes]:
        """Its content, each piece but the last of PIECE_BYTES."""

    def item(self) -> OutlookItem | None:
        """The message, if one is attached."""


class OutlookItem(Protocol):
    @property
    def properties(self) -> PropertySet: ...

    def recipients(self, kinds: Collection[int] = ALL_KINDS) -> Sequence[PropertySet]:
        """Of these kinds. Empty if they can't be read, as those of an item that has none."""

    def attachments(self) -> Sequence[OutlookAttachment]: ...


class OutlookFileBroken(Exception):
    """The file, or an item in it, can't be read; the text says why."""
