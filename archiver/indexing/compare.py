"""Compares an index with Postgres exactly: every id and every version, in both directions."""

from __future__ import annotations

from array import array
from bisect import bisect_left
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any
from uuid import UUID

from sqlalchemy import Engine

from archiver.db.sql import query
from archiver.search.index import SearchServer

_PAGE = 10_000
_CONFIRM = 1_000
_ROWS = "SELECT id, indexed_version, index_version FROM messages WHERE id = ANY(:ids)"
_INDEXED = """
    SELECT id FROM messages WHERE id > :after AND indexed_version > 0 AND search_state NOT IN ('pending', 'failed')
    ORDER BY id LIMIT :page"""


@dataclass(frozen=True, slots=True)
class IndexedVersions:
    id: UUID
    indexed_version: int
    index_version: int


@dataclass(slots=True)
class IndexDifferences:
    missing: list[UUID] = field(default_factory=list)
    """Messages that should be in the index but are not."""
    outdated: list[UUID] = field(default_factory=list)
    """Messages whose indexed version differs from the recorded one."""
    extra: list[str] = field(default_factory=list)
    """Documents without a message."""


def differences(engine: Engine, server: SearchServer, uid: str) -> Iterator[IndexDifferences]:
    """Yields the differences in portions, without messages that are being indexed at the same time."""
    seen = array("Q")
    for page in server.fields(uid, ["id", "version"]):
        found = _against_rows(engine, page, seen)
        if found.outdated or found.extra:
            yield found
    ordered = array("Q", sorted(seen))
    for missing in _missing(engine, ordered):
        yield from _confirmed(server, uid, missing)


def _against_rows(engine: Engine, page: list[dict[str, Any]], seen: array[int]) -> IndexDifferences:
    found = IndexDifferences()
    documents: dict[UUID, Any] = {}
    for document in page:
        try:
            documents[UUID(document["id"])] = document.get("version")
        except ValueError:
            found.extra.append(document["id"])
    with engine.connect() as connection:
        rows = {row.id: row for row in query(connection, _ROWS, IndexedVersions, ids=sorted(documents))}
    for message_id, version in documents.items():
        seen.append(_short(message_id))
        row = rows.get(message_id)
        if row is None:
            found.extra.append(str(message_id))
        elif not isinstance(version, int) or not row.indexed_version <= version <= row.index_version:
            found.outdated.append(message_id)
    return found


def _missing(engine: Engine, seen: array[int]) -> Iterator[list[UUID]]:
    after = UUID(int=0)
    while True:
        with engine.connect() as connection:
            ids = query(connection, _INDEXED, UUID, after=after, page=_PAGE)
        if not ids:
            return
        missing = [message_id for message_id in ids if not _holds(seen, _short(message_id))]
        if missing:
            yield missing
        after = ids[-1]


def _confirmed(server: SearchServer, uid: str, missing: list[UUID]) -> Iterator[IndexDifferences]:
    """Pages shift while documents are deleted, so documents that were not seen are requested by id."""
    for start in range(0, len(missing), _CONFIRM):
        asked = missing[start : start + _CONFIRM]
        there = {document["id"] for document in server.find(uid, [str(one) for one in asked], ["id"])}
        lost = [one for one in asked if str(one) not in there]
        if lost:
            yield IndexDifferences(missing=lost)


def _short(message_id: UUID) -> int:
    """Eight bytes of the id, which is a hash: a million ids take eight megabytes."""
    return message_id.int >> 64


def _holds(ordered: array[int], value: int) -> bool:
    at = bisect_left(ordered, value)
    return at < len(ordered) and ordered[at] == value
