"""Removes erased text from the files of the search server, which otherwise keep it until they are merged."""

from __future__ import annotations

from collections.abc import Iterable
from uuid import UUID

from sqlalchemy import Engine

from archiver.db import sql
from archiver.indexing.indexes import load_indexes
from archiver.search.index import SearchRefused, SearchServer

_IDS_AT_ONCE = 5_000
_STILL_THERE = "SELECT id FROM messages WHERE id = ANY(:ids::uuid[])"
COMPACTED = "compacted: its files contain nothing of the erased messages"


def clear_index(engine: Engine, server: SearchServer, message_ids: Iterable[UUID]) -> str:
    """Returns what a receipt says about it. Raises SearchUnavailable if the server does not answer."""
    with engine.connect() as connection:
        uids = load_indexes(connection).uids
    ids = sorted(message_ids)
    try:
        for uid in uids:
            for start in range(0, len(ids), _IDS_AT_ONCE):
                _drop(engine, server, uid, ids[start : start + _IDS_AT_ONCE])
            server.compact(uid)
    except SearchRefused as refused:  # a server without this request
        return f"the documents are deleted, but the server can't compact its files, which may keep traces of them ({refused})"
    return COMPACTED if uids else "there is no index"


def _drop(engine: Engine, server: SearchServer, uid: str, ids: list[UUID]) -> None:
    """Documents of messages that are gone: the job that deletes them may still wait."""
    with engine.connect() as connection:
        left = set(sql.query(connection, _STILL_THERE, UUID, ids=sql.uuids(ids)))
    gone = [str(one) for one in ids if one not in left]
    if found := server.find(uid, gone, ["id"]):
        server.wait(server.delete(uid, [one["id"] for one in found]))
