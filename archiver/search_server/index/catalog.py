"""The catalog of indexes: their settings, and the engine of each."""

from __future__ import annotations

import logging
import shutil
import time
import uuid
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from archiver.search_server import timestamps
from archiver.search_server.errors import ApiError, index_not_found
from archiver.search_server.index.document_fields import Attributes
from archiver.search_server.index.engine import Engine, IndexDamaged, rebuild
from archiver.search_server.index.plan import FieldPlan
from archiver.search_server.index.settings import full_settings
from archiver.search_server.state import Row, ServerState

log = logging.getLogger("archiver.search")


@dataclass(frozen=True, slots=True)
class CatalogEntry:
    """The current state of an index. A change creates a new entry, so that holders of the old one keep a consistent view."""

    uid: str
    primary_key: str | None
    explicit: dict[str, Any]
    settings: dict[str, Any]
    created_at: str
    updated_at: str
    engine: Engine

    def shown(self) -> dict[str, Any]:
        return {"uid": self.uid, "createdAt": self.created_at, "updatedAt": self.updated_at, "primaryKey": self.primary_key}


class Catalog:
    """Loads engines on first use. Only the writer thread makes changes."""

    def __init__(self, state: ServerState, data: Path) -> None:
        self._state = state
        self._folder = data / "indexes"
        self._damaged = data / "damaged"
        self._folder.mkdir(parents=True, exist_ok=True)
        self._engines: dict[str, Engine] = {}
        self._entries: dict[str, CatalogEntry] = {}
        for row in state.all("SELECT * FROM indexes ORDER BY uid"):
            self._entries[row["uid"]] = self._entry(row)
        self._remove_orphans()

    def find(self, uid: str) -> CatalogEntry | None:
        return self._entries.get(uid)

    def get(self, uid: str) -> CatalogEntry:
        entry = self._entries.get(uid)
        if entry is None:
            raise index_not_found(uid)
        return entry

    def all(self) -> list[CatalogEntry]:
        return sorted(self._entries.values(), key=lambda entry: entry.uid)

    def create(self, uid: str, primary_key: str | None) -> CatalogEntry:
        """Inside the transaction that ends the task."""
        if uid in self._entries:
            raise ApiError("index_already_exists", f"Index `{uid}` already exists.")
        attributes = Attributes([], set(), [])
        engine = Engine.create(self._new_folder(), FieldPlan.of(full_settings({})), attributes)
        now = timestamps.now()
        self._state.insert(
            "indexes",
            {
                "uid": uid,
                "folder": engine.folder.name,
                "primary_key": primary_key,
                "settings": {},
                "attributes": _pack(attributes),
                "created_at": now,
                "updated_at": now,
            },
        )
        self._engines[engine.folder.name] = engine
        return self.reload(uid)

    def update(self, uid: str, **values: Any) -> None:
        """Inside the transaction that ends the task: a client that is told of the success sees the change."""
        self._state.update("indexes", "uid", uid, {**values, "updated_at": timestamps.now()})
        self.reload(uid)

    def delete(self, uid: str) -> None:
        """Inside the transaction that ends the task; `discard` then removes the files."""
        self._state.run("DELETE FROM indexes WHERE uid = ?", [uid])
        self._entries.pop(uid, None)

    def rename(self, moves: list[tuple[str, str]]) -> None:
        """Inside the transaction that ends the task. All at once, so that two indexes can swap names."""
        for number, (old, _) in enumerate(moves):
            self._state.run("UPDATE indexes SET uid = ? WHERE uid = ?", [f"\x00{number}", old])
        for number, (_, new) in enumerate(moves):
            self._state.run("UPDATE indexes SET uid = ? WHERE uid = ?", [new, f"\x00{number}"])
        self.resync()

    def resync(self) -> None:
        """Reloads the entries from the state file."""
        rows = self._state.all("SELECT * FROM indexes")
        entries = {row["uid"]: self._entry(row) for row in rows}
        self._entries = entries

    def save_attributes(self, entry: CatalogEntry) -> None:
        """Before the documents that use them are committed."""
        attributes = entry.engine.attributes
        if attributes.changed:
            attributes.changed = False
            self._state.update("indexes", "uid", entry.uid, {"attributes": _pack(attributes)})

    def rebuilt(self, entry: CatalogEntry, plan: FieldPlan) -> Engine:
        """A second engine with the same documents, built by another plan."""
        folder = self._new_folder()
        try:
            engine = rebuild(entry.engine, folder, plan, entry.primary_key or "id")
        except BaseException:
            shutil.rmtree(folder, ignore_errors=True)
            raise
        self._engines[folder.name] = engine
        return engine

    def reload(self, uid: str) -> CatalogEntry:
        row = self._state.one("SELECT * FROM indexes WHERE uid = ?", [uid])
        if row is None:
            raise index_not_found(uid)
        entry = self._entries[uid] = self._entry(row)
        return entry

    def discard(self, engine: Engine) -> None:
        self._engines.pop(engine.folder.name, None)
        engine.remove()

    def rest(self) -> None:
        for engine in list(self._engines.values()):
            engine.rest()

    def close(self) -> None:
        for engine in self._engines.values():
            engine.let_go()

    def replace_lost(self) -> None:
        """An index whose files were removed at run time starts over empty, as a damaged one does."""
        for entry in list(self._entries.values()):
            if entry.engine.is_there():
                continue
            row = self._state.one("SELECT * FROM indexes WHERE uid = ?", [entry.uid])
            if row is not None:
                self._engines.pop(entry.engine.folder.name, None)
                entry.engine.let_go()
                engine = self._set_aside(row, entry.settings, entry.engine.attributes, "its files were removed")
                self._engines[engine.folder.name] = engine
                self.reload(entry.uid)

    def _entry(self, row: Row) -> CatalogEntry:
        settings = full_settings(row["settings"])
        return CatalogEntry(
            uid=row["uid"],
            primary_key=row["primary_key"],
            explicit=row["settings"],
            settings=settings,
            created_at=row["created_at"],
            updated_at=row["updated_at"],
            engine=self._engine(row, settings),
        )

    def _engine(self, row: Row, settings: dict[str, Any]) -> Engine:
        name = row["folder"]
        if name in self._engines:
            return self._engines[name]
        attributes = _unpack(row["attributes"])
        try:
            engine = Engine.open(self._folder / name, attributes)
        except IndexDamaged as error:
            engine = self._set_aside(row, settings, attributes, str(error))
        self._engines[engine.folder.name] = engine
        return engine

    def _set_aside(self, row: Row, settings: dict[str, Any], attributes: Attributes, reason: str) -> Engine:
        """Moves a damaged index away and starts an empty one; Archiver notices that it is empty and fills it again."""
        self._damaged.mkdir(exist_ok=True)
        kept = self._damaged / f"{row['uid']}-{row['folder']}-{int(time.time())}"
        if (self._folder / row["folder"]).exists():
            (self._folder / row["folder"]).rename(kept)
        log.error("index_damaged index=%s reason=%s kept=%s", row["uid"], reason, kept)
        engine = Engine.create(self._new_folder(), FieldPlan.of(settings), attributes)
        with self._state.transaction():
            self._state.update("indexes", "uid", row["uid"], {"folder": engine.folder.name, "updated_at": timestamps.now()})
            reports = self._state.note("damaged") or []
            report = {"indexUid": row["uid"], "at": timestamps.now(), "reason": reason, "kept": str(kept)}
            self._state.set_note("damaged", [*reports, report])
        return engine

    def _new_folder(self) -> Path:
        return self._folder / uuid.uuid4().hex

    def _remove_orphans(self) -> None:
        for folder in self._folder.iterdir():
            if folder.name not in self._engines:
                shutil.rmtree(folder, ignore_errors=True)


def _pack(attributes: Attributes) -> dict[str, Any]:
    return {"names": attributes.names, "folded": sorted(attributes.folded), "long": attributes.long}


def _unpack(value: dict[str, Any]) -> Attributes:
    return Attributes(value["names"], set(value["folded"]), value["long"])
