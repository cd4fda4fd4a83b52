"""Fetches single messages again: dead letters and gaps."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass

from connectors.base import BATCH_MESSAGES, Batch, Context, not_found
from connectors.batching import Packer
from connectors.errors import ConnectorError, Unavailable
from connectors.microsoft.downloads import Found, GraphDownloads
from connectors.microsoft.folders import MAIL, Tree, update
from connectors.microsoft.graph import BATCH_REQUESTS, Graph, GraphRefused, Sub, segment
from connectors.microsoft.metadata import FIELDS, IMMUTABLE, MessageMetadata, read_entry


@dataclass(slots=True)
class GraphRefetch:
    graph: Graph
    downloads: GraphDownloads
    context: Context
    base: str
    address: str

    def batches(self, keys: Collection[str]) -> Iterator[Batch]:
        """One result per key."""
        requested = list(dict.fromkeys(keys))
        if not requested:
            return
        tree = update(self.graph, self.base, self.address, Tree(with_hidden=True), {}).tree
        packer = Packer(BATCH_MESSAGES)
        try:
            yield from self._pack(requested, tree, packer)
        except ConnectorError:  # store what arrived before it; otherwise a small quota could prevent any progress
            if not packer.empty:
                yield packer.take()
            raise
        if not packer.empty:
            yield packer.take()

    def _pack(self, requested: list[str], tree: Tree, packer: Packer) -> Iterator[Batch]:
        for start in range(0, len(requested), BATCH_REQUESTS):
            stretch = requested[start : start + BATCH_REQUESTS]
            entries = self._entries(stretch)
            there = [(entry, tree.path(entry.folder_id) or "") for key in stretch if (entry := entries.get(key))]
            for key in stretch:
                if key not in entries:
                    packer.put(not_found(key))
            for found in self._download(there):
                if not packer.room_for(found):
                    yield packer.take()
                packer.put(found)

    def _entries(self, keys: list[str]) -> dict[str, MessageMetadata]:
        paths = [f"{self.base}/messages/{segment(key)}?{FIELDS}" for key in keys]
        found = {}
        for key, path, answer in zip(keys, paths, self.graph.batch(paths, MAIL, IMMUTABLE), strict=True):
            entry = self._entry(path, answer)
            if entry is not None:
                found[key] = entry
        return found

    def _entry(self, path: str, answer: Sub) -> MessageMetadata | None:
        if answer.status in (404, 400):
            return None
        try:
            return read_entry(answer.body if answer.status == 200 else self.graph.get(path, MAIL, prefer=IMMUTABLE))
        except GraphRefused as refused:
            if refused.status in (404, 400):
                return None
            raise Unavailable(f"a message can't be looked up: {refused}") from refused

    def _download(self, wanted: list[tuple[MessageMetadata, str]]) -> Iterator[Found]:
        run = self.downloads.run(self.base, wanted)
        for _ in wanted:
            try:
                while (found := run.take()) is None:
                    if self.context.should_stop():
                        raise Unavailable("the worker is stopping")
            except ConnectorError:
                yield from run.rest()
                raise
            self.context.progress(1)
            yield found
