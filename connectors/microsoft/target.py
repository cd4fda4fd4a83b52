"""Restores mail into a mailbox of Microsoft 365: created from its MIME content, then marked and moved to its folder.

Graph creates such messages in Drafts and marks them as drafts. Each is given the SHA-256 of its original as a property, so that
a repeated restore finds it, also where Exchange has changed the bytes, and one that was not moved yet is moved then.
"""

from __future__ import annotations

import base64
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from urllib.parse import quote

import orjson

from connectors.base import Json
from connectors.microsoft.folders import Tree, update
from connectors.microsoft.graph import Graph, GraphRefused, segment
from connectors.roles import role_of
from connectors.selection import FolderRole
from connectors.target import DeliveredCopy, DeliveryResult, Outgoing, TargetFull, header_field, read_whole

WRITE = "Mail.ReadWrite"
HASH_PROPERTY = "String {c1d0a6f2-2b7e-4d52-9c0e-5e3b7f6a9d14} Name ArchiverSha256"
_FULL = frozenset({"ErrorQuotaExceeded", "ErrorMailboxStoreFull"})
_CANDIDATES = 10


@dataclass(slots=True)
class GraphTarget:
    graph: Graph
    base: str
    address: str
    on_close: Callable[[], None]
    _folders: dict[str, str] = field(default_factory=dict)
    """Path → id."""
    _roles: dict[FolderRole, str] = field(default_factory=dict)

    def deliver(self, messages: Iterable[Outgoing], *, dry_run: bool = False) -> Iterator[list[DeliveredCopy]]:
        self._read_folders()
        for message in messages:
            yield [self._deliver(message, dry_run)]

    def close(self) -> None:
        self.on_close()

    def _deliver(self, message: Outgoing, dry_run: bool) -> DeliveredCopy:
        data = read_whole(message)
        if isinstance(data, DeliveredCopy):
            return data
        try:
            folder = self._find_folder(message.path)
            found = self._candidates(data, message.sha256)
            if folder and any(one.get("parentFolderId") == folder for one in found):
                return DeliveredCopy(message.id, DeliveryResult.PRESENT)
            if dry_run:
                return DeliveredCopy(message.id, DeliveryResult.ABSENT)
            folder = folder or self._create_folders(message.path)
            left = next((str(one["id"]) for one in found if _is_unfinished(one, self._roles.get(FolderRole.DRAFTS, ""))), None)
            self._put(message, data, folder, left)
        except GraphRefused as refused:
            if refused.code in _FULL:
                raise TargetFull(f"the mailbox is full: {refused}") from refused
            return DeliveredCopy(message.id, DeliveryResult.REFUSED, str(refused))
        return DeliveredCopy(message.id, DeliveryResult.DELIVERED)

    def _put(self, message: Outgoing, data: bytes, folder: str, left: str | None) -> None:
        """`left`: created by an earlier run that ended before the message was moved."""
        key = left
        if key is None:
            made = self.graph.send("POST", f"{self.base}/messages", WRITE, base64.b64encode(data), "text/plain")
            key = str(made.get("id"))
        path = f"{self.base}/messages/{segment(key)}"
        self.graph.send("PATCH", path, WRITE, orjson.dumps(_marks(message)))
        self.graph.send("POST", f"{path}/move", WRITE, orjson.dumps({"destinationId": folder}))

    def _candidates(self, data: bytes, sha256: str) -> list[Mapping[str, Json]]:
        """Messages with the same Message-ID, or with the hash that a restore has given them."""
        found = self._ask(f"singleValueExtendedProperties/Any(ep: ep/id eq '{HASH_PROPERTY}' and ep/value eq '{sha256}')")
        message_id = header_field(data, "Message-ID")
        if message_id:
            found += self._ask("internetMessageId eq '{}'".format(message_id.replace("'", "''")))
        return found

    def _ask(self, condition: str) -> list[Mapping[str, Json]]:
        expand = quote(f"singleValueExtendedProperties($filter=id eq '{HASH_PROPERTY}')", safe="$()'= ")
        query = f"$filter={quote(condition, safe='')}&$select=id,parentFolderId&$expand={expand}&$top={_CANDIDATES}"
        return list(self.graph.get(f"{self.base}/messages?{query}", WRITE, prefer='IdType="ImmutableId"').get("value") or ())

    def _read_folders(self) -> None:
        tree = update(self.graph, self.base, self.address, Tree(with_hidden=False), {}).tree
        self._folders = {folder.path: folder.id for folder in tree.folders()}
        self._roles = {role: key for key, role in tree.roles.items()}

    def _find_folder(self, path: str) -> str | None:
        """By its path, or by its role in any language."""
        role = FolderRole.INBOX if path.upper() == "INBOX" else role_of(path)
        return self._folders.get(path) or (self._roles.get(role) if role else None)

    def _create_folders(self, path: str) -> str:
        parent, known = "", ""
        for name in path.split("/"):
            known = f"{known}/{name}" if known else name
            if known not in self._folders:
                place = f"{self.base}/mailFolders" + (f"/{segment(parent)}/childFolders" if parent else "")
                made = self.graph.send("POST", place, WRITE, orjson.dumps({"displayName": name[:255]}))
                self._folders[known] = str(made.get("id"))
            parent = self._folders[known]
        return parent


def _is_unfinished(found: Mapping[str, Json], drafts: str) -> bool:
    return found.get("parentFolderId") == drafts and bool(found.get("singleValueExtendedProperties"))


def _marks(message: Outgoing) -> dict[str, Json]:
    return {
        "isRead": "\\Seen" in message.flags,
        "flag": {"flagStatus": "flagged" if "\\Flagged" in message.flags else "notFlagged"},
        "categories": [] if message.folder == "All Mail" else list(message.labels),
        "singleValueExtendedProperties": [{"id": HASH_PROPERTY, "value": message.sha256}],
    }
