"""Recomputes the dates by which mail is sorted, by the rules of today.

Done while an index is filled: each message is at hand then, and the new index gets the new dates. Rules change with releases
(archiver/mail/header/dates.py); a date in Postgres is what they said when the message was archived.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import NamedTuple
from uuid import UUID

from sqlalchemy import Engine

from archiver.db import sql
from archiver.indexing.message_reader import MailReader
from archiver.indexing.rows import DueMessage
from archiver.logs import get_logger
from archiver.mail import limits
from archiver.parsing.readers import process_readers
from archiver.store.archive import Archive
from archiver.store.errors import StoreError, StoreUnavailable

log = get_logger("indexing")

# Mail that was received within two days of its Date has that date by any rule, and is not read.
_IN_DOUBT = """
    SELECT id, received_at FROM messages
    WHERE id = ANY(:ids::uuid[]) AND received_at IS NOT NULL
        AND (sent_at IS NULL OR sent_at NOT BETWEEN received_at - interval '2 days' AND received_at + interval '1 day')"""
_SET = """
    UPDATE messages m SET sort_at = r.s
    FROM (SELECT x.*, messages.id FROM json_to_recordset(:rows::json) AS x(i uuid, s timestamptz)
              JOIN messages ON messages.id = x.i WHERE messages.sort_at <> x.s
          ORDER BY messages.id FOR NO KEY UPDATE OF messages) AS r
    WHERE m.id = r.id RETURNING m.id"""


class ReceivedMessage(NamedTuple):
    id: UUID
    received_at: datetime


def redate(engine: Engine, archive: Archive, rows: Sequence[DueMessage]) -> int:
    """How many of these messages have another date now. What can't be read keeps the one that it has."""
    with engine.connect() as connection:
        receipts = dict(sql.query(connection, _IN_DOUBT, ReceivedMessage, ids=[row.id for row in rows]))
    reader, heads = MailReader(archive), {}
    for row in rows:
        if row.id not in receipts:
            continue
        try:
            heads[row.id] = reader.open(row.sha256, row.place).raw[: limits.HEADER_BYTES + 4]
        except StoreUnavailable:
            raise
        except StoreError:
            continue  # the indexer names it
    if not heads:
        return 0
    summaries = process_readers().summaries(list(heads.values()), [receipts[key] for key in heads])
    dates = [
        {"i": key, "s": summary["sort_at"].isoformat()}
        for key, summary in zip(heads, summaries, strict=True)
        if summary is not None and summary["sort_at"] is not None
    ]
    with engine.begin() as connection:
        changed = len(sql.query(connection, _SET, UUID, rows=sql.rows(dates)))
    if changed:
        log.info("dates_recomputed", messages=changed)
    return changed
