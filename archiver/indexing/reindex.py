"""Builds a new index next to the live one from the packs and the stored texts, compares it, and swaps the two.

New mail goes to both until then, and searches use the live one. A reindex can be stopped or killed at any point and resumes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from sqlalchemy import Connection, Engine, text

from archiver.db import sql
from archiver.db.states import SearchIndexState
from archiver.indexing import statements
from archiver.indexing.compare import differences
from archiver.indexing.indexer import Indexer, limit_bytes
from archiver.indexing.indexes import (
    LIVE_UID,
    NEXT_UID,
    Indexes,
    SearchIndex,
    add_index,
    ensure_live,
    load_indexes,
    splits_words_differently,
)
from archiver.indexing.redate import redate
from archiver.indexing.rows import DueMessage
from archiver.logs import get_logger
from archiver.queue.jobs import ReindexJob as ReindexJob
from archiver.search.document import GENERATION, INDEX_SETTINGS
from archiver.search.index import SearchServer
from archiver.store.archive import Archive

log = get_logger("reindex")

_IS_ANNOUNCED = "SELECT EXISTS (SELECT 1 FROM outbox WHERE queue = 'indexing' AND job = :job)"
_FORGET = text("DELETE FROM search_indexes WHERE id = :id")
_MOVE_ON = text("""
    UPDATE search_indexes SET cursor_pack_id = :pack_id, cursor_position = :position, done = done + :rows
    WHERE id = :id""")
_FILLED = text("UPDATE search_indexes SET is_filled = true WHERE id = :id")
_BECOME_LIVE = text("""
    UPDATE search_indexes SET state = 'live', uid = :uid, compared_at = now(), engine_updated_at = NULL WHERE id = :id""")


@dataclass(frozen=True, slots=True)
class ReindexProgress:
    is_done: bool
    done: int
    total: int


def reindex_progress(engine: Engine) -> ReindexProgress:
    with engine.connect() as connection:
        indexes = load_indexes(connection)
        is_announced = sql.query_one(connection, _IS_ANNOUNCED, bool, job=ReindexJob.name)
    found = indexes.building or indexes.live
    done, total = (found.done, found.total) if found else (0, 0)
    return ReindexProgress(not indexes.building and not is_announced, min(done, total), total)


class ReindexRun:
    """Fills a new index and makes it the live one."""

    def __init__(self, engine: Engine, archive: Archive, server: SearchServer, batch: int) -> None:
        self._engine = engine
        self._archive = archive
        self._server = server
        self._batch = batch
        self._indexer = Indexer(engine, archive, server, batch)

    def run(self, should_stop: Callable[[], bool] = lambda: False) -> bool:
        """True when the new index is live; False if it was stopped and must be called again."""
        indexes = self._begin()
        building = indexes.building
        assert building is not None
        if not building.is_filled:
            if not self._fill(building, should_stop):
                return False
            self._repair(building)
            with self._engine.begin() as connection:
                connection.execute(_FILLED, {"id": building.id})
        self._swap(indexes, building)
        return True

    def _begin(self) -> Indexes:
        """The index that is being filled; a new one if there is none, or if it is outdated or not as we left it."""
        indexes = ensure_live(self._engine, self._server)
        building = indexes.building
        if building is not None and not self._is_good(building):
            log.warning("reindex_begins_anew", done=building.done)
            with self._engine.begin() as connection:
                connection.execute(_FORGET, {"id": building.id})
            building = None
        if building is None:
            self._server.drop(NEXT_UID)
            info = self._server.ensure_index(NEXT_UID, INDEX_SETTINGS)
            with self._engine.connect() as connection:
                total = sql.query_one(connection, "SELECT count(*) FROM messages", int)
            add_index(self._engine, NEXT_UID, SearchIndexState.BUILDING, info, self._server.version(), total)
            with self._engine.connect() as connection:
                indexes = load_indexes(connection)
        return indexes

    def _is_good(self, building: SearchIndex) -> bool:
        if building.generation != GENERATION or splits_words_differently(building.engine_version, self._server.version()):
            return False
        self._server.finish_swaps()
        there = [info for info in (self._server.info(LIVE_UID), self._server.info(NEXT_UID)) if info is not None]
        return any(info.created_at == building.engine_created_at for info in there)

    def _fill(self, building: SearchIndex, should_stop: Callable[[], bool]) -> bool:
        stopped = False

        def batches() -> Iterator[Sequence[DueMessage]]:
            nonlocal stopped
            pack_id, position = building.cursor_pack_id or UUID(int=0), building.cursor_position or 0
            while True:
                stopped = should_stop()
                values = {"pack_id": pack_id, "position": position, "limit": self._batch}
                rows = [] if stopped else self._rows(values)
                if not rows:
                    return
                if redate(self._engine, self._archive, rows):
                    rows = self._rows(values)
                pack_id, position = rows[-1].pack_id or pack_id, rows[-1].position or 0
                yield rows

        def done(rows: Sequence[DueMessage]) -> None:
            values = {"pack_id": rows[-1].pack_id, "position": rows[-1].position, "rows": len(rows), "id": building.id}
            with self._engine.begin() as connection:
                connection.execute(_MOVE_ON, values)

        self._indexer.fill(batches(), Indexes(None, building), done)
        return not stopped

    def _rows(self, values: Mapping[str, Any]) -> Sequence[DueMessage]:
        with self._engine.connect() as connection:
            return limit_bytes(sql.query(connection, statements.IN_PACKS, DueMessage, **values))

    def _repair(self, building: SearchIndex) -> None:
        """Repairs what was changed, deleted or moved during the pass over the packs."""
        for portion in differences(self._engine, self._server, building.uid):
            if portion.extra:
                self._server.wait(self._server.delete(building.uid, portion.extra))
            ids = [*portion.missing, *portion.outdated]
            for start in range(0, len(ids), self._batch):
                values = {"ids": ids[start : start + self._batch]}
                with self._engine.connect() as connection:
                    rows = sql.query(connection, statements.BY_ID, DueMessage, **values)
                self._indexer.fill(_portions(rows), Indexes(None, building), lambda _: None)

    def _swap(self, indexes: Indexes, building: SearchIndex) -> None:
        """A second swap would undo the first, so the identity of the index, not its name, shows whether it was done."""
        self._server.finish_swaps()
        live = self._server.info(LIVE_UID)
        if live is None:
            self._server.ensure_index(LIVE_UID, INDEX_SETTINGS)
        if live is None or live.created_at != building.engine_created_at:
            self._server.swap(LIVE_UID, NEXT_UID)
        with self._engine.begin() as connection:
            _become_live(connection, indexes, building)
        self._server.drop(NEXT_UID)
        log.info("reindexed", messages=building.total, generation=building.generation)


def _become_live(connection: Connection, indexes: Indexes, building: SearchIndex) -> None:
    if indexes.live is not None:
        connection.execute(_FORGET, {"id": indexes.live.id})
    connection.execute(_BECOME_LIVE, {"id": building.id, "uid": LIVE_UID})


def _portions(rows: Sequence[DueMessage]) -> Iterator[Sequence[DueMessage]]:
    while rows:
        portion = limit_bytes(rows)
        yield portion
        rows = rows[len(portion) :]
