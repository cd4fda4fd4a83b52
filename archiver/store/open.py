"""Opens the archive of a data folder, with the places of its objects from Postgres."""

from __future__ import annotations

from dataclasses import dataclass
from uuid import UUID

from sqlalchemy import Engine

from archiver.config import Settings
from archiver.db.engine import autocommit
from archiver.db.sql import query, query_one, query_optional
from archiver.db.states import PackState
from archiver.errors import ConfigError
from archiver.secrets import storage_keyring
from archiver.store.archive import Archive
from archiver.store.backend import Backend
from archiver.store.cache import BlockCache
from archiver.store.dictionaries import Trainer
from archiver.store.frames import FrameKind
from archiver.store.keys import PackKeys
from archiver.store.local import LocalPacks
from archiver.store.pack import PackLocation

_FIND = """
    SELECT pack_id, position AS offset, stored_bytes AS length FROM objects WHERE sha256 = :sha256 AND kind = :kind"""
_DICTIONARIES = """
    SELECT sha256, pack_id, position, stored_bytes FROM objects WHERE kind = 'dictionary' ORDER BY pack_id, position"""
_END = """
    SELECT p.state, greatest(p.size_bytes, (
        SELECT o.position + o.stored_bytes FROM objects o WHERE o.pack_id = :id ORDER BY o.position DESC LIMIT 1)) AS known_end
    FROM (SELECT 1) AS one LEFT JOIN packs p ON p.id = :id"""


@dataclass(frozen=True, slots=True)
class StoredDictionary:
    sha256: bytes
    pack_id: UUID
    position: int
    stored_bytes: int


@dataclass(frozen=True, slots=True)
class KnownPackEnd:
    state: PackState | None
    """None for a pack that the database does not know."""
    known_end: int | None


class DatabasePlaces:
    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    def find(self, sha256: bytes, kind: FrameKind) -> PackLocation | None:
        with autocommit(self._engine) as connection:
            return query_optional(connection, _FIND, PackLocation, sha256=sha256, kind=kind.label)

    def dictionaries(self) -> list[tuple[bytes, PackLocation]]:
        with self._engine.connect() as connection:
            rows = query(connection, _DICTIONARIES, StoredDictionary)
        return [(row.sha256, PackLocation(row.pack_id, row.position, row.stored_bytes)) for row in rows]

    def known_end(self, pack_id: UUID) -> int | None:
        """Never before the last frame in `objects`, whatever the row of the pack says."""
        with self._engine.connect() as connection:
            row = query_one(connection, _END, KnownPackEnd, id=pack_id)
        return row.known_end or 0 if row.state in (None, PackState.OPEN) else None


def open_archive(settings: Settings, engine: Engine) -> Archive:
    """For reading and writing. Raises WrongKey before anything is touched."""
    keys = PackKeys(storage_keyring(settings))
    places, trainer = DatabasePlaces(engine), Trainer()
    backend = _backend(settings, keys, trainer, places)
    archive = Archive(backend, keys, trainer, places)
    archive.check_key()
    archive.use_newest_dictionary()
    return archive


def _backend(settings: Settings, keys: PackKeys, trainer: Trainer, places: DatabasePlaces) -> Backend:
    data = settings.archiver_data
    if settings.storage_type == "local":
        return LocalPacks(data / "packs", keys, trainer, places.known_end)
    try:
        from archiver.store.s3 import Bucket, S3Packs  # boto3 is large, and most archives do without
    except ModuleNotFoundError as error:
        raise ConfigError(
            f"STORAGE_TYPE=s3 needs packages that are not installed ({error.name}): install Archiver with the extra 's3'"
        ) from error

    cache = BlockCache(data / "cache", settings.storage_s3_cache_bytes)
    return S3Packs(Bucket.of(settings), keys, trainer, data / "scratch", cache)
