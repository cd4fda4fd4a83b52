"""A new index beside the live one, filled from the packs and the stored texts, compared, and put in its place.

New mail goes to both meanwhile, and searching goes on in the live one. It can be stopped and killed at any point, and goes on.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from uuid import UUID

from sqlalchemy import Connection, Engine, text

from archiver.logs import get_logger
from archiver.models.states import SearchIndexState
from archiver.queue.jobs import Reindex as ReindexJob
from archiver.search.document import GENERATION, INDEX_SETTINGS
from archiver.search.index import SearchServer
from archiver.services import batch_sql, indexing_sql
from archiver.services.documents import Row
from archiver.services.index_comparison import differences
from archiver.services.indexing import Indexer, within
from archiver.services.search_indexes import LIVE_UID, NEXT_UID, Indexes, SearchIndex, add_index, ensure_live, load_indexes
from archiver.store.archive import Archive

log = get_logger("reindex")

_IS_ANNOUNCED = text("SELECT EXISTS (SELECT 1 FROM outbox WHERE queue = 'indexing' AND job = :job)")
_FORGET = text("DELETE FROM search_indexes WHERE id = :id")
_MOVE_ON = text("""
    UPDATE search_indexes SET cursor_pack_id = :pack_id, cursor_position = :position, done = done + :rows
    WHERE id = :id""")
_FILLED = text("UPDATE search_indexes SET is_filled = true WHERE id = :id")
_BECOME_LIVE = text("""
    UPDATE search_indexes SET state = 'live', uid = :uid, compared_at = now(), engine_updated_at = NULL WHERE id = :id""")


@dataclass(frozen=True, slots=True)
class Progress:
    is_done: bool
    done: int
    total: int


def reindex_progress(engine: Engine) -> Progress:
    with engine.connect() as connection:
        indexes = load_indexes(connection)
        is_announced = connection.execute(_IS_ANNOUNCED, {"job": ReindexJob.name}).scalar()
    found = indexes.building or indexes.live
    done, total = (found.done, found.total) if found else (0, 0)
    return Progress(not indexes.building and not is_announced, min(done, total), total)


class Reindex:
    """Fills a new index, and puts it in the place of the live one."""

    def __init__(self, engine: Engine, archive: Archive, server: SearchServer, batch: int) -> None:
        self._engine = engine
        self._server = server
        self._batch = batch
        self._indexer = Indexer(engine, archive, server, batch)

    def run(self, should_stop: Callable[[], bool] = lambda: False) -> bool:
        """True when the new index is the live one; False when it was stopped, and is to be called again."""
        indexes = self._begin()
        building = indexes.building
        assert building is not None
        if not building.is_filled:
            if not self._fill(building, should_stop):
                return False
            self._mend(building)
            with self._engine.begin() as connection:
                connection.execute(_FILLED, {"id": building.id})
        self._take_its_place(indexes, building)
        return True

    def _begin(self) -> Indexes:
        """The index that is being filled; a new one, if there is none, or if it is not what we want or where we left it."""
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
                total = connection.execute(text("SELECT count(*) FROM messages")).scalar_one()
            add_index(self._engine, NEXT_UID, SearchIndexState.BUILDING, info, total)
            with self._engine.connect() as connection:
                indexes = load_indexes(connection)
        return indexes

    def _is_good(self, building: SearchIndex) -> bool:
        if building.generation != GENERATION:
            return False
        self._server.finish_swaps()
        there = [info for info in (self._server.info(LIVE_UID), self._server.info(NEXT_UID)) if info is not None]
        return any(info.created_at == building.engine_created_at for info in there)

    def _fill(self, building: SearchIndex, should_stop: Callable[[], bool]) -> bool:
        stopped = False

        def batches() -> Iterator[Sequence[Row]]:
            nonlocal stopped
            pack_id, position = building.cursor_pack_id or UUID(int=0), building.cursor_position or 0
            while True:
                stopped = should_stop()
                values = {"pack_id": pack_id, "position": position, "limit": self._batch}
                with self._engine.connect() as connection:
                    rows = [] if stopped else within(batch_sql.run(connection, indexing_sql.IN_PACKS, **values))
                if not rows:
                    return
                pack_id, position = rows[-1].pack_id, rows[-1].position
                yield rows

        def done(rows: Sequence[Row]) -> None:
            values = {"pack_id": rows[-1].pack_id, "position": rows[-1].position, "rows": len(rows), "id": building.id}
            with self._engine.begin() as connection:
                connection.execute(_MOVE_ON, values)

        self._indexer.fill(batches(), Indexes(None, building), done)
        return not stopped

    def _mend(self, building: SearchIndex) -> None:
        """What was changed, deleted or moved while we went through the packs."""
        for portion in differences(self._engine, self._server, building.uid):
            if portion.extra:
                self._server.wait(self._server.delete(building.uid, portion.extra))
            ids = [*portion.missing, *portion.outdated]
            for start in range(0, len(ids), self._batch):
                values = {"ids": ids[start : start + self._batch]}
                with self._engine.connect() as connection:
                    rows = batch_sql.run(connection, indexing_sql.BY_ID, **values)
                self._indexer.fill(_portions(rows), Indexes(None, building), lambda _: None)

    def _take_its_place(self, indexes: Indexes, building: SearchIndex) -> None:
        """A swap undoes itself when it is done twice: which index it is, not what it is called, says whether it was done."""
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


def _portions(rows: Sequence[Row]) -> Iterator[Sequence[Row]]:
    while rows:
        portion = within(rows)
        yield portion
        rows = rows[len(portion) :]
