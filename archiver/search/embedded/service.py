"""Everything a request may need, put together once."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from archiver.search.embedded.catalog import Catalog
from archiver.search.embedded.keys import KeyRing
from archiver.search.embedded.processing import Processor
from archiver.search.embedded.state import State
from archiver.search.embedded.tasks import TaskQueue
from archiver.search.embedded.writer import Writer


@dataclass(frozen=True, slots=True)
class Service:
    """The parts of a running server."""

    state: State
    queue: TaskQueue
    catalog: Catalog
    keys: KeyRing
    writer: Writer

    @classmethod
    def open(cls, data: Path, master_key: str | None) -> Service:
        data.mkdir(parents=True, exist_ok=True)
        state = State(data / "state.sqlite")
        queue = TaskQueue(state, data / "payloads")
        queue.recover()
        catalog = Catalog(state, data)
        writer = Writer(queue, catalog, Processor(state, queue, catalog))
        return cls(state, queue, catalog, KeyRing(state, master_key), writer)

    def start(self) -> None:
        self.writer.start()

    def close(self) -> None:
        """Finishes the batch in hand."""
        self.writer.stop()
        self.state.close()
