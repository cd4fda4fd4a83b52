"""The second stage of indexing: the text of attachments, read in processes of their own, once for each content.

It never holds up the first: it runs beside it, and what it reads waits for nobody. A large message is read by itself, while
small ones go on.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path

from sqlalchemy import Engine

from archiver.errors import ArchiverError
from archiver.extract import Extraction, Extractor
from archiver.extract.patience import Patience
from archiver.logs import get_logger
from archiver.search.index import SearchServer
from archiver.services.documents import Unread, UnreadFile
from archiver.services.indexing import Counts, Indexer, Lease
from archiver.services.stored_mail import MailReader
from archiver.services.texts import store_extractions
from archiver.store.archive import Archive

_MESSAGES = 20
_LARGE_BYTES = 8 << 20
_LARGEST_BYTES = 1 << 62
_TEXT_CHARS = 4 << 20
"""What was found is stored when it has become this much."""
_LOOPS = ((1, _LARGE_BYTES + 1, _LARGEST_BYTES), (_MESSAGES, 0, _LARGE_BYTES), (_MESSAGES, 0, _LARGE_BYTES))
"""Messages at a time, and of which size: one reads large ones; of the others one reads while the other one's texts arrive."""
_PREFIX = "attachment-"
_LEFT_BEHIND_SECONDS = 900.0

log = get_logger("attachments")


class Stopped(ArchiverError):
    """The process has to stop; what was not read yet is read later."""


class AttachmentTexts:
    """One for a process; `run` by one thread at a time."""

    def __init__(self, engine: Engine, archive: Archive, server: SearchServer, extractor: Extractor, scratch: Path) -> None:
        self._engine, self._archive, self._server = engine, archive, server
        self._extractor, self._scratch = extractor, scratch

    def run(self, should_stop: Callable[[], bool] = lambda: False) -> Counts:
        """Until no message waits for its attachments, or `should_stop`."""
        counts = Counts()
        self._clean_up()
        with ThreadPoolExecutor(len(_LOOPS), "attachments") as threads:
            while True:
                round_ = Counts()
                for loop in [threads.submit(self._loop, should_stop, *sizes) for sizes in _LOOPS]:
                    round_.add(loop.result())
                counts.add(round_)
                if should_stop() or not round_.indexed:
                    return counts

    def _clean_up(self) -> None:
        """Files of a process that was killed. They are mail: they must not stay."""
        for path in self._scratch.glob(f"{_PREFIX}*"):
            with suppress(FileNotFoundError):
                if time.time() - path.stat().st_mtime > _LEFT_BEHIND_SECONDS:
                    path.unlink()

    def _loop(self, should_stop: Callable[[], bool], most: int, smallest: int, largest: int) -> Counts:
        indexer = Indexer(self._engine, self._archive, self._server, most)
        counts = Counts()
        while not should_stop() and (lease := indexer.lease_unread(most, smallest, largest)) is not None:
            try:
                counts.add(self._read(indexer, lease, should_stop))
            except Stopped:
                break
        return counts

    def _read(self, indexer: Indexer, lease: Lease, should_stop: Callable[[], bool]) -> Counts:
        def extract(unread: Unread) -> None:
            found: dict[bytes, Extraction] = {}
            patience: dict[int, Patience] = {}
            for one in unread:
                patient = patience.setdefault(one.message, Patience())
                found[one.file.sha256] = self._extract(indexer.mail, one, should_stop, patient)
                indexer.keep(lease)
                if sum(len(page.text) for one in found.values() for page in one.pages) > _TEXT_CHARS:
                    store_extractions(self._engine, self._archive, found)
                    found = {}
            if found:
                store_extractions(self._engine, self._archive, found)

        return indexer.index(lease, extract)

    def _extract(
        self, reader: MailReader, unread: UnreadFile, should_stop: Callable[[], bool], patient: Patience
    ) -> Extraction:
        """What a process that has to stop finds may have been cut short: it does not count."""
        try:
            found = patient.spend(lambda seconds: self._found(reader, unread, seconds))
        except OSError as error:
            if should_stop():
                raise Stopped("the worker is stopping") from error
            raise
        if should_stop():
            raise Stopped("the worker is stopping")
        return found

    def _found(self, reader: MailReader, unread: UnreadFile, seconds: float) -> Extraction:
        file = unread.file
        if not file.is_part:
            return self._extractor.extract(unread.content(), file.name, file.content_type, seconds=seconds)
        if file.size_bytes <= _LARGE_BYTES:
            content = b"".join(reader.part(file.sha256))
            return self._extractor.extract(content, file.name, file.content_type, seconds=seconds)
        self._scratch.mkdir(parents=True, exist_ok=True, mode=0o700)
        with tempfile.NamedTemporaryFile(dir=self._scratch, prefix=_PREFIX) as spooled:
            for piece in reader.part(file.sha256):
                spooled.write(piece)
            spooled.flush()
            return self._extractor.extract(Path(spooled.name), file.name, file.content_type, seconds=seconds)
