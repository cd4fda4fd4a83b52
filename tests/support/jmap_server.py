"""A small JMAP server with switches for what goes wrong. Messages are described by their numbers; the state is a counter."""

from __future__ import annotations

import json
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from tests.support.waiting import DEADLINE_SECONDS

MAIL = "urn:ietf:params:jmap:mail"


@dataclass
class JmapScript:
    messages: dict[str, bytes] = field(default_factory=dict)
    """By id, the oldest first."""
    state: int = 1
    created: list[str] = field(default_factory=list)
    """What Email/changes reports."""
    folders: list[dict[str, Any]] = field(
        default_factory=lambda: [{"id": "in", "name": "Inbox", "parentId": None, "role": "inbox", "totalEmails": 0}]
    )
    session: dict[str, Any] = field(default_factory=dict)
    """Replaces parts of the session."""
    statuses: dict[str, list[int]] = field(default_factory=dict)
    """session, api or download → the statuses of the next requests; 200 afterwards."""
    headers: dict[str, str] = field(default_factory=dict)
    """Of responses with an error."""
    bad_blobs: dict[str, int] = field(default_factory=dict)
    """Id → the status of each download."""
    method_errors: dict[str, list[str]] = field(default_factory=dict)
    """Method → the errors that it answers next."""
    raw_api: bytes | None = None
    events: list[str] = field(default_factory=list)
    """Sent to whoever listens; then the connection is kept open until `released`."""
    released: threading.Event = field(default_factory=threading.Event)
    counts: Counter[str] = field(default_factory=Counter)
    authorizations: set[str] = field(default_factory=set)
    lock: threading.Lock = field(default_factory=threading.Lock)


class _Handler(BaseHTTPRequestHandler):
    script: JmapScript
    protocol_version = "HTTP/1.1"

    def log_message(self, format: str, *args: Any) -> None:
        return

    def do_GET(self) -> None:
        path = self.path.partition("?")[0]
        if path == "/.well-known/jmap":
            return self._answer(301, b"", {"Location": "/session"})
        if path == "/session":
            return self._answer_checked("session", json.dumps(self._session()).encode())
        if path.startswith("/download/"):
            return self._download(path.split("/")[3])
        if path == "/events":
            return self._send_events()
        return self._answer(404, b"no")

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        if self.script.raw_api is not None:
            return self._answer(200, self.script.raw_api)
        answers: list[Any] = []
        by_tag: dict[str, Any] = {}
        for name, arguments, tag in body["methodCalls"]:
            self.script.counts[name] += 1
            found = self._method(name, arguments, by_tag)
            by_tag[tag] = found[1]
            answers.append([*found, tag])
        return self._answer_checked("api", json.dumps({"methodResponses": answers, "sessionState": "0"}).encode())

    def _session(self) -> dict[str, Any]:
        account = {"name": "alice@example.org", "accountCapabilities": {MAIL: {}}}
        limits = {"maxObjectsInGet": 50, "maxConcurrentRequests": 4}
        return {
            "username": "alice@example.org",
            "apiUrl": "/api",
            "downloadUrl": "/download/{accountId}/{blobId}?name={name}&type={type}",
            "eventSourceUrl": "/events?types={types}&closeafter={closeafter}&ping={ping}",
            "capabilities": {"urn:ietf:params:jmap:core": limits, MAIL: {}},
            "accounts": {"A": account},
            "primaryAccounts": {MAIL: "A"},
            **self.script.session,
        }

    def _method(self, name: str, arguments: dict[str, Any], earlier: dict[str, Any]) -> list[Any]:
        script = self.script
        errors = script.method_errors.get(name)
        if errors:
            return ["error", {"type": errors.pop(0)}]
        if name == "Mailbox/get":
            return [name, {"list": script.folders, "state": "1"}]
        if name == "Email/query":
            ids = list(reversed(script.messages))
            if anchor := arguments.get("anchor"):
                if anchor not in ids:
                    return ["error", {"type": "anchorNotFound"}]
                ids = ids[ids.index(anchor) + 1 :]
            return [name, {"ids": ids[: arguments["limit"]]}]
        if name == "Email/changes":
            reported, script.created = script.created, []
            return [name, {"newState": str(script.state), "created": reported, "updated": [], "destroyed": []}]
        reference = arguments.get("#ids")
        ids = earlier[reference["resultOf"]].get(reference["path"].strip("/"), []) if reference else arguments["ids"]
        return [name, {"state": str(script.state), "list": [self._describe(key) for key in ids if key in script.messages]}]

    def _describe(self, key: str) -> dict[str, Any]:
        size = len(self.script.messages[key])
        about = {"id": key, "blobId": key, "mailboxIds": {"in": True}, "keywords": {"$seen": True}, "size": size}
        return {**about, "receivedAt": "2024-01-02T03:04:05Z"}

    def _download(self, key: str) -> None:
        self.script.counts["downloads"] += 1
        if key in self.script.bad_blobs:
            return self._answer(self.script.bad_blobs[key], b"no")
        return self._answer_checked("download", self.script.messages.get(key, b""))

    def _send_events(self) -> None:
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.end_headers()
        for event in self.script.events:
            self.wfile.write(event.encode())
            self.wfile.flush()
        self.script.released.wait(DEADLINE_SECONDS)
        self.close_connection = True

    def _answer_checked(self, what: str, body: bytes) -> None:
        self.script.authorizations.add(self.headers.get("Authorization", ""))
        with self.script.lock:
            statuses = self.script.statuses.get(what)
            status = statuses.pop(0) if statuses else 200
        self.script.counts[what] += 1
        self._answer(status, body if status == 200 else b"trouble", self.script.headers if status != 200 else None)

    def _answer(self, status: int, body: bytes, headers: dict[str, str] | None = None) -> None:
        self.send_response(status)
        for name, value in (headers or {}).items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)


@contextmanager
def jmap_server(script: JmapScript) -> Iterator[int]:
    """The port."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), type("Handler", (_Handler,), {"script": script}))
    server.daemon_threads = True
    threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True).start()
    try:
        yield server.server_address[1]
    finally:
        script.released.set()
        server.shutdown()
        server.server_close()
