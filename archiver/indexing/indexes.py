"""The indexes that documents are sent to: the live one, and the one that a reindex is filling."""

from __future__ import annotations

from dataclasses import dataclass
from uuid import UUID

from sqlalchemy import Connection, Engine, text

from archiver.db.ids import uuid7
from archiver.db.sql import query
from archiver.db.states import SearchIndexState
from archiver.search.document import GENERATION, INDEX, INDEX_SETTINGS
from archiver.search.index import IndexInfo, SearchServer

LIVE_UID = INDEX
NEXT_UID = f"{INDEX}-next"

_ALL = """
    SELECT id, uid, state, generation, engine_created_at, engine_updated_at, engine_version, cursor_pack_id, cursor_position,
        done, total, is_filled FROM search_indexes ORDER BY state DESC"""
_ADD = text("""
    INSERT INTO search_indexes (id, uid, state, generation, engine_created_at, engine_version, total)
    VALUES (:id, :uid, :state, :generation, :created_at, :engine_version, :total) ON CONFLICT DO NOTHING""")


@dataclass(frozen=True, slots=True)
class SearchIndex:
    """A row of search_indexes."""

    id: UUID
    uid: str
    state: str
    generation: str
    engine_created_at: str
    engine_updated_at: str | None
    engine_version: str | None
    cursor_pack_id: UUID | None
    cursor_position: int | None
    done: int
    total: int
    is_filled: bool


@dataclass(frozen=True, slots=True)
class Indexes:
    live: SearchIndex | None
    building: SearchIndex | None

    @property
    def uids(self) -> list[str]:
        return [index.uid for index in (self.live, self.building) if index is not None]

    @property
    def ids(self) -> list[UUID]:
        return [index.id for index in (self.live, self.building) if index is not None]

    @property
    def are_old(self) -> bool:
        """This release builds different documents from those in the live index, and no reindex has begun."""
        return self.live is not None and self.live.generation != GENERATION and self.building is None


def load_indexes(connection: Connection) -> Indexes:
    rows = {row.state: row for row in query(connection, _ALL, SearchIndex)}
    return Indexes(rows.get(SearchIndexState.LIVE), rows.get(SearchIndexState.BUILDING))


def ensure_live(engine: Engine, server: SearchServer) -> Indexes:
    """The indexes, after creating a live one if necessary. An existing index is adopted, and compared later."""
    with engine.connect() as connection:
        found = load_indexes(connection)
    if found.live is None:
        info = server.ensure_index(LIVE_UID, INDEX_SETTINGS)
        add_index(engine, LIVE_UID, SearchIndexState.LIVE, info, server.version())
        with engine.connect() as connection:
            found = load_indexes(connection)
    return found


def add_index(engine: Engine, uid: str, state: SearchIndexState, info: IndexInfo, engine_version: str, total: int = 0) -> None:
    values = {
        "id": uuid7(),
        "uid": uid,
        "state": state,
        "generation": GENERATION,
        "created_at": info.created_at,
        "engine_version": engine_version,
        "total": total,
    }
    with engine.begin() as connection:
        connection.execute(_ADD, values)


def splits_words_differently(filled_by: str | None, now: str) -> bool:
    """Whether another minor version of the server filled an index: its words may be split by other rules. An index of which
    the version is not known, because an older release filled it, is taken for one of the version that runs."""
    return filled_by is not None and filled_by.split(".")[:2] != now.split(".")[:2]
