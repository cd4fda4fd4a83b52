"""Extracted text, kept in the packs like everything that was expensive to make: once for each attachment's hash."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass

from sqlalchemy import Connection, Engine, text

from archiver.extract.extraction import Extraction, Page, State
from archiver.models.states import TextState
from archiver.services import batch_sql, indexing_sql
from archiver.services.ingest import object_rows
from archiver.store.archive import Archive
from archiver.store.content import Memory
from archiver.store.encoder import Record
from archiver.store.errors import LostPack
from archiver.store.frames import Kind
from archiver.store.pack import Place

_KNOWN = text("SELECT sha256 FROM objects WHERE kind = 'text' AND sha256 = ANY(:hashes) ORDER BY sha256 FOR SHARE")


@dataclass(frozen=True, slots=True)
class KnownText:
    """What became of the text of an attachment."""

    state: str
    reason: str | None
    """Why not all of it can be searched; None if there is nothing more to be had."""
    text_sha256: bytes | None
    place: Place | None
    pages: tuple[tuple[int, int, str], ...]
    """Where each page begins in the text, in characters; its number; the file that it is in, inside an archive or mail."""


def store_texts(engine: Engine, archive: Archive, texts: Sequence[str]) -> list[bytes]:
    """The SHA-256 of each, for `attachments.text_sha256`; one that is stored already is not stored again."""
    with engine.begin() as connection:
        return _store(connection, archive, texts)


def _store(connection: Connection, archive: Archive, texts: Sequence[str]) -> list[bytes]:
    contents = {hashlib.sha256(data).digest(): data for data in (item.encode("utf-8", "replace") for item in texts)}
    known = {bytes(item) for item in connection.execute(_KNOWN, {"hashes": sorted(contents)}).scalars()}
    records = [Record(Kind.TEXT, sha256, Memory(data)) for sha256, data in sorted(contents.items()) if sha256 not in known]
    if records:
        written = archive.append(records)
        batch_sql.run(connection, batch_sql.ADD_PACK, id=written.batch.pack_id, name=written.batch.pack_name)
        rows = batch_sql.rows(object_rows(written))
        batch_sql.run(connection, batch_sql.ADD_OBJECTS, rows=rows, pack_id=written.batch.pack_id)
        batch_sql.record_pack(connection, written)
    return [hashlib.sha256(item.encode("utf-8", "replace")).digest() for item in texts]


def read_text(archive: Archive, sha256: bytes) -> str:
    return archive.read(sha256, Kind.TEXT).decode()


def store_extractions(engine: Engine, archive: Archive, found: Mapping[bytes, Extraction]) -> None:
    """What the extractor made of the attachments with these hashes: texts into the packs, the rest beside them."""
    with engine.begin() as connection:
        with_text = [sha256 for sha256, extraction in sorted(found.items()) if extraction.pages]
        hashes = dict(zip(with_text, _store(connection, archive, [found[sha256].text for sha256 in with_text]), strict=True))
        rows = [
            {
                "h": sha256.hex(),
                "s": str(extraction.state),
                "r": why_not_all(extraction),
                "t": hashes[sha256].hex() if sha256 in hashes else None,
                "p": _starts(extraction.pages),
                "v": extraction.extractor_version,
            }
            for sha256, extraction in sorted(found.items())
        ]
        batch_sql.run(connection, indexing_sql.SET_TEXTS, rows=batch_sql.rows(rows))


def why_not_all(extraction: Extraction) -> str | None:
    """A picture without text is searchable as it is; a scan is not."""
    if extraction.state is State.EMPTY and extraction.kind != "pdf":
        return None
    return extraction.reason or None


def known_texts(connection: Connection, hashes: Iterable[bytes]) -> dict[bytes, KnownText]:
    """Of the attachments that were read, or need not be."""
    listed = batch_sql.hashes(set(hashes))
    rows = batch_sql.run(connection, indexing_sql.TEXTS, hashes=listed) if listed else []
    return {
        bytes(row.sha256): KnownText(
            row.text_state,
            row.text_reason,
            bytes(row.text_sha256) if row.text_sha256 is not None else None,
            Place(row.pack_id, row.position, row.stored_bytes) if row.pack_id is not None else None,
            tuple((start, number, file) for start, number, file in row.pages),
        )
        for row in rows
        if row.text_state != TextState.PENDING
    }


def read_pages(archive: Archive, known: KnownText) -> tuple[Page, ...]:
    if known.text_sha256 is None:
        return ()
    content = None
    if known.place is not None:
        with suppress(LostPack):  # compaction has moved it
            content = archive.frames.open(known.place).bytes().decode()
    whole = read_text(archive, known.text_sha256) if content is None else content
    ends = [start - 1 for start, _, _ in known.pages[1:]] + [len(whole)]
    return tuple(Page(number, whole[start:end], file) for (start, number, file), end in zip(known.pages, ends, strict=True))


def _starts(pages: Iterable[Page]) -> list[tuple[int, int, str]]:
    starts, at = [], 0
    for page in pages:
        starts.append((at, page.number, page.file))
        at += len(page.text.encode("utf-8", "replace").decode()) + 1
    return starts
