"""The mailboxes of an account, which we call folders: their paths and roles (RFC 8621, section 2)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from connectors.selection import FolderRole, SourceSettings, folder_rule

_ROLES = {
    "inbox": FolderRole.INBOX,
    "sent": FolderRole.SENT,
    "archive": FolderRole.ARCHIVE,
    "drafts": FolderRole.DRAFTS,
    "junk": FolderRole.SPAM,
    "trash": FolderRole.TRASH,
}
_NAME_CHARS = 400
_DEPTH = 100
NOWHERE = "(no folder)"
"""For a message that is in none of the folders that we know."""


@dataclass(frozen=True, slots=True)
class JmapFolders:
    paths: Mapping[str, str]
    """By id: `/` between levels, INBOX for the inbox."""
    roles: Mapping[str, FolderRole]
    total: int = 0
    """Messages in all of them together; one in two of them counts twice."""

    def place(self, ids: Sequence[str]) -> tuple[str, tuple[str, ...]]:
        """The folder of a message, and, if it is in several, all of them as its labels."""
        found = sorted((one not in self.roles, self.paths[one]) for one in ids if one in self.paths)
        names = [path for _, path in found]
        return (names[0] if names else NOWHERE), tuple(sorted(names)) if len(names) > 1 else ()

    def rule(self, settings: SourceSettings, ids: Sequence[str]) -> str | None:
        """A message is excluded if all of its folders are."""
        rules = [folder_rule(settings, self.paths[one], self._role(one)) for one in sorted(ids) if one in self.paths]
        return None if not rules or None in rules else rules[0]

    def _role(self, one: str) -> FolderRole | None:
        """Folders below spam or trash are spam or trash as well."""
        own = self.roles.get(one)
        above = [role for key, role in self.roles.items() if self.paths[one].startswith(f"{self.paths[key]}/")]
        return own or next((role for role in above if role in (FolderRole.SPAM, FolderRole.TRASH)), None)


def read_folders(answer: Mapping[str, Any]) -> JmapFolders:
    nodes: dict[str, tuple[str, str | None]] = {}
    roles: dict[str, FolderRole] = {}
    total = 0
    for one in answer.get("list") or ():
        if not isinstance(one, dict) or not isinstance(one.get("id"), str):
            continue
        name, parent = str(one.get("name") or one["id"])[:_NAME_CHARS], one.get("parentId")
        role = _ROLES.get(str(one.get("role") or "").lower())
        nodes[one["id"]] = ("INBOX" if role is FolderRole.INBOX else name, parent if isinstance(parent, str) else None)
        if role:
            roles[one["id"]] = role
        total += one["totalEmails"] if isinstance(one.get("totalEmails"), int) else 0
    return JmapFolders(_distinct({key: _path(nodes, key) for key in nodes}), roles, total)


def _path(nodes: Mapping[str, tuple[str, str | None]], key: str) -> str:
    names: list[str] = []
    at: str | None = key
    while at is not None and at in nodes and len(names) < _DEPTH:
        name, at = nodes[at]
        names.append(name)
    return "/".join(reversed(names))


def _distinct(paths: Mapping[str, str]) -> dict[str, str]:
    """Two folders with one path, as `a/b` and `b` in `a`, are told apart by their ids."""
    taken: set[str] = set()
    found = {}
    for key, path in sorted(paths.items()):
        found[key] = path if path not in taken else f"{path} ({key})"
        taken.add(found[key])
    return found
