"""Opens the archive of a data folder, with the places of its objects from Postgres."""

from __future__ import annotations

from uuid import UUID

from sqlalchemy import Engine, text

from archiver.config import Settings
from archiver.db.engine import autocommit
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

_FIND = text("SELECT pack_id, position, stored_bytes FROM objects WHERE sha256 = :sha256 AND kind = :kind")
_DICTIONARIES = text(
    "SELECT sha256, pack_id, position, stored_bytes FROM objects WHERE kind = 'dictionary' ORDER BY pack_id, position"
)
_END = text("""
    SELECT p.state, greatest(p.size_bytes, (
        SELECT o.position + o.stored_bytes FROM objects o WHERE o.pack_id = :id ORDER BY o.position DESC LIMIT 1)) AS known_end
    FROM (SELECT 1) AS one LEFT JOIN packs p ON p.id = :id""")


class DatabasePlaces:
    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    def find(self, sha256: bytes, kind: FrameKind) -> PackLocation | None:
        with autocommit(self._engine) as connection:
            row = connection.execute(_FIND, {"sha256": sha256, "kind": kind.label}).one_or_none()
        return PackLocation(row.pack_id, row.position, row.stored_bytes) if row else None

    def dictionaries(self) -> list[tuple[bytes, PackLocation]]:
        with self._engine.connect() as connection:
            rows = connection.execute(_DICTIONARIES).all()
        return [(bytes(row.sha256), PackLocation(row.pack_id, row.position, row.stored_bytes)) for row in rows]

    def known_end(self, pack_id: UUID) -> int | None:
        """Never before the last frame in `objects`, whatever the row of the pack says."""
        with self._engine.connect() as connection:
            row = connection.execute(_END, {"id": pack_id}).one()
        if row.state not in (None, PackState.OPEN):
            return None
        end: int = row.known_end or 0
        return end


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
