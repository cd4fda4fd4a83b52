"""Folds the records of `history.list` into what has to be done. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass(slots=True)
class News:
    seen: dict[str, tuple[str, ...] | None] = field(default_factory=dict)
    """New messages and those with changed labels, with their current labels; None if the server does not report them."""
    gone: dict[str, None] = field(default_factory=dict)


def fold(records: Iterable[Mapping[str, Any]]) -> News:
    """The records are in chronological order; the last event of a message counts."""
    news = News()
    for record in records:
        for kind in ("messagesAdded", "labelsAdded", "labelsRemoved"):
            for item in record.get(kind) or ():
                message = item.get("message") or {}
                if message.get("id"):
                    news.gone.pop(message["id"], None)
                    news.seen.pop(message["id"], None)  # moves it to the position of its last change
                    labels = message.get("labelIds")
                    news.seen[message["id"]] = tuple(labels) if isinstance(labels, list) else None
        for item in record.get("messagesDeleted") or ():
            message = item.get("message") or {}
            if message.get("id"):
                news.seen.pop(message["id"], None)
                news.gone[message["id"]] = None
    return news
