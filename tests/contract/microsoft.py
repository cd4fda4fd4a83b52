"""The connectors to Microsoft Graph, against the small Graph of ours. One server for all tests: none of them changes it."""

from __future__ import annotations

import atexit
import tempfile
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from functools import lru_cache
from hashlib import sha256
from pathlib import Path
from typing import Any

from connectors.base import Connector
from connectors.kinds import KINDS
from tests.contract.subject import QuietContext, Subject
from tests.support.graph_server.running import GraphServer, graph_server
from tests.support.graph_server.tenant import Tenant

USERS = [
    {"address": "alice@contoso.example"},
    {"address": "bob@contoso.example"},
    {"address": "eve@gmail.example", "kind": "guest"},
]
PLAN: dict[str, Any] = {
    "users": USERS,
    "messages": 120,
    "folders": ["inbox", "sentitems", "Projekte/Übersicht", "deleteditems"],
    "size": 1000,
    "most_per_page": 12,
}
SPOOLED: dict[str, Any] = {"users": USERS[:1], "messages": 4, "folders": ["inbox"], "size": 9 << 20}


@lru_cache
def _server(name: str) -> GraphServer:
    stack = ExitStack()
    folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="archiver-graph-")))
    server = stack.enter_context(graph_server(folder, **{"many": PLAN, "large": SPOOLED}[name]))
    atexit.register(stack.close)
    if name == "many":
        for address in ("alice@contoso.example", "bob@contoso.example"):
            server.do(address, "change", 17, broken=400)
    return server


@contextmanager
def microsoft(name: str, kind: str, folder: Path) -> Iterator[Subject]:
    server = _server(name)
    server.control(trouble={})
    opened: list[Connector] = []

    def connect(**more: Any) -> Connector:
        settings, secrets = server.settings, server.secrets
        if kind == "outlook":
            secrets = {"refresh_token": server.control(sign_in="alice@contoso.example")["refresh_token"]}
        chosen = KINDS[kind]
        context = KeepingContext()
        values = {**settings, "date_from": "2025-01-03", **more}
        opened.append(chosen.open(chosen.settings.model_validate(values), chosen.secrets.model_validate(secrets), context))
        return opened[-1]

    def blocked() -> Connector:
        server.control(trouble={"hang": "value", "hang_after": server.calls().get("value", 0) + (15 if name == "many" else 1)})
        return connect()

    yield Subject(
        open=connect,
        open_blocked=blocked,
        contents=lambda address: _contents({"many": PLAN, "large": SPOOLED}[name], address),
        downloads=lambda: server.calls().get("downloads", 0),
    )
    for connector in opened:
        connector.close()


class KeepingContext(QuietContext):
    """Refreshed credentials are welcome."""

    def save_credentials(self, credentials: Any) -> None:
        self.saved = dict(credentials)


def _contents(plan: dict[str, Any], address: str) -> Counter[str]:
    """Straight from what the server is made of."""
    box = Tenant(plan["users"], plan["messages"], plan["folders"], plan["size"]).mailboxes[address]
    found: Counter[str] = Counter()
    for message in box.messages.values():
        if message.number != 17:
            found[sha256(b"".join(box.content(message))).hexdigest()] += 1
    return found
