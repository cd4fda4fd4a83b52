"""What a source reported about its mailboxes, and the last full listing, which the next cycle compares with."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any
from uuid import UUID

from sqlalchemy import Connection, text

from archiver.db.values import json_text
from archiver.sync.mailboxes import Recorded

_LAST = "last_listing"
_NAMED = 20
"""How many addresses are stored as examples."""

_LOAD = text("SELECT sync_state -> :key FROM ingestion_sources WHERE id = :id")
_MERGE = text("UPDATE ingestion_sources SET sync_state = sync_state || CAST(:patch AS jsonb) WHERE id = :id")


@dataclass(frozen=True, slots=True)
class CycleListing:
    """The mailbox listing of one cycle. A cycle over some mailboxes, such as those with new mail, is not whole."""

    at: str = ""
    mailboxes: int = 0
    waiting: int = 0
    """How many of them failed earlier and are still in their pause."""
    new: int = 0
    gone: int = 0
    gone_addresses: list[str] = field(default_factory=list)
    retired: int = 0
    """Mailboxes whose address now belongs to another mailbox."""
    left_out: dict[str, int] = field(default_factory=dict)
    """Number of mailboxes that are not archived, by rule."""
    is_whole: bool = False
    is_doubtful: bool = False
    """The source had mailboxes and now reports none: more likely a missing permission than the deletion of all of them."""

    @classmethod
    def of(
        cls, recorded: Recorded, waiting: int, left_out: Mapping[str, int], *, is_whole: bool, is_doubtful: bool
    ) -> CycleListing:
        gone = [*recorded.retired, *recorded.gone]
        return cls(
            datetime.now(UTC).isoformat(timespec="seconds"),
            len(recorded.ids),
            waiting,
            recorded.new,
            len(gone),
            gone[:_NAMED],
            len(recorded.retired),
            dict(left_out),
            is_whole,
            is_doubtful,
        )

    @classmethod
    def read(cls, kept: Any) -> CycleListing:
        """From JSON; fields that are missing or unknown to this version are ignored."""
        known = kept if isinstance(kept, dict) else {}
        return cls(**{name: value for name, value in known.items() if name in cls.__dataclass_fields__})

    def overlooked(self, total: int) -> int:
        """Mailboxes that were listed but are neither in the cycle nor waiting. There should be none."""
        return self.mailboxes - self.waiting - total


def load_last(connection: Connection, source_id: UUID) -> CycleListing:
    """The last whole listing of the source."""
    return CycleListing.read(connection.execute(_LOAD, {"key": _LAST, "id": source_id}).scalar())


def store_last(connection: Connection, source_id: UUID, listing: CycleListing) -> None:
    """Stores a whole listing as the source's last one, when its cycle ends."""
    if listing.is_whole and not listing.is_doubtful:
        kept = {name: getattr(listing, name) for name in ("at", "mailboxes", "new", "gone", "left_out", "is_whole")}
        connection.execute(_MERGE, {"patch": json_text({_LAST: kept}), "id": source_id})
