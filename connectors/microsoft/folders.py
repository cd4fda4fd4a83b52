"""The folders of a mailbox: stored in the state, and updated with the changes that Graph reports."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from connectors.base import Json
from connectors.errors import Unavailable
from connectors.microsoft.cursor import folder_key, prefix, tree_key
from connectors.microsoft.graph import Graph, GraphRefused, Sub
from connectors.selection import FolderRole

MAIL = "Mail.Read"
_FIELDS = "$select=displayName,parentFolderId,isHidden,totalItemCount"
_WELL_KNOWN = {
    "inbox": FolderRole.INBOX,
    "sentitems": FolderRole.SENT,
    "archive": FolderRole.ARCHIVE,
    "drafts": FolderRole.DRAFTS,
    "junkemail": FolderRole.SPAM,
    "deleteditems": FolderRole.TRASH,
}
_RECOVERABLE_PATH = "recoverableitemsdeletions"
_OUTSIDE = "outside the tree"
"""Stands for the parent of Recoverable Items, which Graph does not list among the folders."""
_INHERITED = frozenset({FolderRole.DRAFTS, FolderRole.SPAM, FolderRole.TRASH})
_DEEPEST = 300


@dataclass(frozen=True, slots=True)
class Node:
    name: str
    parent: str
    total: int = 0
    is_hidden: bool = False

    def as_json(self) -> dict[str, Json]:
        return {"name": self.name, "parent": self.parent, "total": self.total, "hidden": self.is_hidden}


@dataclass(frozen=True, slots=True)
class GraphFolder:
    id: str
    path: str
    role: FolderRole | None
    total: int


@dataclass(slots=True)
class Tree:
    """All folders, including excluded ones, because messages move in and out of them."""

    nodes: dict[str, Node] = field(default_factory=dict)
    roles: dict[str, FolderRole] = field(default_factory=dict)
    link: str = ""
    with_hidden: bool = False

    def path(self, folder_id: str) -> str | None:
        """`Inbox/Invoices`. A slash inside a name becomes a division slash, so that paths stay unique."""
        names = [self.nodes[step].name.replace("/", "∕") for step in self._way(folder_id)]
        return "/".join(reversed(names)) or None

    def role(self, folder_id: str) -> FolderRole | None:
        """A folder inside Deleted Items was deleted too."""
        way = self._way(folder_id)
        own = self.roles.get(folder_id)
        return own or next((role for step in way if (role := self.roles.get(step)) in _INHERITED), None)

    def folders(self) -> list[GraphFolder]:
        """The folders to fetch: the inbox first, then sent mail, then by name."""
        found = [
            GraphFolder(key, self.path(key) or node.name, self.role(key), node.total)
            for key, node in self.nodes.items()
            if self.with_hidden or not any(self.nodes[step].is_hidden for step in self._way(key))
        ]
        return sorted(found, key=lambda folder: (self._order(folder), folder.path, folder.id))

    def _order(self, folder: GraphFolder) -> int:
        """Recoverable Items last: should Graph refuse them, everything else has been read."""
        if self.nodes[folder.id].parent == _OUTSIDE:
            return 3
        return {FolderRole.INBOX: 0, FolderRole.SENT: 1}.get(folder.role, 2) if folder.role else 2

    def _way(self, folder_id: str) -> list[str]:
        """The ids from a folder up to the top level."""
        way: list[str] = []
        while folder_id in self.nodes and folder_id not in way and len(way) < _DEEPEST:
            way.append(folder_id)
            folder_id = self.nodes[folder_id].parent
        return way


def read_tree(state: Mapping[str, Json], address: str, with_hidden: bool) -> Tree:
    """Without a link if there is no usable state: then all folders are requested."""
    match state.get(tree_key(address)):
        case {"link": str(link), "roles": dict(roles), "hidden": bool(hidden)} if hidden == with_hidden:
            pass
        case _:
            return Tree(with_hidden=with_hidden)
    known = {role.value: role for role in FolderRole}
    tree = Tree({}, {str(key): known[role] for key, role in roles.items() if role in known}, link, with_hidden)
    start = folder_key(address, "")
    for key, value in state.items():
        if key.startswith(start):
            match value:
                case {"name": str(name), "parent": str(parent), "total": int(total), "hidden": bool(hidden)}:
                    tree.nodes[key.removeprefix(start)] = Node(name, parent, total, hidden)
                case _:
                    return Tree(with_hidden=with_hidden)
    return tree


def start_link(base: str, with_hidden: bool) -> str:
    return f"{base}/mailFolders/delta?{_FIELDS}{'&includeHiddenFolders=true' if with_hidden else ''}"


@dataclass(frozen=True, slots=True)
class Update:
    tree: Tree
    patch: dict[str, Json]
    """The new state; None deletes a key."""
    removed: dict[str, str]
    """Folders that no longer exist: id → path."""


def update(
    graph: Graph,
    base: str,
    address: str,
    before: Tree,
    state: Mapping[str, Json],
    first: Sub | None = None,
    *,
    with_recoverable: bool = False,
) -> Update:
    """`first`: Graph's response to the tree's link, if it was already requested."""
    try:
        if not before.link:
            raise GraphRefused(410, "", "nothing is known yet")
        after, seen = _changed(graph, before, before.link, first)
    except GraphRefused as refused:
        if not refused.state_is_lost:
            raise Unavailable(f"the folders can't be listed: {refused}") from refused
        empty = Tree(with_hidden=before.with_hidden)
        try:
            after, seen = _changed(graph, empty, start_link(base, before.with_hidden), None)
        except GraphRefused as again:
            raise Unavailable(f"the folders can't be listed: {again}") from again
    if not before.link or seen - before.nodes.keys():
        after.roles = _roles(graph, base)
    _add_recoverable(graph, base, before, after, is_wanted=with_recoverable)
    return Update(after, _patch(address, state, after), _removed(before, after))


def _add_recoverable(graph: Graph, base: str, before: Tree, after: Tree, *, is_wanted: bool) -> None:
    """Once known, the folder stays in the tree, hidden if it is no longer wanted: its copies are not gone."""
    known = {key: node for key, node in before.nodes.items() if node.parent == _OUTSIDE}
    after.nodes.update({key: replace(node, is_hidden=True) for key, node in known.items()})
    if not is_wanted:
        return
    try:
        found = graph.get(f"{base}/mailFolders/{_RECOVERABLE_PATH}?$select=id,totalItemCount", MAIL)
    except GraphRefused as refused:
        if refused.status == 404:
            return
        raise Unavailable(f"Recoverable Items can't be found: {refused}") from refused
    if found.get("id"):
        after.nodes[str(found["id"])] = Node("Recoverable Items", _OUTSIDE, int(found.get("totalItemCount") or 0))


def _changed(graph: Graph, before: Tree, link: str, first: Sub | None) -> tuple[Tree, set[str]]:
    """The tree after the changes, and the folders that they named."""
    tree = Tree(dict(before.nodes), dict(before.roles), "", before.with_hidden)
    seen: set[str] = set()
    body = first.body if first and first.status == 200 else graph.get(link, MAIL)
    while True:
        for entry in body.get("value") or ():
            key = str(entry.get("id") or "")
            if not key or str(entry.get("@odata.type", "")).endswith("mailSearchFolder"):
                continue
            seen.add(key)
            if "@removed" in entry:
                tree.nodes.pop(key, None)
                continue
            old = tree.nodes.get(key, Node("", ""))
            tree.nodes[key] = Node(
                str(entry.get("displayName") or old.name or key),
                str(entry.get("parentFolderId") or old.parent),
                int(entry.get("totalItemCount", old.total) or 0),
                bool(entry.get("isHidden", old.is_hidden)),
            )
        following = body.get("@odata.nextLink")
        if not following:
            tree.link = str(body.get("@odata.deltaLink") or "")
            if not tree.link:
                raise Unavailable("Microsoft Graph returned no link to the next page of folders")
            return tree, seen
        body = graph.get(str(following), MAIL)


def _roles(graph: Graph, base: str) -> dict[str, FolderRole]:
    """Display names depend on the language; well-known names do not. A folder that a mailbox lacks returns 404."""
    paths = [f"{base}/mailFolders/{name}?$select=id" for name in _WELL_KNOWN]
    found = {}
    for path, role, answer in zip(paths, _WELL_KNOWN.values(), graph.batch(paths, MAIL), strict=True):
        body = answer.body
        if answer.status not in (200, 404):
            try:
                body = graph.get(path, MAIL)
            except GraphRefused as refused:
                if refused.status != 404:
                    raise Unavailable(f"the folders can't be listed: {refused}") from refused
        if body.get("id"):
            found[str(body["id"])] = role
    return found


def _patch(address: str, state: Mapping[str, Json], after: Tree) -> dict[str, Json]:
    wanted: dict[str, Json] = {folder_key(address, key): node.as_json() for key, node in after.nodes.items()}
    roles = {key: role.value for key, role in after.roles.items() if key in after.nodes}
    wanted[tree_key(address)] = {"link": after.link, "roles": roles, "hidden": after.with_hidden}
    patch = {key: value for key, value in wanted.items() if state.get(key) != value}
    kept = {f"{prefix(address)}{kind}:{key}" for key in after.nodes for kind in ("folder", "messages")} | {tree_key(address)}
    gone = {key: None for key in state if key.startswith(prefix(address)) and key not in kept}
    return {**patch, **gone}


def _removed(before: Tree, after: Tree) -> dict[str, str]:
    paths = {folder.path for folder in after.folders()}
    gone = {key: before.path(key) or "" for key in before.nodes.keys() - after.nodes.keys()}
    return {key: path for key, path in gone.items() if path and path not in paths}
