"""What the processors of one worker process share."""

from __future__ import annotations

import time
from dataclasses import dataclass

from archiver.db.engine import is_answering, is_away
from archiver.errors import NotReady
from archiver.extract.pool import ReadersUnavailable
from archiver.indexing.pipeline import IndexWork
from archiver.parsing.readers import process_readers
from archiver.search.index import SearchUnavailable
from archiver.sync.resources import SyncResources

_POLL_SECONDS = 1.0


@dataclass(frozen=True, slots=True)
class WorkerContext(SyncResources):
    _index: IndexWork | None = None

    @property
    def index(self) -> IndexWork:
        """Only in an indexing process."""
        assert self._index is not None
        return self._index

    def abort_long_work(self) -> None:
        """Aborts work that would delay the stop of the process."""
        if self._index is not None:
            self._index.stop()

    def wait_until_back(self) -> None:
        """Returns when the servers that this process needs respond, or when it has to stop."""
        while not self.stopping.wait(_POLL_SECONDS):
            if not is_answering(self.engine):
                continue
            try:
                if self._index is not None:
                    self._index.check_search_server()
                    self._index.compare_if_replaced()
                process_readers().confinement()  # they can start
                return
            except NotReady:
                continue
        time.sleep(_POLL_SECONDS)  # the process is stopping; until then its jobs must not spin


def is_outage(error: BaseException) -> bool:
    """A server, or a process, that all jobs need is down. No job is to blame, and none loses an attempt."""
    return isinstance(error, SearchUnavailable | ReadersUnavailable) or is_away(error)
