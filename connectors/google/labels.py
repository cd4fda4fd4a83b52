"""Gmail's labels: which ones mean folders and flags, their names, and the rules that exclude messages by label."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from typing import Any

from connectors.selection import FolderRole, SourceSettings, date_rule, folder_rule

FOLDER = "All Mail"
"""Gmail has no folders: every message is here once, with any number of labels."""
NEW_LABEL_CHARS = 200

_ROLES = {
    "INBOX": FolderRole.INBOX,
    "SENT": FolderRole.SENT,
    "DRAFT": FolderRole.DRAFTS,
    "SPAM": FolderRole.SPAM,
    "TRASH": FolderRole.TRASH,
}
_NAMES = {
    "INBOX": "Inbox",
    "SENT": "Sent",
    "DRAFT": "Drafts",
    "SPAM": "Spam",
    "TRASH": "Trash",
    "IMPORTANT": "Important",
    "CHAT": "Chats",
    "CATEGORY_PERSONAL": "Category/Personal",
    "CATEGORY_SOCIAL": "Category/Social",
    "CATEGORY_PROMOTIONS": "Category/Promotions",
    "CATEGORY_UPDATES": "Category/Updates",
    "CATEGORY_FORUMS": "Category/Forums",
}
SYSTEM_NAMES = _NAMES
_FLAGS = {"STARRED": "\\Flagged", "DRAFT": "\\Draft"}
_NO_LABELS = frozenset({"UNREAD", "STARRED"})


def user_labels(answer: Mapping[str, Any]) -> dict[str, str]:
    """The names of user-created labels by id."""
    found = {}
    for label in answer.get("labels") or ():
        if label.get("type") != "system" and isinstance(label.get("id"), str) and isinstance(label.get("name"), str):
            found[label["id"]] = label["name"][:NEW_LABEL_CHARS]
    return found


def label_names(ids: Iterable[str], names: Mapping[str, str]) -> tuple[str, ...]:
    return tuple(sorted(names.get(one) or _NAMES.get(one) or one for one in set(ids) - _NO_LABELS))


def is_unknown(label_id: str, names: Mapping[str, str]) -> bool:
    """A label created after the names were requested."""
    return label_id not in names and label_id not in _NAMES and label_id not in _NO_LABELS and not label_id.isupper()


def flags(ids: Iterable[str]) -> tuple[str, ...]:
    present = set(ids)
    found = [flag for label, flag in _FLAGS.items() if label in present]
    return tuple(sorted(found if "UNREAD" in present else [*found, "\\Seen"]))


def received_at(about: Mapping[str, Any]) -> datetime | None:
    """Gmail's internalDate: milliseconds, as a string."""
    try:
        return datetime.fromtimestamp(int(about["internalDate"]) / 1000, UTC)
    except (KeyError, TypeError, ValueError, OverflowError, OSError):
        return None


def labels_rule(settings: SourceSettings, ids: Iterable[str], names: Mapping[str, str]) -> str | None:
    """A message is excluded if one of its labels is, or if only some labels are selected and it has none of them."""
    rules = [_rule(settings, one, names) for one in sorted(set(ids) - _NO_LABELS)]
    if settings.folders_in:
        missing = f"folders_in: {', '.join(settings.folders_in)}"
        out = next((rule for rule in rules if rule and rule.startswith("folders_out")), None)
        return out or (None if None in rules else missing)
    return next((rule for rule in rules if rule), None)


def _rule(settings: SourceSettings, label_id: str, names: Mapping[str, str]) -> str | None:
    return folder_rule(settings, label_names([label_id], names)[0], _ROLES.get(label_id))


def message_rule(settings: SourceSettings, about: Mapping[str, Any], names: Mapping[str, str]) -> str | None:
    return labels_rule(settings, about.get("labelIds") or (), names) or date_rule(settings, received_at(about))
