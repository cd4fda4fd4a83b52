"""Extracted text, kept in the packs like everything that was expensive to make."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

from sqlalchemy import Engine, text

from archiver.services import batch_sql
from archiver.services.ingest import object_rows
from archiver.store.archive import Archive
from archiver.store.content import Memory
from archiver.store.encoder import Record
from archiver.store.frames import Kind

_KNOWN = text("SELECT sha256 FROM objects WHERE kind = 'text' AND sha256 = ANY(:hashes) ORDER BY sha256 FOR SHARE")


def store_texts(engine: Engine, archive: Archive, texts: Sequence[str]) -> list[bytes]:
    """The SHA-256 of each, for `attachments.text_sha256`; one that is stored already is not stored again."""
    contents = {hashlib.sha256(data).digest(): data for data in (item.encode("utf-8", "replace") for item in texts)}
    with engine.begin() as connection:
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
