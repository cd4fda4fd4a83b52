"""The parts of a running server, created once."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from archiver.search_server.index.catalog import Catalog
from archiver.search_server.keys import KeyRing
from archiver.search_server.state import ServerState
from archiver.search_server.tasks.processing import Processor
from archiver.search_server.tasks.task_queue import TaskQueue
from archiver.search_server.tasks.writer import Writer

COUNTING_THREADS = 4


@dataclass(frozen=True, slots=True)
class Service:
    """The parts of a running server."""

    state: ServerState
    queue: TaskQueue
    catalog: Catalog
    keys: KeyRing
    writer: Writer
    counters: ThreadPoolExecutor  # count facets while hits are being collected

    @classmethod
    def open(cls, data: Path, master_key: str | None) -> Service:
        data.mkdir(parents=True, exist_ok=True)
        state = ServerState(data / "state.sqlite")
        queue = TaskQueue(state, data / "payloads")
        queue.recover()
        catalog = Catalog(state, data)
        writer = Writer(queue, catalog, Processor(state, queue, catalog))
        counters = ThreadPoolExecutor(COUNTING_THREADS, "facets")
        return cls(state, queue, catalog, KeyRing(state, master_key), writer, counters)

    def start(self) -> None:
        self.writer.start()

    def close(self) -> None:
        """Finishes the current batch."""
        self.counters.shutdown(wait=False, cancel_futures=True)
        self.writer.stop()
        self.state.close()
