"""The second stage of indexing: extracts the text of attachments, in processes of their own, once per content.

It never delays the first stage, which runs concurrently. A large message is read alone, while small ones continue.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from sqlalchemy import Engine

from archiver.errors import ArchiverError
from archiver.extract import Extraction, ExtractionState
from archiver.extract.extractor import Extractor
from archiver.extract.patience import Patience
from archiver.indexing.documents import Unread, UnreadFile
from archiver.indexing.indexer import Indexer
from archiver.indexing.leases import Counts, Lease
from archiver.indexing.message_reader import MailReader
from archiver.indexing.rereading import wanting_ocr
from archiver.indexing.texts import store_extractions
from archiver.logs import get_logger
from archiver.search.index import SearchServer
from archiver.store.archive import Archive

_MESSAGES = 20
_LARGE_BYTES = 8 << 20
_LARGEST_BYTES = 1 << 62
_TEXT_CHARS = 4 << 20
"""Extracted text is stored whenever this much has accumulated."""
_LOOPS = ((1, _LARGE_BYTES + 1, _LARGEST_BYTES), (_MESSAGES, 0, _LARGE_BYTES), (_MESSAGES, 0, _LARGE_BYTES))
"""The loops: messages per lease, and their sizes. One reads large messages; of the others, one reads while another sends."""
_PREFIX = "attachment-"
_LEFT_BEHIND_SECONDS = 900.0
"""Older scratch files belong to a process that was killed."""

log = get_logger("attachments")


class ExtractionStopped(ArchiverError):
    """The process has to stop; what is still unread is read later."""


@dataclass(frozen=True, slots=True)
class _FileInHand:
    reader: MailReader
    unread: UnreadFile
    extractor: Extractor
    tick: Callable[[], None]

    def extract(self, content: bytes | Path, seconds: float) -> Extraction:
        file = self.unread.file
        return self.extractor.extract(content, file.name, file.content_type, seconds=seconds, tick=self.tick)


class AttachmentTexts:
    """One per process; only one thread at a time may call `run`."""

    def __init__(
        self,
        engine: Engine,
        archive: Archive,
        server: SearchServer,
        extractor: Extractor,
        scratch: Path,
        ocr: Extractor | None = None,
    ) -> None:
        """`ocr` reads those whose pictures are to be read, after all others (archiver.indexing.rereading)."""
        self._engine, self._archive, self._server = engine, archive, server
        self._extractor, self._ocr, self._scratch = extractor, ocr, scratch

    def run(self, should_stop: Callable[[], bool] = lambda: False) -> Counts:
        """Runs until no message has unread attachments, or `should_stop`."""
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
        """Removes the files of a killed process. They are mail, so they must not stay."""
        for path in self._scratch.glob(f"{_PREFIX}*"):
            with suppress(FileNotFoundError):
                if time.time() - path.stat().st_mtime > _LEFT_BEHIND_SECONDS:
                    path.unlink()

    def _loop(self, should_stop: Callable[[], bool], limit: int, smallest: int, largest: int) -> Counts:
        indexer = Indexer(self._engine, self._archive, self._server, limit)
        counts = Counts()
        while not should_stop() and (lease := indexer.lease_unread(limit, smallest, largest)) is not None:
            try:
                counts.add(self._read(indexer, lease, should_stop))
            except ExtractionStopped:
                break
        return counts

    def _read(self, indexer: Indexer, lease: Lease, should_stop: Callable[[], bool]) -> Counts:
        def extract(unread: Unread) -> None:
            found: dict[bytes, Extraction] = {}
            patience: dict[int, Patience] = {}
            pictures = self._wanting_ocr(unread)
            tick = partial(indexer.renew, lease)
            for one in unread:
                patient = patience.setdefault(one.message, Patience())
                extractor = self._ocr if self._ocr is not None and one.file.sha256 in pictures else self._extractor
                file = _FileInHand(indexer.mail, one, extractor, tick)
                found[one.file.sha256] = self._extract(file, should_stop, patient)
                tick()
                if sum(len(page.text) for one in found.values() for page in one.pages) > _TEXT_CHARS:
                    store_extractions(self._engine, self._archive, found)
                    found = {}
            if found:
                store_extractions(self._engine, self._archive, found)

        return indexer.index(lease, extract)

    def _wanting_ocr(self, unread: Unread) -> set[bytes]:
        if self._ocr is None:
            return set()
        with self._engine.connect() as connection:
            return wanting_ocr(connection, (one.file.sha256 for one in unread))

    def _extract(self, file: _FileInHand, should_stop: Callable[[], bool], patient: Patience) -> Extraction:
        """Discards the result of a process that is stopping, because it may be incomplete."""
        try:
            found = patient.spend(lambda seconds: self._found(file, seconds))
            if file.extractor is self._ocr and not found.pages and found.state is not ExtractionState.EMPTY:
                # The text beside the pictures must not be lost because of them.
                plain = replace(file, extractor=self._extractor)
                found = replace(
                    patient.spend(lambda seconds: self._found(plain, seconds)), reason=found.reason, needs_ocr=False
                )
        except OSError as error:
            if should_stop():
                raise ExtractionStopped("the worker is stopping") from error
            raise
        if should_stop():
            raise ExtractionStopped("the worker is stopping")
        return found

    def _found(self, in_hand: _FileInHand, seconds: float) -> Extraction:
        file = in_hand.unread.file
        if not file.is_part:
            return in_hand.extract(in_hand.unread.content(), seconds)
        if file.size_bytes <= _LARGE_BYTES:
            return in_hand.extract(b"".join(in_hand.reader.part(file.sha256)), seconds)
        self._scratch.mkdir(parents=True, exist_ok=True, mode=0o700)
        with tempfile.NamedTemporaryFile(dir=self._scratch, prefix=_PREFIX) as spooled:
            for piece in in_hand.reader.part(file.sha256):
                spooled.write(piece)
            spooled.flush()
            return in_hand.extract(Path(spooled.name), seconds)
