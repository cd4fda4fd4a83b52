"""Moves messages of a Microsoft 365 mailbox to Deleted Items."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import orjson

from connectors.errors import Unavailable
from connectors.microsoft.graph import Graph, GraphRefused, segment
from connectors.microsoft.target import WRITE


@dataclass(frozen=True, slots=True)
class GraphTrash:
    graph: Graph
    base: str
    on_close: Callable[[], None]

    def move(self, keys: Sequence[str]) -> set[str]:
        return {key for key in keys if self._move(key)}

    def close(self) -> None:
        self.on_close()

    def _move(self, key: str) -> bool:
        body = orjson.dumps({"destinationId": "deleteditems"})
        try:
            self.graph.send("POST", f"{self.base}/messages/{segment(key)}/move", WRITE, body)
        except GraphRefused as refused:
            if refused.is_gone:
                return False
            raise Unavailable(f"Microsoft Graph refused to move a message to Deleted Items: {refused}") from refused
        return True
