"""Messages as a JMAP server describes them (RFC 8621, section 4.1)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

PROPERTIES = ["id", "blobId", "mailboxIds", "keywords", "size", "receivedAt"]
_FLAGS = {"$seen": "\\Seen", "$flagged": "\\Flagged", "$answered": "\\Answered", "$draft": "\\Draft"}


@dataclass(frozen=True, slots=True)
class JmapMessage:
    key: str
    blob: str
    folders: tuple[str, ...]
    """Ids."""
    flags: tuple[str, ...]
    received_at: datetime | None


def read_messages(answer: Mapping[str, Any]) -> list[JmapMessage]:
    return [found for one in answer.get("list") or () if (found := _read(one)) is not None]


def _read(one: Any) -> JmapMessage | None:
    if not isinstance(one, dict) or not isinstance(one.get("id"), str) or not isinstance(one.get("blobId"), str):
        return None
    folders = tuple(sorted(str(key) for key, is_in in (one.get("mailboxIds") or {}).items() if is_in))
    keywords = [str(key) for key, is_set in (one.get("keywords") or {}).items() if is_set]
    flags = tuple(sorted(_FLAGS.get(key.lower(), key) for key in keywords))
    return JmapMessage(one["id"], one["blobId"], folders, flags, _date(one.get("receivedAt")))


def _date(value: Any) -> datetime | None:
    try:
        found = datetime.fromisoformat(str(value).replace("Z", "+00:00"))
    except ValueError:
        return None
    return found if found.tzinfo else None
