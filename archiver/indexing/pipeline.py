"""The resources of an indexing process: the search server, and one stage object per stage, which jobs notify."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import asdict, dataclass
from typing import Any

from sqlalchemy import Engine

from archiver.config import Settings
from archiver.errors import NotReady
from archiver.extract import limits
from archiver.extract.extractor import Extractor
from archiver.extract.ocr import is_available
from archiver.indexing import jobs as index_jobs
from archiver.indexing import rereading
from archiver.indexing.attachments import AttachmentTexts
from archiver.indexing.indexer import Indexer
from archiver.indexing.leases import Counts
from archiver.indexing.reconcile import announce_if_replaced
from archiver.logs import get_logger
from archiver.queue.jobs import IndexEmailBatch
from archiver.search.client import search_version
from archiver.search.index import SearchRefused, SearchServer, SearchUnavailable
from archiver.store.archive import Archive
from archiver.store.capacity import NoRoom, check_disk

log = get_logger("indexing")

_EXTRACTORS = 2
_PATIENCE_SECONDS = 1.0


class IndexStage:
    """Many jobs notify, one works: it repeats as long as a job has notified during its pass."""

    def __init__(self, pass_once: Callable[[], Counts]) -> None:
        self._pass_once = pass_once
        self._lock = threading.Lock()
        self._is_requested = False
        self._is_working = False

    def run_or_notify(self) -> Counts:
        """Returns when everything announced before the call is done, or at once if another thread is working on it."""
        counts = Counts()
        with self._lock:
            self._is_requested = True
            if self._is_working:
                return counts
            self._is_working = True
        try:
            while self._take_next_request():
                counts.add(self._pass_once())
        except BaseException:
            self._is_working = False
            raise
        return counts

    def _take_next_request(self) -> bool:
        with self._lock:
            self._is_working, self._is_requested = self._is_requested, False
            return self._is_working


@dataclass(frozen=True, slots=True)
class IndexWork:
    settings: Settings
    engine: Engine
    archive: Archive
    server: SearchServer
    extractor: Extractor
    ocr: Extractor | None
    stages: dict[str, IndexStage]
    stopping: threading.Event

    def slice_over(self) -> Callable[[], bool]:
        """A function that returns True once the slice is over or the process is stopping."""
        end = time.monotonic() + self.settings.slice_seconds
        return lambda: self.stopping.is_set() or time.monotonic() > end

    def check_search_server(self) -> None:
        """Raises NotReady while the search server is down or the disk has no room for the index to grow."""
        self.check_room()
        search_version(self.settings)

    def check_room(self) -> None:
        """Mail is archived until only DISK_MIN_FREE_BYTES are free; archived mail is indexed until half of that is free."""
        try:
            check_disk(self.settings, -(self.settings.disk_min_free_bytes // 2))
        except NoRoom as error:
            raise SearchUnavailable(str(error)) from error

    def announce_rereading(self) -> None:
        """When attachments are left that a better extractor, or OCR, would read."""
        with self.engine.begin() as connection:
            if rereading.are_left(connection, with_ocr=self.ocr is not None):
                index_jobs.announce_rereading(connection)

    def compare_if_replaced(self) -> None:
        """After a start or an outage: the server that answers may be another one, with an empty index or a new version."""
        with suppress(NotReady, SearchRefused):  # else the schedule finds it
            announce_if_replaced(self.engine, self.server)

    def stop(self) -> None:
        self.extractor.close()
        if self.ocr is not None:
            self.ocr.close()


def index_work(settings: Settings, engine: Engine, archive: Archive, stopping: threading.Event) -> IndexWork:
    server = SearchServer(settings)
    indexer = Indexer(engine, archive, server, settings.meili_indexing_batch, patience=_PATIENCE_SECONDS)
    extractor, ocr = Extractor(_EXTRACTORS), _ocr_extractor(settings)
    texts = AttachmentTexts(engine, archive, server, extractor, settings.archiver_data / "scratch", ocr)
    stages: dict[str, IndexStage] = {}
    work = IndexWork(settings, engine, archive, server, extractor, ocr, stages, stopping)

    def body() -> Counts:
        announced = index_jobs.open_announcements(engine, index_jobs.BODY)
        if announced.deleted:
            indexer.remove(announced.deleted)
        work.check_room()
        over = work.slice_over()
        counts = indexer.run(over)
        if counts.waiting:
            index_jobs.announce_attachments(engine)
        index_jobs.close(engine, index_jobs.BODY, announced, is_unfinished=over())
        return counts

    def attachments() -> Counts:
        announced = index_jobs.open_announcements(engine, index_jobs.ATTACHMENTS)
        work.check_room()
        over = work.slice_over()
        counts = texts.run(over)
        is_unfinished = over()
        index_jobs.close(engine, index_jobs.ATTACHMENTS, announced, is_unfinished=is_unfinished)
        if not is_unfinished:
            with engine.begin() as connection:
                if rereading.requeue_attachments(connection, with_ocr=ocr is not None):
                    index_jobs.announce_rereading(connection)
        return counts

    stages[index_jobs.BODY.stage] = IndexStage(body)
    stages[index_jobs.ATTACHMENTS.stage] = IndexStage(attachments)
    return work


def _ocr_extractor(settings: Settings) -> Extractor | None:
    """One process: OCR has the lowest priority of all work."""
    if settings.ocr == "off" or (settings.ocr == "auto" and not is_available()):
        return None
    if not is_available():
        log.warning("ocr_not_installed", hint="OCR=on needs tesseract; install it, or set OCR=auto")
        return None
    return Extractor(1, ocr_languages=settings.ocr_languages, seconds=limits.OCR_SECONDS)


def run_or_notify(work: IndexWork, job: IndexEmailBatch) -> dict[str, Any]:
    return asdict(work.stages[job.stage].run_or_notify())
