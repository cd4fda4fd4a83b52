"""What Graph does when it is written to. A message created from MIME is a draft in Drafts, and stays one, as in Exchange."""

from __future__ import annotations

import base64
import json
import re
from typing import Any

from tests.support.graph_server.tenant import WELL_KNOWN, Mailbox, Message


def write(box: Mailbox, method: str, steps: list[str], kind: str, body: bytes) -> tuple[int, Any]:
    match method, steps:
        case "POST", ["messages"]:
            return _create(box, kind, body)
        case "POST", ["mailFolders"]:
            return _create_folder(box, json.loads(body)["displayName"], "root")
        case "POST", ["mailFolders", parent, "childFolders"]:
            return _create_folder(box, json.loads(body)["displayName"], parent)
        case "PATCH", ["messages", key]:
            return _change(box, key, json.loads(body))
        case "POST", ["messages", key, "move"]:
            return _move(box, key, json.loads(body)["destinationId"])
    return _refusal(400, "BadRequest")


def find(box: Mailbox, condition: str) -> list[dict[str, Any]]:
    by_id = re.fullmatch(r"internetMessageId eq '(.*)'", condition)
    by_property = re.fullmatch(r"singleValueExtendedProperties/Any\(ep: ep/id eq '(.*)' and ep/value eq '(.*)'\)", condition)
    assert by_id or by_property, condition
    found = []
    for message in box.messages.values():
        if by_property and message.properties.get(by_property[1]) != by_property[2]:
            continue
        if by_id and box.message_id(message) != by_id[1].replace("''", "'"):
            continue
        properties = [{"id": key, "value": value} for key, value in message.properties.items()]
        found.append({"id": message.key(True), "parentFolderId": message.folder, "singleValueExtendedProperties": properties})
    return found


def _create(box: Mailbox, kind: str, body: bytes) -> tuple[int, Any]:
    if kind != "text/plain":
        return _refusal(415, "UnsupportedMediaType")
    raw = base64.b64decode(body, validate=True)
    if b"X-Refuse: yes" in raw:
        return _refusal(400, "ErrorInvalidRecipients")
    if b"X-Full: yes" in raw:
        return _refusal(507, "ErrorQuotaExceeded")
    message = box.add("id-drafts", raw=raw, is_draft=True)
    return 201, {"id": message.key(True), "parentFolderId": message.folder}


def _create_folder(box: Mailbox, name: str, parent: str) -> tuple[int, Any]:
    if any(folder.name == name and folder.parent == parent for folder in box.folders.values()):
        return _refusal(409, "ErrorFolderExists")
    return 201, {"id": box.add_folder(name, parent)}


def _change(box: Mailbox, key: str, values: dict[str, Any]) -> tuple[int, Any]:
    message = box.find(key, True)
    if message is None:
        return _refusal(404, "ErrorItemNotFound")
    message.properties |= {one["id"]: one["value"] for one in values.get("singleValueExtendedProperties", ())}
    box.change(
        message.number,
        is_read=values.get("isRead", message.is_read),
        categories=list(values.get("categories", message.categories)),
        is_flagged=values.get("flag", {}).get("flagStatus") == "flagged",
    )
    return 200, {"id": key}


def _move(box: Mailbox, key: str, folder: str) -> tuple[int, Any]:
    message: Message | None = box.find(key, True)
    target = f"id-{folder}" if folder in WELL_KNOWN else folder
    if message is None or target not in box.folders:
        return _refusal(404, "ErrorItemNotFound")
    box.move(message.number, target)
    return 201, {"id": message.key(True), "parentFolderId": target}


def _refusal(status: int, code: str) -> tuple[int, Any]:
    return status, {"error": {"code": code, "message": f"{code} it is"}}
