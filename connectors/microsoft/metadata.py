"""The metadata that Graph reports about a message."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime

from connectors.base import ChangeKind, CopyChange, Json

FIELDS = "$select=parentFolderId,receivedDateTime,isRead,isDraft,flag,categories,hasAttachments"
PAGE_MESSAGES = 500
PREFER = f'IdType="ImmutableId", odata.maxpagesize={PAGE_MESSAGES}'
IMMUTABLE = 'IdType="ImmutableId"'


@dataclass(frozen=True, slots=True)
class MessageMetadata:
    key: str
    folder_id: str = ""
    received_at: datetime | None = None
    flags: tuple[str, ...] | None = None
    labels: tuple[str, ...] | None = None
    is_draft: bool = False
    is_removed: bool = False
    """No longer in this folder: moved or deleted; Graph does not report which."""
    is_small: bool = False
    """Probably small: it has no attachments. Graph does not count inline images."""


def read_entry(found: Mapping[str, Json]) -> MessageMetadata | None:
    key = found.get("id")
    if not isinstance(key, str) or not key:
        return None
    if "@removed" in found:
        return MessageMetadata(key, is_removed=True)
    labels = found.get("categories")
    return MessageMetadata(
        key,
        str(found.get("parentFolderId") or ""),
        _time(found.get("receivedDateTime")),
        _flags(found),
        tuple(map(str, labels)) if isinstance(labels, list) else None,
        found.get("isDraft") is True,
        is_small=found.get("hasAttachments") is False,
    )


def read_entries(page: Mapping[str, Json]) -> list[MessageMetadata]:
    """Each message once, in its last reported state."""
    entries = [entry for found in page.get("value") or () if (entry := read_entry(found))]
    last = {entry.key: number for number, entry in enumerate(entries)}
    return [entry for number, entry in enumerate(entries) if last[entry.key] == number]


def change_of(entry: MessageMetadata, path: str) -> CopyChange:
    """The copy is here. If it was marked as gone, it is back."""
    return CopyChange(ChangeKind.BACK, entry.key, path, entry.flags, entry.labels)


def _flags(found: Mapping[str, Json]) -> tuple[str, ...] | None:
    """By their IMAP names (RFC 9051, section 2.3.2), so that all sources use the same."""
    if not isinstance(found.get("isRead"), bool):
        return None
    flag = found.get("flag")
    is_flagged = isinstance(flag, dict) and flag.get("flagStatus") == "flagged"
    flags = {"\\Seen": found["isRead"], "\\Flagged": is_flagged, "\\Draft": found.get("isDraft") is True}
    return tuple(name for name, is_set in flags.items() if is_set)


def _time(text: Json) -> datetime | None:
    try:
        at = datetime.fromisoformat(text)
    except (TypeError, ValueError):
        return None
    return at if at.tzinfo else at.replace(tzinfo=UTC)
