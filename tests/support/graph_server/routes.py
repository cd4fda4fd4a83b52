"""What Graph answers to each request, when nothing is wrong with it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import parse_qs, quote, unquote

from tests.support.graph_server.tenant import WELL_KNOWN, Folder, Mailbox, Message, Tenant
from tests.support.graph_server.writing import find, write


@dataclass(slots=True)
class Asked:
    method: str
    path: str
    query: str
    headers: dict[str, str]
    body: bytes
    claims: dict[str, Any] = field(default_factory=dict)
    id: str = ""
    """Within a batch."""
    steps: list[str] = field(init=False)

    def __post_init__(self) -> None:
        self.steps = [unquote(step) if "%" in step else step for step in self.path.strip("/").split("/")][1:]

    @property
    def mailbox(self) -> str:
        steps = self.steps
        if steps[0] == "me":
            return str(self.claims.get("upn", "me"))
        return steps[1] if steps[0] == "users" and len(steps) > 2 else ""

    @property
    def kind(self) -> str:
        steps = self.steps
        if steps[0] == "$batch":
            return "batch"
        tail = steps[1:] if steps[0] == "me" else steps[2:] if steps[0] == "users" else steps
        match tail:
            case []:
                return "users" if steps[0] == "users" else "me"
            case ["messages", _, "$value"]:
                return "value"
            case ["messages", _]:
                return "message"
            case ["messages", _, "move"]:
                return "move"
            case ["mailFolders", "delta"]:
                return "folders"
            case ["mailFolders", _]:
                return "folder"
            case ["mailFolders", _, "messages", "delta"]:
                return "delta"
            case ["mailFolders", _, "messages"]:
                return "ids"
        return tail[0]

    @property
    def immutable(self) -> bool:
        return 'IdType="ImmutableId"' in self.headers.get("prefer", "")

    @property
    def values(self) -> dict[str, str]:
        return {key: found[0] for key, found in parse_qs(self.query).items()}


@dataclass(slots=True)
class Answer:
    status: int
    body: Any = None
    chunks: Iterator[bytes] | None = None


def _refused(status: int, code: str) -> Answer:
    return Answer(status, {"error": {"code": code, "message": f"{code} it is"}})


class Routes:
    def __init__(self, url: str, tenant: Tenant, most_per_page: int) -> None:
        self._url, self._tenant, self._most = url, tenant, most_per_page

    def answer(self, asked: Asked) -> Answer:
        steps = asked.steps
        match steps:
            case ["users"]:
                return self._users(asked)
            case ["groups"] if "Unified" in asked.query:
                shown = [{name: group[name] for name in ("id", "displayName", "mail")} for group in self._tenant.unified]
                return Answer(200, {"value": shown})
            case ["groups", group, "threads", *more]:
                return self._threads(asked, group, more)
            case ["groups"]:
                wanted = asked.values.get("$filter", "").partition("'")[2].partition("'")[0]
                names = sorted({group for user in self._tenant.users.values() for group in user.groups if group == wanted})
                return Answer(200, {"value": [{"id": f"group-{name}"} for name in names]})
            case ["groups", group, "transitiveMembers", _]:
                inside = [user for user in self._tenant.users.values() if group.removeprefix("group-") in user.groups]
                return Answer(200, {"value": [{"id": user.id} for user in inside]})
            case ["users", who, "settings", "exchange"]:
                user = self._tenant.users[who.removeprefix("user-")]
                return Answer(200, {"inPlaceArchiveMailboxId": f"MBX:{user.address}" if user.archive else None})
            case ["me"]:
                user = self._tenant.users[asked.claims["upn"]]
                return Answer(200, user.as_json())
            case ["me", *rest]:
                return self._mailbox(asked, self._tenant.mailbox(asked.claims["upn"]), rest)
            case ["users", who, "mailboxSettings", "userPurpose"]:
                found = self._tenant.users[who.removeprefix("user-")]
                if found.kind not in ("user", "shared"):
                    return _refused(404, "MailboxNotEnabledForRESTAPI")
                return Answer(200, {"value": found.kind})
            case ["users", who, *rest]:
                return self._mailbox(asked, self._tenant.mailbox(who), rest)
        return _refused(400, "BadRequest")

    def _threads(self, asked: Asked, group: str, steps: list[str]) -> Answer:
        """Posts come without their attachments, unless they are expanded."""
        if "Group-Conversation.Read.All" not in asked.claims.get("roles", ()):
            return _refused(403, "Authorization_RequestDenied")
        found = next((one for one in self._tenant.unified if one["id"] == group), None)
        if found is None:
            return _refused(404, "Request_ResourceNotFound")
        if not steps:
            return Answer(200, {"value": [_without(thread, "posts") for thread in found["threads"]]})
        thread = next((one for one in found["threads"] if one["id"] == steps[0]), None)
        if thread is None:
            return _refused(404, "ErrorItemNotFound")
        match steps[1:]:
            case []:
                return Answer(200, _without(thread, "posts"))
            case ["posts"]:
                return Answer(200, {"value": [_without(post, "attachments") for post in thread["posts"]]})
            case ["posts", key]:
                post = next((one for one in thread["posts"] if one["id"] == key), None)
                return _refused(404, "ErrorItemNotFound") if post is None else Answer(200, post)
        return _refused(400, "BadRequest")

    def _users(self, asked: Asked) -> Answer:
        users, values = list(self._tenant.users.values()), asked.values
        start, most = int(values.get("$skiptoken", 0)), min(self._most, int(values.get("$top", 100)))
        page: dict[str, Any] = {"value": [user.as_json() for user in users[start : start + most]]}
        if start + most < len(users):
            page["@odata.nextLink"] = f"{self._url}/v1.0/users?$top={most}&$skiptoken={start + most}"
        return Answer(200, page)

    def _mailbox(self, asked: Asked, box: Mailbox | None, steps: list[str]) -> Answer:
        if box is None:
            return _refused(404, "ErrorInvalidUser")
        if asked.method != "GET":
            if "Mail.ReadWrite" not in {*asked.claims.get("roles", ()), *asked.claims.get("scp", "").split()}:
                return _refused(403, "ErrorAccessDenied")
            status, body = write(box, asked.method, steps, asked.headers.get("content-type", ""), asked.body)
            return Answer(status, body)
        match steps:
            case ["messages"]:
                return Answer(200, {"value": find(box, asked.values["$filter"])})
            case ["mailFolders", "delta"]:
                return self._folder_delta(asked, box)
            case ["mailFolders", name] if name in (*WELL_KNOWN, "archive", "recoverableitemsdeletions"):
                if f"id-{name}" not in box.folders:
                    return _refused(404, "ErrorItemNotFound")
                return Answer(200, {"id": f"id-{name}", "totalItemCount": len(box.by_folder[f"id-{name}"])})
            case ["mailFolders", folder, "messages", *more]:
                if folder not in box.folders:
                    return _refused(404, "ErrorItemNotFound")
                return self._delta(asked, box, box.folders[folder]) if more else self._ids(asked, box, folder)
            case ["messages", key, *more]:
                message = box.find(key, asked.immutable)
                if message is None:
                    return _refused(404, "ErrorItemNotFound")
                if message.broken and more:
                    return _refused(message.broken, "ErrorMimeContentConversionFailed")
                return Answer(200, None, box.content(message)) if more else Answer(200, _shown(message, asked.immutable))
        return _refused(400, "BadRequest")

    def _folder_delta(self, asked: Asked, box: Mailbox) -> Answer:
        since = int(asked.values.get("$deltatoken", -1))
        if 0 <= since < box.oldest_sequence:
            return _refused(410, "SyncStateNotFound")
        hidden = "includeHiddenFolders=true" in asked.query
        names = dict.fromkeys(key for sequence, key in box.folder_events if sequence > since)
        value: list[dict[str, Any]] = []
        for key in names:
            folder = box.folders.get(key)
            if folder is None:
                value += [{"id": key, "@removed": {"reason": "deleted"}}] if since >= 0 else []
            elif (hidden or not folder.hidden) and folder.parent != "outside":
                value.append(
                    {
                        "id": key,
                        "displayName": folder.name,
                        "parentFolderId": folder.parent,
                        "isHidden": folder.hidden,
                        "totalItemCount": len(box.by_folder[key]),
                    }
                )
        last = max((sequence for sequence, _ in box.folder_events), default=0)
        more = "&includeHiddenFolders=true" if hidden else ""
        link = f"{self._url}{asked.path}?$deltatoken={max(last, box.oldest_sequence)}{more}"
        return Answer(200, {"value": value, "@odata.deltaLink": link})

    def _delta(self, asked: Asked, box: Mailbox, folder: Folder) -> Answer:
        """A token says: since when, what was the newest when the round began, and after which entry this page begins."""
        values = asked.values
        most = min(self._most, int(asked.headers.get("prefer", "").partition("maxpagesize=")[2] or 10))
        newest = max((sequence for sequence, _ in folder.events), default=0)
        since, until, after = json.loads(values.get("$token", f"[-1, {max(newest, box.oldest_sequence)}, 0]"))
        if 0 <= since < box.oldest_sequence or until < box.oldest_sequence:
            return _refused(410, "resyncRequired")
        if after == 0 and since >= 0:
            until = max(newest, until)
        value, last = self._entries(asked, box, folder, since, after, most)
        token = [since, until, last] if last else [until, until, 0]
        order = f"&$orderby={quote(values['$orderby'])}" if "$orderby" in values and last else ""
        link = f"{self._url}{asked.path}?$token={quote(json.dumps(token))}{order}"
        return Answer(200, {"value": value, "@odata.nextLink" if last else "@odata.deltaLink": link})

    def _entries(
        self, asked: Asked, box: Mailbox, folder: Folder, since: int, after: int, most: int
    ) -> tuple[list[dict[str, Any]], int]:
        """One page, and where the next one begins (0: there is none)."""
        if since < 0:
            in_order = _newest_first if asked.values.get("$orderby") == "receivedDateTime desc" else _by_ordinal
            found = [message for message in box.by_folder[folder.id].values() if in_order(message) > after]
            page = sorted(found, key=in_order)
            last = in_order(page[most - 1]) if len(page) > most else 0
            return [_shown(message, asked.immutable) for message in page[:most]], last
        events = [(sequence, number) for sequence, number in folder.events if sequence > max(since, after)]
        last = events[most - 1][0] if len(events) > most else 0
        value = []
        for number in dict.fromkeys(number for _, number in events[:most]):
            message = box.by_folder[folder.id].get(number)
            shown = (
                _shown(message, asked.immutable)
                if message
                else {"id": f"immutable-{number}", "@removed": {"reason": "deleted"}}
            )
            value.append(shown)
        return value, last

    def _ids(self, asked: Asked, box: Mailbox, folder: str) -> Answer:
        start, most = int(asked.values.get("$skip", 0)), min(self._most, int(asked.values.get("$top", 10)))
        found = list(box.by_folder[folder].values())
        page: dict[str, Any] = {"value": [_shown(message, asked.immutable) for message in found[start : start + most]]}
        if start + most < len(found):
            page["@odata.nextLink"] = f"{self._url}{asked.path}?$top={most}&$skip={start + most}"
        return Answer(200, page)


def _without(found: dict[str, Any], name: str) -> dict[str, Any]:
    return {key: value for key, value in found.items() if key != name}


def _by_ordinal(message: Message) -> int:
    return message.ordinal


def _newest_first(message: Message) -> int:
    """Rises from the newest to the oldest."""
    return (29 - _day(message)) * 10**9 - message.ordinal


def _day(message: Message) -> int:
    return message.number % 28 + 1


def _shown(message: Message, immutable: bool) -> dict[str, Any]:
    return {
        "id": message.key(immutable),
        "parentFolderId": message.folder,
        "receivedDateTime": f"2025-01-{_day(message):02}T10:00:00Z",
        "isRead": message.is_read,
        "isDraft": message.is_draft,
        "flag": {"flagStatus": "flagged" if message.is_flagged else "notFlagged"},
        "categories": list(message.categories),
        "hasAttachments": message.attached,
    }
