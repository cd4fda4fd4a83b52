"""Attachments that are read once more: what an older extractor has read, and, with OCR, what holds pictures without text.

A few at a time, when no other attachment waits. Their messages stay searchable as they are until the new text has arrived.
"""

from __future__ import annotations

from collections.abc import Iterable

from sqlalchemy import Connection

from archiver.db import sql
from archiver.extract import EXTRACTOR_VERSION

_OUTDATED_AT_ONCE = 200
_PICTURES_AT_ONCE = 4
"""OCR takes seconds for a page: a new attachment should not wait for long."""
_MOST_MESSAGES = 50
"""A picture in more messages than this is a logo, and reading it would index all of them again."""

_IS_USED = "EXISTS (SELECT 1 FROM message_attachments m WHERE m.attachment_sha256 = a.sha256)"
_OUTDATED = f"""
    SELECT a.sha256 FROM attachments a WHERE a.extractor_version > 0 AND a.extractor_version < :version
        AND a.text_state <> 'pending' AND {_IS_USED} LIMIT :limit"""  # noqa: S608
_PICTURES = f"""
    SELECT a.sha256 FROM attachments a WHERE a.needs_ocr AND a.text_state <> 'pending' AND {_IS_USED} LIMIT :limit"""  # noqa: S608
# No longer asked for.
_FORGET_LOGOS = """
    UPDATE attachments SET needs_ocr = false WHERE sha256 = ANY(:hashes) AND (
        SELECT count(*) FROM (SELECT 1 FROM message_attachments m WHERE m.attachment_sha256 = attachments.sha256
            LIMIT :limit + 1) AS counted) > :limit
    RETURNING sha256"""
_ASK_AGAIN = "UPDATE attachments SET text_state = 'pending' WHERE sha256 = ANY(:hashes)"
_WAIT = """
    UPDATE messages SET search_state = 'body'
    FROM (SELECT id FROM messages
          WHERE id IN (SELECT message_id FROM message_attachments WHERE attachment_sha256 = ANY(:hashes))
              AND search_state IN ('full', 'partial')
          ORDER BY id FOR NO KEY UPDATE) AS again
    WHERE messages.id = again.id"""
_WANTING_OCR = """
    SELECT sha256 FROM attachments WHERE needs_ocr AND text_state = 'pending'
        AND sha256 = ANY(ARRAY(SELECT decode(h, 'hex') FROM unnest(string_to_array(:hashes, ',')) AS h))"""


def requeue_attachments(connection: Connection, *, with_ocr: bool) -> int:
    """How many are to be read once more now. Call it again when they have been."""
    found = _hashes(connection, _OUTDATED, limit=_OUTDATED_AT_ONCE, version=EXTRACTOR_VERSION)
    if not found and with_ocr:
        found = _hashes(connection, _PICTURES, limit=_PICTURES_AT_ONCE)
        while found and _hashes(connection, _FORGET_LOGOS, hashes=found, limit=_MOST_MESSAGES):
            found = _hashes(connection, _PICTURES, limit=_PICTURES_AT_ONCE)
    if found:
        sql.run(connection, _ASK_AGAIN, hashes=sorted(found))
        sql.run(connection, _WAIT, hashes=sorted(found))
    return len(found)


def are_left(connection: Connection, *, with_ocr: bool) -> bool:
    return bool(
        _hashes(connection, _OUTDATED, limit=1, version=EXTRACTOR_VERSION)
        or (with_ocr and _hashes(connection, _PICTURES, limit=1))
    )


def wanting_ocr(connection: Connection, hashes: Iterable[bytes]) -> set[bytes]:
    """Of these attachments, which are to be read, those whose pictures are."""
    return set(_hashes(connection, _WANTING_OCR, hashes=sql.hashes(set(hashes))))


def _hashes(connection: Connection, statement: str, **values: object) -> list[bytes]:
    return sql.query(connection, statement, bytes, **values)
