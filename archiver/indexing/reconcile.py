"""Compares the index with Postgres: counts every few minutes, every id and version once a day or when something is suspicious.

An index that was lost, emptied or rolled back to an older state is detected here and filled again; one that another version of
the server filled is replaced by a reindex. An "indexed" mark is never trusted indefinitely.
"""

from __future__ import annotations

from dataclasses import dataclass

from sqlalchemy import Connection, Engine, text

from archiver.db import sql
from archiver.indexing.compare import IndexDifferences, differences
from archiver.indexing.indexes import NEXT_UID, SearchIndex, ensure_live, load_indexes, splits_words_differently
from archiver.indexing.jobs import announce_orphaned
from archiver.indexing.rethread import needs_rethreading
from archiver.logs import get_logger
from archiver.queue.jobs import Job, ReconcileIndex, ReindexJob, RethreadJob
from archiver.search.document import GENERATION, INDEX_SETTINGS
from archiver.search.index import IndexInfo, SearchServer

log = get_logger("reconcile-index")

_COUNT = """
    SELECT count(*) FILTER (WHERE indexed_version > 0 AND search_state NOT IN ('pending', 'failed')) AS indexed,
           count(*) FILTER (WHERE indexed_version < index_version) AS behind,
           count(*) FILTER (WHERE search_state = 'failed') AS failed
    FROM messages"""
_IS_DUE = "SELECT compared_at IS NULL OR compared_at < now() - interval '1 day' FROM search_indexes WHERE id = :id"
_NOTE = text("""
    UPDATE search_indexes SET engine_created_at = :created_at, engine_updated_at = :updated_at, generation = :generation,
        engine_version = :engine_version, compared_at = CASE WHEN :compared THEN now() ELSE compared_at END WHERE id = :id""")
_LOST = """
    UPDATE messages SET index_version = index_version + 1, search_state = 'pending', search_reasons = '[]'
    FROM (SELECT id FROM messages WHERE id = ANY(:ids) ORDER BY id FOR NO KEY UPDATE) AS lost
    WHERE messages.id = lost.id"""
_OUTDATED = """
    UPDATE messages SET index_version = index_version + 1
    FROM (SELECT id FROM messages WHERE id = ANY(:ids) ORDER BY id FOR NO KEY UPDATE) AS lost
    WHERE messages.id = lost.id"""


@dataclass(frozen=True, slots=True)
class IndexCounts:
    indexed: int
    behind: int
    failed: int


@dataclass(slots=True)
class Reconciled:
    compared: bool = False
    missing: int = 0
    outdated: int = 0
    extra: int = 0


def reconcile(engine: Engine, server: SearchServer, *, full: bool = False) -> Reconciled:
    """Finds and repairs differences: missing documents become due, surplus ones are removed. `full`: always compare."""
    indexes = ensure_live(engine, server)
    live = indexes.live
    assert live is not None
    version, found = server.version(), server.info(live.uid)
    is_strange = _is_suspicious(live, found)
    is_foreign = not is_strange and splits_words_differently(live.engine_version, version)
    generation = GENERATION if found is None else live.generation
    if generation == GENERATION:
        found = server.ensure_index(live.uid, INDEX_SETTINGS)
    assert found is not None
    with engine.connect() as connection:
        is_due = sql.query_one(connection, _IS_DUE, bool, id=live.id)
    result = Reconciled(compared=full or is_strange or is_due or _counts_differ(engine, server, live))
    if result.compared:
        for portion in differences(engine, server, live.uid):
            _repair(engine, server, live.uid, portion, result)
        found = server.info(live.uid) or found
        log.info("index_compared", missing=result.missing, outdated=result.outdated, extra=result.extra, strange=is_strange)
    if indexes.building is None:
        server.drop(NEXT_UID)  # recreated by a late process after its reindex had ended
    with engine.begin() as connection:
        filled_by = live.engine_version if is_foreign else version
        _note(connection, live, found, generation, filled_by, compared=result.compared)
        is_old = is_foreign or generation != GENERATION
        others: list[Job] = [ReindexJob()] if indexes.building is not None or is_old else []
        announce_orphaned(connection, *others, *([RethreadJob()] if needs_rethreading(connection) else []))
    return result


def announce_if_replaced(engine: Engine, server: SearchServer) -> bool:
    """Announces a comparison if the server has lost its index or has another version, instead of waiting for the schedule."""
    with engine.connect() as connection:
        live = load_indexes(connection).live
    if live is None:
        return False
    if not (_is_suspicious(live, server.info(live.uid)) or splits_words_differently(live.engine_version, server.version())):
        return False
    with engine.begin() as connection:
        announce_orphaned(connection, ReconcileIndex())
    return True


def _is_suspicious(live: SearchIndex, found: IndexInfo | None) -> bool:
    """The index is missing, was replaced, or was rolled back."""
    if found is None or found.created_at != live.engine_created_at:
        return True
    return live.engine_updated_at is not None and found.updated_at < live.engine_updated_at


def _counts_differ(engine: Engine, server: SearchServer, live: SearchIndex) -> bool:
    """While mail is being indexed, the server may have more documents than Postgres knows of, but never fewer."""
    with engine.connect() as connection:
        before = sql.query_one(connection, _COUNT, IndexCounts)
    documents = server.count(live.uid)
    return documents < before.indexed or (not before.behind and documents > before.indexed + before.failed)


def _repair(engine: Engine, server: SearchServer, uid: str, portion: IndexDifferences, result: Reconciled) -> None:
    with engine.begin() as connection:
        if portion.missing:
            sql.run(connection, _LOST, ids=portion.missing)
        if portion.outdated:
            sql.run(connection, _OUTDATED, ids=portion.outdated)
    if portion.extra:
        server.wait(server.delete(uid, portion.extra))
    result.missing += len(portion.missing)
    result.outdated += len(portion.outdated)
    result.extra += len(portion.extra)


def _note(
    connection: Connection, live: SearchIndex, found: IndexInfo, generation: str, filled_by: str | None, *, compared: bool
) -> None:
    values = {"created_at": found.created_at, "updated_at": found.updated_at, "generation": generation, "compared": compared}
    connection.execute(_NOTE, {"id": live.id, "engine_version": filled_by, **values})
