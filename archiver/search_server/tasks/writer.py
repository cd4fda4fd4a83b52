"""The writer thread: takes batches from the queue and processes them one at a time."""

from __future__ import annotations

import errno
import logging
import sqlite3
import threading

from archiver.search_server.errors import ApiError
from archiver.search_server.index.catalog import Catalog
from archiver.search_server.state import Row
from archiver.search_server.tasks.processing import Processor
from archiver.search_server.tasks.task_queue import TaskQueue

log = logging.getLogger("archiver.search")
IDLE_SECONDS = 10.0
RETRY_SECONDS = 5.0


class Writer:
    """`stop` finishes the current batch and waits for merges."""

    def __init__(self, queue: TaskQueue, catalog: Catalog, processor: Processor) -> None:
        self._queue = queue
        self._catalog = catalog
        self._processor = processor
        self._news = threading.Condition()
        self._has_news = False
        self._stopping = False
        self._thread = threading.Thread(target=self._run, name="writer")
        queue.on_new = self._wake

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        with self._news:
            self._stopping = True
            self._news.notify()
        self._thread.join()

    def _wake(self) -> None:
        with self._news:
            self._has_news = True
            self._news.notify()

    def _run(self) -> None:
        while not self._stopping:
            self._catalog.replace_lost()
            batch = self._queue.next_batch()
            if batch:
                self._work(batch)
            elif not self._wait():
                self._catalog.rest()
                self._queue.prune()
        self._catalog.close()

    def _wait(self) -> bool:
        """Waits for a task; False if none arrived for a while."""
        with self._news:
            if not self._has_news and not self._stopping:
                self._news.wait(IDLE_SECONDS)
            came, self._has_news = self._has_news, False
        return came or self._stopping

    def _work(self, batch: list[Row]) -> None:
        try:
            self._queue.start(batch)
            self._processor.run(batch)
        except ApiError as error:
            self._fail(batch, error)
        except (KeyboardInterrupt, SystemExit):
            raise
        except BaseException as error:  # the thread must survive; a panic in Rust is a BaseException
            log.exception("batch_failed first_task=%s", batch[0]["uid"])
            self._fail(batch, as_api_error(error))

    def _fail(self, batch: list[Row], error: ApiError) -> None:
        """Records the failure. If not even that can be written, the batch stays in the queue and is retried later."""
        try:
            self._processor.fail(batch, error)
        except (sqlite3.Error, OSError):
            log.exception("failure_not_recorded first_task=%s", batch[0]["uid"])
            with self._news:
                self._news.wait_for(lambda: self._stopping, RETRY_SECONDS)


def as_api_error(error: BaseException) -> ApiError:
    """A full disk has an error of its own; anything else is an internal error with its text."""
    text = str(error)
    full = isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT)
    if full or any(sign in text for sign in ("No space left", "os error 28", "disk is full")):
        return ApiError(
            "no_space_left_on_device", "There is no more space left on the device. Consider increasing the size of the disk."
        )
    return ApiError("internal", f"{type(error).__name__}: {text}")
