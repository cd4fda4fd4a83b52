"""Raw messages, several at once, given in the order in which they were asked for."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from pathlib import Path

import httpx2

from connectors.base import BATCH_BYTES, Context, FailedMessage, RawMessage, Skipped
from connectors.errors import ConnectorError, Unavailable
from connectors.microsoft.entries import Entry
from connectors.microsoft.folders import MAIL
from connectors.microsoft.graph import Graph, Refused, segment
from connectors.microsoft.line import Line
from connectors.microsoft.spool import Spool, TooLarge
from connectors.packing import size_of

Found = RawMessage | FailedMessage | Skipped
GONE = "deleted at the source before it could be fetched"
_LOOK_SECONDS = 0.25
_LAST_SECONDS = 1.0
_FAILURES_IN_A_ROW = 20


class Downloads:
    """The threads of one connector."""

    def __init__(self, graph: Graph, line: Line, context: Context, spool: Spool, at_once: int) -> None:
        self._graph, self._line, self._context, self._spool = graph, line, context, spool
        self._at_once = at_once
        self._lock = threading.Lock()
        self._threads: ThreadPoolExecutor | None = None
        self._failures = 0

    def run(self, base: str, wanted: Sequence[tuple[Entry, str]]) -> Run:
        """`wanted`: entries with the paths of their folders."""
        return Run(self, base, wanted)

    def submit(self, base: str, entry: Entry, path: str, run: Run) -> Future[Found | None]:
        with self._lock:
            self._line.ensure_open()
            if self._threads is None:
                self._threads = ThreadPoolExecutor(self._at_once, thread_name_prefix="graph")
            return self._threads.submit(self._download, base, entry, path, run)

    def close(self) -> None:
        with self._lock:
            if self._threads:
                self._threads.shutdown(wait=False, cancel_futures=True)

    @property
    def window(self) -> int:
        return 2 * self._at_once

    def look(self, waiting: Future[Found | None]) -> bool:
        """Whether it is there. Bytes that come in are progress, waiting for them is none."""
        before = self._spool.received
        wait([waiting], timeout=_LOOK_SECONDS)
        if waiting.done():
            return True
        self._line.ensure_open()
        if self._spool.received != before:
            self._context.progress()
        return False

    def _download(self, base: str, entry: Entry, path: str, run: Run) -> Found | None:
        if run.is_over:
            return None
        found = self._fetched(base, entry, path)
        self._failures = self._failures + 1 if isinstance(found, FailedMessage) else 0
        if self._failures >= _FAILURES_IN_A_ROW:
            raise Unavailable(f"Microsoft Graph fails on one message after the other: {getattr(found, 'reason', '')}")
        return found

    def _fetched(self, base: str, entry: Entry, path: str) -> Found:
        address = f"{base}/messages/{segment(entry.key)}/$value"
        try:
            content = self._graph.stream(address, MAIL, self._read)
        except Refused as refused:
            if refused.is_gone:
                return Skipped(entry.key, GONE, path)
            return FailedMessage(entry.key, f"Microsoft Graph can't give it: {refused}", path)
        except TooLarge:
            return FailedMessage(entry.key, "it is longer than a message can be", path)
        in_file = isinstance(content, Path)
        return RawMessage(
            entry.key,
            None if in_file else content,  # type: ignore[arg-type]
            content if isinstance(content, Path) else None,
            path,
            entry.flags or (),
            entry.labels or (),
            entry.received_at,
        )

    def _read(self, response: httpx2.Response) -> bytes | Path:
        return self._spool.take(response.iter_bytes())


class Run:
    """Some downloads. After the first error no further one begins."""

    def __init__(self, downloads: Downloads, base: str, wanted: Sequence[tuple[Entry, str]]) -> None:
        self._downloads, self._base = downloads, base
        self._wanted = iter(wanted)
        self._under_way: deque[Future[Found | None]] = deque()
        self.is_over = False

    def take(self) -> Found | None:
        """The next one; None while it is still on its way. Raises what stopped it."""
        self._fill()
        waiting = self._under_way[0]
        if not self._downloads.look(waiting):
            return None
        try:
            found = waiting.result()
        except ConnectorError:
            self.is_over = True
            raise
        assert found is not None, "only a run that is over leaves something out"
        self._under_way.popleft()
        self._fill()
        return found

    def rest(self) -> Iterator[Found]:
        """After an error: what came in beside it."""
        self.is_over = True
        under_way = [one for one in self._under_way if not one.cancel()]
        done, _ = wait(under_way, timeout=_LAST_SECONDS)
        for one in under_way:
            if one in done and one.exception() is None and (found := one.result()) is not None:
                yield found

    def _fill(self) -> None:
        done = [one.result() for one in self._under_way if one.done() and one.exception() is None]
        held = sum(size_of(one) for one in done if isinstance(one, RawMessage))
        while len(self._under_way) < self._downloads.window and (held < BATCH_BYTES or not self._under_way):
            following = next(self._wanted, None)
            if following is None:
                return
            self._under_way.append(self._downloads.submit(self._base, *following, self))
