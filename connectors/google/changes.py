"""What `history.list` tells, folded into what has to be done. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass(slots=True)
class News:
    seen: dict[str, tuple[str, ...] | None] = field(default_factory=dict)
    """Messages that came or whose labels changed, with their labels as they are now; None where the server does not say."""
    gone: dict[str, None] = field(default_factory=dict)


def fold(records: Iterable[Mapping[str, Any]]) -> News:
    """The records come in the order in which things happened; what happened last counts."""
    news = News()
    for record in records:
        for kind in ("messagesAdded", "labelsAdded", "labelsRemoved"):
            for item in record.get(kind) or ():
                message = item.get("message") or {}
                if message.get("id"):
                    news.gone.pop(message["id"], None)
                    news.seen.pop(message["id"], None)  # its place is that of the last change
                    labels = message.get("labelIds")
                    news.seen[message["id"]] = tuple(labels) if isinstance(labels, list) else None
        for item in record.get("messagesDeleted") or ():
            message = item.get("message") or {}
            if message.get("id"):
                news.seen.pop(message["id"], None)
                news.gone[message["id"]] = None
    return news
