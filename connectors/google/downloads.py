"""Downloads messages of one mailbox, several at once, in the requested order."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from concurrent.futures import CancelledError, Future, ThreadPoolExecutor
from typing import NamedTuple
from urllib.parse import quote

from connectors.errors import AuthFailed, ConnectorError, Throttled, Unavailable
from connectors.google.api import Api, GoogleRefused, ServerTrouble
from connectors.google.raw import DamagedResponse, Downloaded, read_message
from connectors.spool import Spool

_FIELDS = "id%2ClabelIds%2CinternalDate%2Craw"
_WINDOW = 2
"""How many times `parallel` downloads are running or finished, each with at most a megabyte in memory."""
_TROUBLES_IN_A_ROW = 5


class Missing(NamedTuple):
    """Why there is no message."""

    is_not_found: bool
    reason: str


Outcome = Downloaded | Missing


class GoogleDownloads:
    def __init__(self, api: Api, spool: Spool, cost: float, parallel: int) -> None:
        self._api, self._spool, self._cost, self._parallel = api, spool, cost, parallel
        self._threads = ThreadPoolExecutor(parallel, thread_name_prefix="gmail")
        self._troubles = 0

    def close(self) -> None:
        self._threads.shutdown(wait=False, cancel_futures=True)

    def get(self, ids: Sequence[str]) -> Iterator[tuple[str, Outcome]]:
        """Ends with the error that stopped it, after yielding every download that was already running."""
        left, under_way = deque(ids), deque[tuple[str, Future[Outcome]]]()
        turns, stopped_by = 0, None
        while left or under_way:
            while left and stopped_by is None and len(under_way) < _WINDOW * self._parallel:
                try:
                    turns = turns or self._api.context.wait_for_turn(self._cost, self._api.quotas, len(left))
                except ConnectorError as error:
                    stopped_by = error
                    break
                turns -= 1
                key = left.popleft()
                under_way.append((key, self._submit(key)))
            if not under_way:
                break
            key, future = under_way.popleft()
            try:
                outcome = future.result()
            except CancelledError:
                raise Unavailable("the connection was closed") from None
            except ConnectorError as error:
                stopped_by = error if stopped_by is None or isinstance(error, Throttled) else stopped_by
                continue
            yield key, outcome
        if stopped_by is not None:
            raise stopped_by

    def _submit(self, key: str) -> Future[Outcome]:
        self._api.http.ensure_open()
        try:
            return self._threads.submit(self._one, key)
        except RuntimeError as error:
            raise Unavailable("the connection was closed") from error

    def _one(self, key: str) -> Outcome:
        """One message that Google can't return is that message's problem; many in a row are Google's."""
        try:
            found = self._api.retry(lambda: self._read(key))
        except ServerTrouble as error:
            self._troubles += 1
            if self._troubles >= _TROUBLES_IN_A_ROW:
                raise
            return Missing(False, str(error))
        except DamagedResponse as error:
            return Missing(False, str(error))
        except GoogleRefused as error:
            if error.refusal.status == 404:
                return Missing(True, "not found at the source")
            if error.refusal.status == 403:  # not about this message
                raise AuthFailed(f"Gmail denies access: {error}") from error
            return Missing(False, f"Gmail did not return it: {error}")
        self._troubles = 0
        self._api.context.progress()
        return found

    def _read(self, key: str) -> Downloaded:
        url = f"{self._api.base}/gmail/v1/users/me/messages/{quote(key, safe='')}?format=raw&fields={_FIELDS}"
        with self._api.stream(url) as answer:
            return read_message(self._report_progress(answer.iter_bytes()), self._spool)

    def _report_progress(self, chunks: Iterator[bytes]) -> Iterator[bytes]:
        """Reports progress, so that a large message is not considered hung."""
        for number, chunk in enumerate(chunks):
            if number % 16 == 15:
                self._api.context.progress()
            yield chunk
