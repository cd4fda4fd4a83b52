"""What the small Google of `google_server` holds and answers: mailboxes, tokens, scopes, quotas, and trouble on request."""

from __future__ import annotations

import base64
import hashlib
import json
import re
import time
from collections import Counter, defaultdict, deque
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any
from urllib.parse import parse_qs, unquote, urlencode, urlsplit

from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import rsa
from google.auth import jwt

from tests.support.emulate import ask_emulated
from tests.support.google_batch import answer_batch
from tests.support.google_writing import SCOPE, write

CLIENT_ID = "114050000000000000000"
SYSTEM = ("INBOX", "SENT", "DRAFT", "SPAM", "TRASH", "UNREAD", "STARRED", "IMPORTANT")
BLOCK = (b"A line that is repeated until the message is as large as it has to be.\r\n" * 768)[: 3 * 16384]
DATE = 1_600_000_000_000
"""Of the oldest message, in milliseconds; each later one came a minute after it."""


@lru_cache(maxsize=1)
def key_pair() -> tuple[str, str]:
    """Private and public, the same for all servers of a test run."""
    made = rsa.generate_private_key(public_exponent=65537, key_size=2048)
    private = made.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    ).decode()
    public = made.public_key().public_bytes(serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo)
    return private, public.decode()


def message_bytes(address: str, number: int, size: int) -> bytes:
    """What the server makes up, for those who want to compare."""
    head = (
        f"From: Sender {number % 17} <s{number % 17}@example.net>\r\nTo: {address}\r\n"
        f"Subject: Message {number} of {address}\r\n"
        f"Date: Sun, 13 Sep 2020 12:{number // 60 % 60:02}:{number % 60:02} +0000\r\nMessage-ID: <{number}.{address}>\r\n\r\n"
    ).encode()
    seed = hashlib.sha256(head).hexdigest().encode()
    body = b"\r\n".join(seed for _ in range(max(1, (size - len(head)) // 66)))
    return head + body + b"\r\n"


def large_hash(start: bytes, blocks: int) -> str:
    digest = hashlib.sha256(start)
    for _ in range(blocks):
        digest.update(BLOCK)
    return digest.hexdigest()


@dataclass
class Message:
    raw: bytes
    labels: list[str]
    date: int
    blocks: int = 0
    """So many BLOCKs follow the bytes (whose length is a multiple of three then)."""


@dataclass
class Box:
    messages: dict[str, Message] = field(default_factory=dict)
    labels: dict[str, str] = field(default_factory=dict)
    history: list[dict[str, Any]] = field(default_factory=list)
    now: int = 1000
    floor: int = 0

    def note(self, kind: str, message_id: str, labels: list[str] | None = None, hide: bool = False) -> None:
        self.now += 3
        message = {"id": message_id, "threadId": message_id}
        if message_id in self.messages and not hide:
            message["labelIds"] = list(self.messages[message_id].labels)  # type: ignore[assignment]
        item: dict[str, Any] = {"message": message}
        if labels is not None:
            item["labelIds"] = labels
        self.history.append({"id": str(self.now), "messages": [message], kind: [item]})


class Google:
    def __init__(self, world: dict[str, Any]) -> None:
        self.original = json.dumps(world)
        self.world = world
        self.public_key = world["public_key"]
        self.boxes: dict[str, Box] = {}
        for user in world["users"]:
            self.boxes[user["address"].lower()] = self._box(user)
        self.tokens: dict[str, tuple[str, frozenset[str]]] = {}
        self.troubles: list[dict[str, Any]] = []
        self.calls: Counter[str] = Counter()
        self.used: defaultdict[str, deque[tuple[float, int]]] = defaultdict(deque)
        self.total: Counter[str] = Counter()
        self.refused = 0
        self.body_trouble: dict[str, Any] = {}
        self.token_number = 0
        self.refresh_tokens = {"refresh-secret-1": world["users"][0]["address"].lower()}

    def _box(self, user: dict[str, Any]) -> Box:
        box = Box(labels=dict(self.world.get("labels", {"Label_1": "Projects/Übersicht", "Label_2": "Bills"})))
        count = user.get("messages", self.world.get("messages", 10))
        for number in range(count):
            labels = ["INBOX"] if number % 3 else ["Label_1", "UNREAD", "STARRED"]
            for every, label in ((37, "SPAM"), (41, "TRASH"), (43, "DRAFT")):
                if number % every == every - 1:
                    labels = [label]
            raw = message_bytes(user["address"], number, self.world.get("size", 2000))
            box.messages[f"{number + 1:016x}"] = Message(raw, labels, DATE + number * 60_000)
        return box

    # --- tokens

    def token(self, form: dict[str, str]) -> tuple[int, Any]:
        match form.get("grant_type"):
            case "refresh_token":
                who = self.refresh_tokens.get(form.get("refresh_token", ""))
                if who is None:
                    return 400, {"error": "invalid_grant", "error_description": "Token has been expired or revoked."}
                return self._issue(who, frozenset(self.world["scopes"]))
            case "authorization_code":
                challenge = base64.urlsafe_b64encode(hashlib.sha256(form.get("code_verifier", "").encode()).digest())
                if form.get("code") != f"code-{challenge.decode().rstrip('=')}":
                    return 400, {"error": "invalid_grant", "error_description": "Bad Request"}
                status, answer = self._issue(next(iter(self.boxes)), frozenset())
                return status, {**answer, "refresh_token": "refresh-secret-1"}
        return self._delegated(form)

    def _delegated(self, form: dict[str, str]) -> tuple[int, Any]:
        try:
            claims = jwt.decode(form.get("assertion", ""), certs=self.public_key, verify=False)
            jwt.decode(
                form["assertion"],
                certs=self.public_key,
                audience="https://oauth2.googleapis.com/token",
                clock_skew_in_seconds=10**9,
            )
        except Exception:
            return 400, {"error": "invalid_grant", "error_description": "Invalid JWT Signature."}
        if abs(claims["iat"] - self.time()) > 300:
            said = "Invalid JWT: Token must be a short-lived token (60 minutes) and in a reasonable timeframe."
            return 400, {"error": "invalid_grant", "error_description": said}
        scopes = frozenset(claims["scope"].split())
        if not scopes <= set(self.world["scopes"]):
            return 401, {
                "error": "unauthorized_client",
                "error_description": "Client is unauthorized to retrieve access tokens.",
            }
        if claims["sub"].lower() not in self.boxes:
            return 400, {"error": "invalid_grant", "error_description": "Invalid email or User ID"}
        return self._issue(claims["sub"].lower(), scopes)

    def _issue(self, who: str, scopes: frozenset[str]) -> tuple[int, Any]:
        self.token_number += 1
        token = f"ya29.secret-{self.token_number}"
        self.tokens[token] = (who, scopes)
        return 200, {"access_token": token, "expires_in": 3599, "token_type": "Bearer"}

    def time(self) -> float:
        return time.time() + float(self.world.get("skew", 0))

    # --- the APIs

    def answer(self, method: str, target: str, headers: dict[str, str], body: bytes) -> tuple[int, Any, dict[str, str]]:
        parts = urlsplit(target)
        path, query = unquote(parts.path), parse_qs(parts.query)
        if path == "/control":
            return 200, self.control(json.loads(body)), {}
        if path == "/auth":
            back = {"code": f"code-{query['code_challenge'][0]}", "state": query["state"][0]}
            return 302, {}, {"Location": f"{query['redirect_uri'][0]}/?{urlencode(back)}"}
        if path == "/token":
            self.calls["token"] += 1
            trouble = self._trouble("token", path, "")
            if trouble:
                return trouble
            return (*self.token({name: values[0] for name, values in parse_qs(body.decode()).items()}), {})
        if path.startswith("/batch/") and "emulate" not in self.world:
            self.calls["batch"] += 1
            sent = {"authorization": headers.get("authorization", "")}
            trouble = self._trouble("batch", path, "")
            return trouble or answer_batch(headers["content-type"], body, lambda how, what: self.answer(how, what, sent, b""))
        who, scopes = self.tokens.get(headers.get("authorization", "").removeprefix("Bearer "), ("", frozenset()))
        kind, units = self._kind(path, query) if method == "GET" else (_write_kind(path), 5)
        self.calls[kind] += 1
        if not who:
            return 401, _error(401, "authError", "Invalid Credentials"), {}
        trouble = self._trouble(kind, path, who)
        if trouble:
            return trouble
        if path.startswith("/admin"):
            return (*self.directory(path, query, who), {})
        if units and not self._allow(who, units):
            self.refused += 1
            return 429, _error(429, "rateLimitExceeded", "Too many concurrent requests for user"), {}
        if method != "GET":
            if SCOPE not in scopes:
                return 403, _error(403, "insufficientPermissions", "Request had insufficient authentication scopes."), {}
            return (*write(self.boxes[who], path, headers, body, self.world), {})
        if "emulate" in self.world:
            return (*ask_emulated(self.world, next(iter(self.boxes)), kind, target), {})
        return (*self.gmail(kind, path, query, self.boxes[who]), {})

    def _kind(self, path: str, query: dict[str, list[str]]) -> tuple[str, int]:
        if path.startswith("/admin"):
            return "members" if path.endswith("/members") else "users", 0
        if path.endswith(("/profile", "/labels")):
            return path.rsplit("/", 1)[1], 1
        if path.endswith("/history"):
            return "history", 2
        if path.endswith("/messages"):
            return "list", 5
        return "get" if query.get("format") == ["raw"] else "minimal", self.world.get("units_per_message", 20)

    def _trouble(self, kind: str, path: str, who: str) -> tuple[int, Any, dict[str, str]] | None:
        for trouble in self.troubles:
            if not re.search(trouble["match"], f"{kind} {path} {who}"):
                continue
            if trouble.get("after", 0) > 0:
                trouble["after"] -= 1
                continue
            if trouble.get("times", 10**9) <= 0:
                continue
            trouble["times"] = trouble.get("times", 10**9) - 1
            if trouble.get("forget_tokens"):
                self.tokens.clear()
                return 401, _error(401, "authError", "Invalid Credentials"), {}
            if trouble.get("body"):
                self.body_trouble = trouble["body"]
                return None
            if trouble.get("hang"):
                return -1, None, {}
            if trouble.get("drop"):
                return -2, None, {}
            status = trouble["status"]
            return status, _error(status, trouble.get("reason", ""), trouble.get("said", "Trouble")), trouble.get("headers", {})
        return None

    def _allow(self, who: str, units: int) -> bool:
        """Never more than the quota in any minute."""
        for name, limit in ((who, self.world.get("per_user", 0)), ("", self.world.get("per_project", 0))):
            used, now = self.used[name], time.monotonic()
            while used and used[0][0] < now - 60:
                self.total[name] -= used.popleft()[1]
            if limit and self.total[name] + units > limit:
                return False
        for name in (who, ""):
            self.used[name].append((time.monotonic(), units))
            self.total[name] += units
        return True

    def directory(self, path: str, query: dict[str, list[str]], who: str) -> tuple[int, Any]:
        if who != self.world["admin"]:
            return 403, _error(403, "forbidden", "Not Authorized to access this resource/api")
        size, start = int(query["maxResults"][0]), int(query.get("pageToken", ["0"])[0])
        if path.endswith("/members"):
            group = path.split("/")[-2]
            if group not in self.world.get("groups", {}):
                return 404, _error(404, "notFound", "Resource Not Found: groupKey")
            found: list[Any] = [{"email": address, "type": "USER"} for address in self.world["groups"][group]]
            name = "members"
        else:
            found = [
                {
                    "id": f"id-{number}",
                    "primaryEmail": user["address"],
                    "name": {"fullName": user.get("name", "Some One")},
                    "suspended": user.get("suspended", False),
                    "archived": user.get("archived", False),
                    "isMailboxSetup": user.get("mailbox", True),
                    "orgUnitPath": user.get("unit", "/"),
                }
                for number, user in enumerate(self.world["users"])
            ]
            name = "users"
        answer: dict[str, Any] = {name: found[start : start + size]}
        if start + size < len(found):
            answer["nextPageToken"] = str(start + size)
        return 200, answer

    def gmail(self, kind: str, path: str, query: dict[str, list[str]], box: Box) -> tuple[int, Any]:
        match kind:
            case "profile":
                address = next(address for address, found in self.boxes.items() if found is box)
                return 200, {"emailAddress": address, "messagesTotal": len(box.messages), "historyId": str(box.now)}
            case "labels":
                made = [{"id": one, "name": name, "type": "user"} for one, name in box.labels.items()]
                return 200, {"labels": [*({"id": one, "name": one, "type": "system"} for one in SYSTEM), *made]}
            case "list":
                return self._list(query, box)
            case "history":
                return self._history(query, box)
        message_id = path.rsplit("/", 1)[1]
        message = box.messages.get(message_id)
        if message is None:
            return 404, _error(404, "notFound", "Requested entity was not found.")
        about = {"id": message_id, "labelIds": message.labels, "internalDate": str(message.date)}
        return 200, about if kind == "minimal" else (about, message)

    def _list(self, query: dict[str, list[str]], box: Box) -> tuple[int, Any]:
        wanted, spam = query.get("labelIds", []), query.get("includeSpamTrash") == ["true"]
        after = before = None
        wanted_id, sizes = "", (-1, 1 << 60)
        for word in query.get("q", [""])[0].split():
            name, _, value = word.partition(":")
            after = int(value) * 1000 if name == "after" else after
            before = int(value) * 1000 if name == "before" else before
            wanted_id = value if name == "rfc822msgid" else wanted_id
            sizes = (int(value), sizes[1]) if name == "larger" else (sizes[0], int(value)) if name == "smaller" else sizes
        found = []
        for message_id, message in sorted(box.messages.items(), key=lambda item: -item[1].date):
            if not set(wanted) <= set(message.labels) or (not spam and {"SPAM", "TRASH"} & set(message.labels)):
                continue
            if (after is not None and message.date <= after) or (before is not None and message.date >= before):
                continue
            if wanted_id and f"<{wanted_id}>".encode() not in message.raw.partition(b"\r\n\r\n")[0]:
                continue
            if not sizes[0] < len(message.raw) < sizes[1]:
                continue
            found.append(message_id)
        token = query.get("pageToken", [None])[0]
        if token is not None and not token.startswith("after-"):
            return 400, _error(400, "invalidArgument", "Invalid pageToken")
        dates = {message_id: box.messages[message_id].date for message_id in found}
        if token is not None:
            found = [message_id for message_id in found if dates[message_id] < int(token.removeprefix("after-"))]
        size = min(int(query.get("maxResults", ["100"])[0]), self.world.get("page", 500))
        answer: dict[str, Any] = {"messages": [{"id": one} for one in found[:size]]} if found else {}
        if len(found) > size:
            answer["nextPageToken"] = f"after-{dates[found[size - 1]]}"
        return 200, answer

    def _history(self, query: dict[str, list[str]], box: Box) -> tuple[int, Any]:
        start = int(query["startHistoryId"][0])
        if start < box.floor:
            return 404, _error(404, "notFound", "Requested entity was not found.")
        records = [record for record in box.history if int(record["id"]) > start]
        size = min(int(query.get("maxResults", ["100"])[0]), self.world.get("page", 500))
        answer: dict[str, Any] = {"historyId": str(box.now)}
        if records:
            answer["history"] = records[:size]
        if len(records) > size:
            answer["nextPageToken"] = "more"
        return 200, answer

    # --- being told

    def control(self, orders: dict[str, Any]) -> Any:
        for name, order in orders.items():
            if name == "start_over":
                tokens, number = self.tokens, self.token_number
                self.__init__(json.loads(self.original))  # type: ignore[misc]
                self.tokens, self.token_number = tokens, number
            elif name == "world":
                self.world.update(order)
                for user in self.world["users"]:
                    if user["address"].lower() not in self.boxes:
                        self.boxes[user["address"].lower()] = self._box(user)
            elif name == "troubles":
                self.troubles = order
            elif name == "reset_calls":
                self.calls.clear()
                self.refused = 0
            elif name == "revoke":
                self.refresh_tokens.clear()
                self.tokens.clear()
            elif name == "allow":
                self.refresh_tokens = {"refresh-secret-1": next(iter(self.boxes))}
            elif name == "expire":
                for box in self.boxes.values():
                    box.now += 10
                    box.floor = box.now
            elif name == "change":
                for change in order:
                    self._change(self.boxes[change["in"]], change)
        return {"calls": self.calls, "refused": self.refused}

    def _change(self, box: Box, change: dict[str, Any]) -> None:
        message_id = change["id"]
        if change["what"] == "add":
            raw = change["raw"].encode()
            box.messages[message_id] = Message(raw, change["labels"], change.get("date", DATE), change.get("blocks", 0))
            box.note("messagesAdded", message_id)
        elif change["what"] == "delete":
            del box.messages[message_id]
            box.note("messagesDeleted", message_id)
        elif change["what"] == "forget":  # without a word
            del box.messages[message_id]
        elif change["what"] == "name label":
            box.labels[message_id] = change["name"]
        else:
            before, after = set(box.messages[message_id].labels), set(change["labels"])
            box.messages[message_id].labels = change["labels"]
            if after - before:
                box.note("labelsAdded", message_id, sorted(after - before), change.get("hide", False))
            if before - after:
                box.note("labelsRemoved", message_id, sorted(before - after), change.get("hide", False))


def _write_kind(path: str) -> str:
    return "insert" if path.startswith("/upload/") else path.rsplit("/", 1)[1]


def _error(status: int, reason: str, said: str) -> dict[str, Any]:
    return {"error": {"code": status, "message": said, "errors": [{"domain": "global", "reason": reason, "message": said}]}}
