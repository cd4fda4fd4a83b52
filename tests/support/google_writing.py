"""What the small Google does when it is written to: messages inserted, labels created, messages moved to the trash and back."""

from __future__ import annotations

import json
from email.utils import parsedate_to_datetime
from typing import TYPE_CHECKING, Any

from connectors.target import header_field

if TYPE_CHECKING:
    from tests.support.google_world import Box

SCOPE = "https://www.googleapis.com/auth/gmail.modify"
NOW = 1_700_000_000_000


def write(box: Box, path: str, headers: dict[str, str], body: bytes, world: dict[str, Any]) -> tuple[int, Any]:
    if path.startswith("/upload/"):
        return _insert(box, headers, body, world)
    if path.endswith("/labels"):
        name = json.loads(body)["name"]
        if name in box.labels.values():
            return 409, _refusal(409, "aborted", "Label name exists or conflicts")
        label_id = f"Label_{len(box.labels) + 100}"
        box.labels[label_id] = name
        return 200, {"id": label_id, "name": name, "type": "user"}
    *_, message_id, what = path.split("/")
    message = box.messages.get(message_id)
    if message is None:
        return 404, _refusal(404, "notFound", "Requested entity was not found.")
    if what == "trash":
        message.labels = [*(label for label in message.labels if label not in ("INBOX", "TRASH")), "TRASH"]
        box.note("labelsAdded", message_id, ["TRASH"])
    return 200, {"id": message_id, "labelIds": message.labels}


def _insert(box: Box, headers: dict[str, str], body: bytes, world: dict[str, Any]) -> tuple[int, Any]:
    from tests.support.google_world import Message

    boundary = headers["content-type"].partition("boundary=")[2].encode()
    about, message = body.split(b"--" + boundary)[1:3]
    labels = json.loads(about.partition(b"\r\n\r\n")[2])["labelIds"]
    unknown = [label for label in labels if not label.isupper() and label not in box.labels]
    if unknown or "DRAFT" in labels:
        return 400, _refusal(400, "invalidArgument", f"Invalid label: {(unknown or ['DRAFT'])[0]}")
    raw = message.partition(b"\r\n\r\n")[2].removesuffix(b"\r\n")
    if world.get("refuse", "\0").encode() in raw:
        return 400, _refusal(400, "invalidArgument", "Invalid message")
    if len(box.messages) >= world.get("most_messages", 1 << 30):
        return 403, _refusal(403, "storageFull", "The mailbox has no storage left.")
    message_id = f"{0xF000_0000 + box.now:016x}"
    try:
        date = int(parsedate_to_datetime(header_field(raw, "Date")).timestamp() * 1000)
    except ValueError:
        date = NOW
    box.messages[message_id] = Message(raw, labels, date)
    box.note("messagesAdded", message_id)
    return 200, {"id": message_id, "labelIds": labels}


def _refusal(status: int, reason: str, said: str) -> dict[str, Any]:
    return {"error": {"code": status, "message": said, "errors": [{"domain": "global", "reason": reason, "message": said}]}}
