"""Downloads raw messages, several at once, in the requested order."""

from __future__ import annotations

import contextlib
import threading
from collections import deque
from collections.abc import Iterator, Sequence
from concurrent.futures import CancelledError, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass
from itertools import count, islice
from pathlib import Path
from typing import TYPE_CHECKING

from connectors.base import BATCH_BYTES, Context, FailedMessage, RawMessage, not_found
from connectors.batching import size_of
from connectors.errors import ConnectorError, Unavailable
from connectors.http import HttpClient
from connectors.microsoft.batch_api import Bundles, message_path
from connectors.microsoft.folders import MAIL
from connectors.microsoft.graph import BATCH_REQUESTS, Graph, GraphRefused
from connectors.microsoft.metadata import MessageMetadata
from connectors.spool import Spool

if TYPE_CHECKING:
    import httpx2

Found = RawMessage | FailedMessage
Wanted = tuple[MessageMetadata, str]
"""A message and the path of its folder."""
_LOOK_SECONDS = 0.25
_LAST_SECONDS = 5.0
_LAST_SECONDS_OF_THE_PROCESS = 1.0
_FAILURES_IN_A_ROW = 20
_BUNDLES_AHEAD = 3
_LARGEST_BYTES = 2 << 30


class _MessageTooLarge(Exception):
    """No real message is this long."""


@dataclass(frozen=True, slots=True)
class Fetched:
    """The results of one download task."""

    outcomes: Sequence[Found | None]
    error: ConnectorError | None = None
    """Why some messages are missing. Without an error, they were missing from a bundle and have to be fetched singly."""

    @property
    def bytes(self) -> int:
        return sum(size_of(found) for found in self.outcomes if isinstance(found, RawMessage))


class GraphDownloads:
    """The threads of one connector."""

    def __init__(self, graph: Graph, http: HttpClient, context: Context, spool: Spool) -> None:
        self._graph, self._http, self._context, self._spool = graph, http, context, spool
        self._bundles = Bundles(graph)
        self._lock = threading.Lock()
        self._threads: ThreadPoolExecutor | None = None
        self._failures = 0
        self._received = 0
        """Bytes of all downloads together: shows whether they make progress."""

    def run(self, base: str, wanted: Sequence[Wanted]) -> DownloadRun:
        return DownloadRun(self, base, wanted)

    def submit(self, base: str, wanted: Sequence[Wanted], run: DownloadRun) -> Future[Fetched]:
        with self._lock:
            self._http.ensure_open()
            if self._threads is None:
                self._threads = ThreadPoolExecutor(self._graph.at_once, thread_name_prefix="graph")
            return self._threads.submit(self._download, base, wanted, run)

    def close(self) -> None:
        with self._lock:
            if self._threads:
                self._threads.shutdown(wait=False, cancel_futures=True)

    @property
    def at_once(self) -> int:
        return self._graph.at_once

    @property
    def bundled(self) -> int:
        """How many small messages form a task; each other message is a task of its own."""
        return self._bundles.limit

    @property
    def patience(self) -> float:
        """How long to wait, after an error, for running downloads: what is discarded has to be fetched again."""
        return _LAST_SECONDS_OF_THE_PROCESS if self._context.should_stop() else _LAST_SECONDS

    def poll(self, waiting: Future[Fetched]) -> bool:
        """Whether the task has ended. Arriving bytes count as progress, waiting does not."""
        if waiting.done():
            return True
        before = self._received
        wait([waiting], timeout=_LOOK_SECONDS)
        if waiting.done():
            return True
        self._http.ensure_open()
        if self._received != before:
            self._context.progress()
        return False

    def _download(self, base: str, wanted: Sequence[Wanted], run: DownloadRun) -> Fetched:
        if run.is_over:
            return Fetched([None] * len(wanted))
        if len(wanted) > 1:
            return self._fetch_bundle(base, wanted)
        entry, path = wanted[0]
        try:
            found = self._fetch_one(base, entry, path)
            self._count_failures(found)
        except ConnectorError as error:
            return Fetched([None], error)
        if entry.is_small and isinstance(found, RawMessage) and found.data:
            with contextlib.suppress(ConnectorError):  # the message has arrived, and the next request will hit the same error
                self._bundles.try_out(base, entry.key, found.data)
        return Fetched([found])

    def _fetch_bundle(self, base: str, wanted: Sequence[Wanted]) -> Fetched:
        """Mostly in one bundle. Near the end of a quota in several, so that the quota is fully used."""
        outcomes: list[Found | None] = []
        while len(outcomes) < len(wanted) and self._bundles.limit > 1:
            stretch = wanted[len(outcomes) : len(outcomes) + self._bundles.limit]
            try:
                bundle = self._bundles.fetch(base, [entry.key for entry, _ in stretch])
            except ConnectorError as error:
                return Fetched(_pad(outcomes, wanted), error)
            for (entry, path), content in zip(stretch, bundle.contents, strict=False):
                if content is not None:
                    outcomes.append(_message(entry, path, content))
                    self._failures = 0
                else:
                    outcomes.append(not_found(entry.key, path) if entry.key in bundle.gone else None)
            if bundle.pause:
                return Fetched(_pad(outcomes, wanted), bundle.pause)
        return Fetched(_pad(outcomes, wanted))

    def _fetch_one(self, base: str, entry: MessageMetadata, path: str) -> Found:
        try:
            content = self._graph.stream(message_path(base, entry.key), MAIL, self._read)
        except GraphRefused as refused:
            if refused.is_gone:
                return not_found(entry.key, path)
            return FailedMessage(entry.key, f"Microsoft Graph did not return it: {refused}", path)
        except _MessageTooLarge:
            return FailedMessage(entry.key, "it exceeds the maximum size of a message", path)
        return _message(entry, path, content)

    def _count_failures(self, found: Found) -> None:
        self._failures = self._failures + 1 if isinstance(found, FailedMessage) and not found.is_not_found else 0
        if self._failures >= _FAILURES_IN_A_ROW:
            raise Unavailable(f"Microsoft Graph failed for many messages in a row: {getattr(found, 'reason', '')}")

    def _read(self, response: httpx2.Response) -> bytes | Path:
        return self._spool.receive(self._count(response.iter_bytes()))

    def _count(self, chunks: Iterator[bytes]) -> Iterator[bytes]:
        size = 0
        for chunk in chunks:
            size += len(chunk)
            if size > _LARGEST_BYTES:
                raise _MessageTooLarge
            self._received += len(chunk)
            yield chunk


def _pad(outcomes: list[Found | None], wanted: Sequence[Wanted]) -> list[Found | None]:
    return outcomes + [None] * (len(wanted) - len(outcomes))


def _message(entry: MessageMetadata, path: str, content: bytes | Path) -> RawMessage:
    return RawMessage(
        entry.key,
        None if isinstance(content, Path) else content,
        content if isinstance(content, Path) else None,
        path,
        entry.flags or (),
        entry.labels or (),
        entry.received_at,
    )


class DownloadRun:
    """A series of downloads. After the first error, no further one starts."""

    def __init__(self, downloads: GraphDownloads, base: str, wanted: Sequence[Wanted]) -> None:
        self._downloads, self._base = downloads, base
        self._wanted = deque(wanted)
        self._under_way: deque[_Slot] = deque()
        self.is_over = False

    def take(self) -> Found | None:
        """The next message; None while it is still downloading. Raises the error that stopped the run."""
        if not self._under_way:
            self._fill()
        task = self._under_way[0].task
        if not self._downloads.poll(task):
            return None
        found = self._under_way[0].found()
        if found is None:
            self._ask_singly(task)
            return None
        self._under_way.popleft()
        if not self._under_way or self._under_way[0].task is not task:
            self._fill()
        return found

    def rest(self) -> Iterator[Found]:
        """After an error: the messages that still arrived."""
        self.is_over = True
        running = {slot.task for slot in self._under_way if not slot.task.cancel()}
        done, _ = wait(running, timeout=self._downloads.patience)
        for slot in self._under_way:
            if slot.task in done and slot.task.exception() is None and (found := slot.outcome) is not None:
                yield found

    def _fill(self) -> None:
        """Starts the next downloads while finished ones are stored."""
        while self._wanted:
            tasks = {slot.task for slot in self._under_way}
            if len(tasks) > self._downloads.at_once or len(self._under_way) >= _BUNDLES_AHEAD * BATCH_REQUESTS:
                return
            held = sum(task.result().bytes for task in tasks if task.done() and task.exception() is None)
            if held >= BATCH_BYTES and tasks:
                return
            self._submit_stretch()

    def _submit_stretch(self) -> None:
        """The next small messages form one task; each of the others is a task of its own."""
        together: list[Wanted] = []
        stretch: list[tuple[Wanted, bool]] = []
        limit = self._downloads.bundled
        while self._wanted and len(together) < max(limit, 1) and len(stretch) - len(together) < self._downloads.at_once:
            wanted = self._wanted.popleft()
            is_bundled = limit > 1 and wanted[0].is_small
            stretch.append((wanted, is_bundled))
            if is_bundled:
                together.append(wanted)
        bundle, numbers = self._submit(together) if together else None, count()
        for wanted, is_bundled in stretch:
            task, number = (bundle, next(numbers)) if bundle and is_bundled else (self._submit([wanted]), 0)
            self._under_way.append(_Slot(task, number, wanted))

    def _ask_singly(self, task: Future[Fetched]) -> None:
        """Requests the next few messages that were missing from their bundle."""
        for place, slot in enumerate(islice(self._under_way, self._downloads.at_once)):
            if slot.task is task and slot.outcome is None:
                self._under_way[place] = _Slot(self._submit([slot.wanted]), 0, slot.wanted)

    def _submit(self, wanted: Sequence[Wanted]) -> Future[Fetched]:
        return self._downloads.submit(self._base, wanted, self)


@dataclass(frozen=True, slots=True)
class _Slot:
    """One message of a run: its task, and its index within the task."""

    task: Future[Fetched]
    number: int
    wanted: Wanted

    @property
    def outcome(self) -> Found | None:
        return self.task.result().outcomes[self.number]

    def found(self) -> Found | None:
        """The result of an ended task. Raises its error; None if the message was only missing from its bundle."""
        try:
            fetched = self.task.result()
        except CancelledError:
            raise Unavailable("the connection was closed") from None
        if fetched.outcomes[self.number] is None and fetched.error is not None:
            raise fetched.error
        return fetched.outcomes[self.number]
