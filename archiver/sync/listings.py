"""What a source said about its mailboxes, and the state of the source as a whole that the next cycle begins with."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any
from uuid import UUID

from sqlalchemy import Connection, text

from archiver.db import json_text
from archiver.sync.mailboxes import Recorded

_LAST = "last_listing"
_NAMED = 20
"""So many addresses stand for all."""

_LOAD = text("SELECT sync_state -> :key FROM ingestion_sources WHERE id = :id")
_MERGE = text("UPDATE ingestion_sources SET sync_state = sync_state || CAST(:patch AS jsonb) WHERE id = :id")


@dataclass(frozen=True, slots=True)
class Listing:
    """Of one cycle. A cycle over some mailboxes only, such as those with news, is not whole."""

    at: str = ""
    mailboxes: int = 0
    waiting: int = 0
    """Those of them that failed before, and whose pause is not over."""
    new: int = 0
    gone: int = 0
    gone_addresses: list[str] = field(default_factory=list)
    retired: int = 0
    """Mailboxes whose address belongs to another one now."""
    left_out: dict[str, int] = field(default_factory=dict)
    """Mailboxes that are not archived, by the rule."""
    is_whole: bool = False
    is_doubtful: bool = False
    """The source had mailboxes, and says that it has none: more likely a right that it lacks than the end of all of them."""

    @classmethod
    def of(cls, recorded: Recorded, waiting: int, left_out: Mapping[str, int], *, is_whole: bool, is_doubtful: bool) -> Listing:
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
    def read(cls, kept: Any) -> Listing:
        """From JSON; what is not there, or was kept by another version, is left out."""
        known = kept if isinstance(kept, dict) else {}
        return cls(**{name: value for name, value in known.items() if name in cls.__dataclass_fields__})

    def overlooked(self, total: int) -> int:
        """Mailboxes that were listed, and are neither in the cycle nor waiting. There should be none."""
        return self.mailboxes - self.waiting - total


def last_of(connection: Connection, source_id: UUID) -> Listing:
    """The last listing of all mailboxes."""
    return Listing.read(connection.execute(_LOAD, {"key": _LAST, "id": source_id}).scalar())


def keep(connection: Connection, source_id: UUID, listing: Listing) -> None:
    """As the last one, with the end of its cycle."""
    if listing.is_whole and not listing.is_doubtful:
        kept = {name: getattr(listing, name) for name in ("at", "mailboxes", "new", "gone", "left_out", "is_whole")}
        connection.execute(_MERGE, {"patch": json_text({_LAST: kept}), "id": source_id})
