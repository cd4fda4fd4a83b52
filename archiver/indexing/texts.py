"""Extracted text, stored in the packs like everything that is expensive to compute: once per attachment hash."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass

from sqlalchemy import Connection, Engine

from archiver.db import sql
from archiver.db.states import TextState
from archiver.extract.extraction import Extraction, ExtractionState, TextPage
from archiver.indexing import statements
from archiver.indexing.rows import AttachmentText, pack_location
from archiver.store.archive import Archive
from archiver.store.content import MemoryContent
from archiver.store.encoder import Record
from archiver.store.errors import LostPack
from archiver.store.frames import FrameKind
from archiver.store.pack import PackLocation
from archiver.sync.ingest import statements as ingest_statements
from archiver.sync.ingest.object_rows import object_rows

_KNOWN = "SELECT sha256 FROM objects WHERE kind = 'text' AND sha256 = ANY(:hashes) ORDER BY sha256 FOR SHARE"


@dataclass(frozen=True, slots=True)
class KnownText:
    """The result of extracting the text of an attachment."""

    state: str
    reason: str | None
    """Why not all of it is searchable; None if the text is complete."""
    text_sha256: bytes | None
    place: PackLocation | None
    pages: tuple[tuple[int, int, str], ...]
    """For each page: its offset in the text in characters, its number, and the file it belongs to inside an archive or mail."""


def store_texts(engine: Engine, archive: Archive, texts: Sequence[str]) -> list[bytes]:
    """Returns the SHA-256 of each text, for `attachments.text_sha256`. A text that is already stored is not stored again."""
    with engine.begin() as connection:
        return _store(connection, archive, texts)


def _store(connection: Connection, archive: Archive, texts: Sequence[str]) -> list[bytes]:
    contents = {hashlib.sha256(data).digest(): data for data in (item.encode("utf-8", "replace") for item in texts)}
    known = set(sql.query(connection, _KNOWN, bytes, hashes=sorted(contents)))
    records = [
        Record(FrameKind.TEXT, sha256, MemoryContent(data)) for sha256, data in sorted(contents.items()) if sha256 not in known
    ]
    if records:
        written = archive.append(records)
        sql.run(connection, ingest_statements.ADD_PACK, id=written.batch.pack_id, name=written.batch.pack_name)
        rows = sql.rows(object_rows(written))
        sql.run(connection, ingest_statements.ADD_OBJECTS, rows=rows, pack_id=written.batch.pack_id)
        ingest_statements.record_pack(connection, written)
    return [hashlib.sha256(item.encode("utf-8", "replace")).digest() for item in texts]


def read_text(archive: Archive, sha256: bytes) -> str:
    return archive.read(sha256, FrameKind.TEXT).decode()


def store_extractions(engine: Engine, archive: Archive, found: Mapping[bytes, Extraction]) -> None:
    """Stores extraction results by attachment hash: the texts in the packs, the rest in Postgres."""
    with engine.begin() as connection:
        with_text = [sha256 for sha256, extraction in sorted(found.items()) if extraction.pages]
        hashes = dict(zip(with_text, _store(connection, archive, [found[sha256].text for sha256 in with_text]), strict=True))
        rows = [
            {
                "h": sha256.hex(),
                "s": str(extraction.state),
                "r": incompleteness_reason(extraction),
                "t": hashes[sha256].hex() if sha256 in hashes else None,
                "p": _starts(extraction.pages),
                "v": extraction.extractor_version,
                "o": extraction.needs_ocr,
            }
            for sha256, extraction in sorted(found.items())
        ]
        sql.run(connection, statements.SET_TEXTS, rows=sql.rows(rows))


def incompleteness_reason(extraction: Extraction) -> str | None:
    """A picture without text needs no more; a scan without text is incomplete."""
    if extraction.state is ExtractionState.EMPTY and extraction.kind != "pdf":
        return None
    return extraction.reason or None


def known_texts(connection: Connection, hashes: Iterable[bytes]) -> dict[bytes, KnownText]:
    """The texts of those attachments that have been read, or need not be."""
    listed = sql.hashes(set(hashes))
    rows = sql.query(connection, statements.TEXTS, AttachmentText, hashes=listed) if listed else []
    return {
        row.sha256: KnownText(
            row.text_state,
            row.text_reason,
            row.text_sha256,
            pack_location(row.pack_id, row.position, row.stored_bytes),
            tuple((start, number, file) for start, number, file in row.pages),
        )
        for row in rows
        if row.text_state != TextState.PENDING
    }


def read_pages(archive: Archive, known: KnownText) -> tuple[TextPage, ...]:
    if known.text_sha256 is None:
        return ()
    content = None
    if known.place is not None:
        with suppress(LostPack):  # compaction has moved it
            content = archive.frames.open(known.place).bytes().decode()
    whole = read_text(archive, known.text_sha256) if content is None else content
    ends = [start - 1 for start, _, _ in known.pages[1:]] + [len(whole)]
    return tuple(TextPage(number, whole[start:end], file) for (start, number, file), end in zip(known.pages, ends, strict=True))


def _starts(pages: Iterable[TextPage]) -> list[tuple[int, int, str]]:
    starts, at = [], 0
    for page in pages:
        starts.append((at, page.number, page.file))
        at += len(page.text.encode("utf-8", "replace").decode()) + 1
    return starts
