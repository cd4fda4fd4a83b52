"""Downloads the messages of one account, several at once, in the requested order."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from concurrent.futures import CancelledError, Future, ThreadPoolExecutor
from pathlib import Path

from connectors.base import Context
from connectors.errors import Unavailable
from connectors.jmap.client import BlobRefused, JmapClient, JmapServerError
from connectors.jmap.message import JmapMessage
from connectors.spool import Spool

_TROUBLES_IN_A_ROW = 5
_WINDOW = 2
"""How many times `at_once` downloads are running or finished."""

Content = bytes | Path | str | None
"""The bytes, in memory or in a file; otherwise the reason why there are none; None if the message no longer exists."""


class JmapDownloads:
    def __init__(self, client: JmapClient, context: Context, spool: Spool, at_once: int) -> None:
        self._client, self._context, self._spool, self._at_once = client, context, spool, at_once
        self._threads = ThreadPoolExecutor(at_once, thread_name_prefix="jmap")
        self._troubles = 0
        self.received = 0

    def close(self) -> None:
        self._threads.shutdown(wait=False, cancel_futures=True)

    def get(self, account: str, messages: Sequence[JmapMessage]) -> Iterator[tuple[JmapMessage, Content]]:
        """Ends with the error that stopped it, after yielding what was downloaded before it."""
        left, under_way = deque(messages), deque[tuple[JmapMessage, Future[Content]]]()
        while left or under_way:
            while left and len(under_way) < _WINDOW * self._at_once:
                message = left.popleft()
                under_way.append((message, self._submit(account, message)))
            message, future = under_way.popleft()
            try:
                content = future.result()
            except CancelledError:
                raise Unavailable("the connection was closed") from None
            yield message, content

    def _submit(self, account: str, message: JmapMessage) -> Future[Content]:
        self._client.http.ensure_open()
        try:
            return self._threads.submit(self._one, account, message)
        except RuntimeError as error:
            raise Unavailable("the connection was closed") from error

    def _one(self, account: str, message: JmapMessage) -> Content:
        """A message that the server can't return is that message's problem; many in a row are the server's."""
        try:
            found = self._client.download(account, message.blob, self._read)
        except BlobRefused as refused:
            return None if refused.status != 400 else f"the server did not return it: {refused}"
        except JmapServerError as error:
            self._troubles += 1
            if self._troubles >= _TROUBLES_IN_A_ROW:
                raise
            return str(error)
        self._troubles = 0
        self.received += 1
        self._context.progress()
        return found

    def _read(self, chunks: Iterator[bytes]) -> bytes | Path:
        return self._spool.receive(self._report_progress(chunks))

    def _report_progress(self, chunks: Iterator[bytes]) -> Iterator[bytes]:
        for number, chunk in enumerate(chunks):
            if number % 16 == 15:
                self._context.progress()
            yield chunk
