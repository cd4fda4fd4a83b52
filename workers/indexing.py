"""What an indexing process holds: the search server, and one worker for each stage, whom jobs wake."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any

from sqlalchemy import Engine

from archiver.config import Settings
from archiver.extract import Extractor
from archiver.queue.jobs import IndexEmailBatch
from archiver.search.client import search_version
from archiver.search.index import SearchServer, SearchUnavailable
from archiver.services import index_jobs
from archiver.services.attachment_texts import AttachmentTexts
from archiver.services.indexing import Counts, Indexer
from archiver.services.room import NoRoom, check_disk
from archiver.store.archive import Archive

_EXTRACTORS = 2
_PATIENCE_SECONDS = 1.0


class Stage:
    """Several jobs ring, and one works: it goes on as long as somebody has rung meanwhile."""

    def __init__(self, look: Callable[[], Counts]) -> None:
        self._look = look
        self._lock = threading.Lock()
        self._is_rung = False
        self._is_working = False

    def ring(self) -> Counts:
        """Returns when all is done that was announced before; at once, if another thread sees to it."""
        counts = Counts()
        with self._lock:
            self._is_rung = True
            if self._is_working:
                return counts
            self._is_working = True
        try:
            while self._goes_on():
                counts.add(self._look())
        except BaseException:
            self._is_working = False
            raise
        return counts

    def _goes_on(self) -> bool:
        with self._lock:
            self._is_working, self._is_rung = self._is_rung, False
            return self._is_working


@dataclass(frozen=True, slots=True)
class IndexWork:
    settings: Settings
    engine: Engine
    archive: Archive
    server: SearchServer
    extractor: Extractor
    stages: dict[str, Stage]
    stopping: threading.Event

    def slice_over(self) -> Callable[[], bool]:
        """True when it is somebody else's turn."""
        end = time.monotonic() + self.settings.slice_seconds
        return lambda: self.stopping.is_set() or time.monotonic() > end

    def answers(self) -> None:
        """Raises NotReady while the search server is away, or has no room to grow."""
        self.check_room()
        search_version(self.settings)

    def check_room(self) -> None:
        """Mail is taken in down to DISK_MIN_FREE_BYTES; what is in becomes searchable down to half of that, and no further."""
        try:
            check_disk(self.settings, -(self.settings.disk_min_free_bytes // 2))
        except NoRoom as error:
            raise SearchUnavailable(str(error)) from error

    def stop(self) -> None:
        self.extractor.close()


def index_work(settings: Settings, engine: Engine, archive: Archive, stopping: threading.Event) -> IndexWork:
    server = SearchServer(settings)
    indexer = Indexer(engine, archive, server, settings.meili_indexing_batch, patience=_PATIENCE_SECONDS)
    extractor = Extractor(_EXTRACTORS)
    texts = AttachmentTexts(engine, archive, server, extractor, settings.archiver_data / "scratch")
    stages: dict[str, Stage] = {}
    work = IndexWork(settings, engine, archive, server, extractor, stages, stopping)

    def body() -> Counts:
        announced = index_jobs.open_announcements(engine, index_jobs.BODY)
        if announced.deleted:
            indexer.remove(announced.deleted)
        work.check_room()
        over = work.slice_over()
        counts = indexer.run(over)
        if counts.waiting:
            index_jobs.ask_for_attachments(engine)
        index_jobs.answer(engine, index_jobs.BODY, announced, goes_on=over())
        return counts

    def attachments() -> Counts:
        announced = index_jobs.open_announcements(engine, index_jobs.ATTACHMENTS)
        work.check_room()
        over = work.slice_over()
        counts = texts.run(over)
        index_jobs.answer(engine, index_jobs.ATTACHMENTS, announced, goes_on=over())
        return counts

    stages[index_jobs.BODY.stage] = Stage(body)
    stages[index_jobs.ATTACHMENTS.stage] = Stage(attachments)
    return work


def ring(work: IndexWork, job: IndexEmailBatch) -> dict[str, Any]:
    return asdict(work.stages[job.stage].ring())
