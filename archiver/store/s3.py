"""Packs in an S3-compatible bucket. Each batch is one immutable, sealed object; compaction merges them into large ones."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from uuid import UUID

import boto3
import obstore
from boto3.exceptions import S3UploadFailedError
from botocore.config import Config
from botocore.exceptions import BotoCoreError, ClientError
from obstore.exceptions import BaseError
from obstore.store import S3Store
from pydantic import SecretStr

from archiver.config import Settings
from archiver.store.backend import PackFile, SealedPack, Written
from archiver.store.cache import BlockCache
from archiver.store.dictionaries import Trainer
from archiver.store.encoder import Record
from archiver.store.errors import LostPack, PackLocked, StoreUnavailable
from archiver.store.files import OsFiles, remove_older
from archiver.store.keys import PackKeys
from archiver.store.writer import PackWriter, pack_name
from connectors.errors import first_line

_PREFIX = "packs/"
_BATCH = "batch-"
_RETRY_SECONDS = 30


@dataclass(frozen=True, slots=True)
class Bucket:
    """The address and the credentials of a bucket."""

    name: str
    region: str
    access_key_id: str
    secret_access_key: SecretStr
    endpoint: str | None = None
    force_path_style: bool = False
    object_lock_days: int = 0

    @classmethod
    def of(cls, settings: Settings) -> Bucket:
        assert settings.storage_s3_bucket, "checked when the settings were read"
        assert settings.storage_s3_access_key_id
        assert settings.storage_s3_secret_access_key
        endpoint = settings.storage_s3_endpoint
        return cls(
            settings.storage_s3_bucket,
            settings.storage_s3_region,
            settings.storage_s3_access_key_id,
            settings.storage_s3_secret_access_key,
            endpoint.get_secret_value() if endpoint else None,
            settings.storage_s3_force_path_style,
            settings.storage_s3_object_lock_days,
        )

    def store(self, retry_seconds: int = _RETRY_SECONDS) -> S3Store:
        return S3Store(
            self.name,
            endpoint=self.endpoint,
            region=self.region,
            access_key_id=self.access_key_id,
            secret_access_key=self.secret_access_key.get_secret_value(),
            virtual_hosted_style_request=not self.force_path_style,
            retry_config={"retry_timeout": timedelta(seconds=retry_seconds)},
            client_options={"allow_http": bool(self.endpoint and self.endpoint.startswith("http://"))},
        )

    def _client(self) -> Any:
        return boto3.client(
            "s3",
            endpoint_url=self.endpoint,
            region_name=self.region,
            aws_access_key_id=self.access_key_id,
            aws_secret_access_key=self.secret_access_key.get_secret_value(),
            config=Config(s3={"addressing_style": "path" if self.force_path_style else "auto"}),
        )

    def put_locked(self, path: Path, key: str) -> None:
        """Uploads under Object Lock: the object can't be removed at any time."""
        client = self._client()
        until = datetime.now(UTC) + timedelta(days=self.object_lock_days)
        locked = {"ObjectLockMode": "COMPLIANCE", "ObjectLockRetainUntilDate": until}
        try:
            client.upload_file(str(path), self.name, key, ExtraArgs=locked)
        except (BotoCoreError, ClientError, S3UploadFailedError, OSError) as error:
            raise StoreUnavailable(f"can't store {key} in the bucket {self.name} under Object Lock: {error}") from error
        finally:
            client.close()

    def lock(self, key: str, until: datetime) -> None:
        retention = {"Mode": "COMPLIANCE", "RetainUntilDate": until}
        with closing(self._client()) as client, _translated(f"can't lock {key} in the bucket {self.name}"):
            client.put_object_retention(Bucket=self.name, Key=key, Retention=retention)

    def locked_until(self, key: str) -> datetime | None:
        """The end of a lock in compliance mode; other modes can be removed by whoever has the right."""
        with closing(self._client()) as client, _translated(f"can't read the lock of {key} in the bucket {self.name}"):
            try:
                found = client.head_object(Bucket=self.name, Key=key)
            except ClientError as error:
                if error.response.get("Error", {}).get("Code") in ("404", "NoSuchKey"):
                    return None
                raise
        until: datetime | None = found.get("ObjectLockRetainUntilDate")
        return until if found.get("ObjectLockMode") == "COMPLIANCE" else None

    def remove_versions(self, key: str) -> None:
        """All of them: a bucket with Object Lock keeps the versions of an object that was deleted by its name."""
        with closing(self._client()) as client, _translated(f"can't remove {key} from the bucket {self.name}"):
            listed = client.list_object_versions(Bucket=self.name, Prefix=key)
            for version in [*listed.get("Versions", ()), *listed.get("DeleteMarkers", ())]:
                if version["Key"] == key:
                    try:
                        client.delete_object(Bucket=self.name, Key=key, VersionId=version["VersionId"])
                    except ClientError as error:
                        if error.response.get("Error", {}).get("Code") == "AccessDenied":
                            raise PackLocked(f"{key} is locked in the bucket {self.name}") from error
                        raise


@contextmanager
def _translated(what: str) -> Iterator[None]:
    try:
        yield
    except (BotoCoreError, ClientError) as error:
        raise StoreUnavailable(f"{what}: {first_line(error)}") from error


class S3Packs:
    def __init__(
        self,
        bucket: Bucket,
        keys: PackKeys,
        trainer: Trainer,
        scratch: Path,
        cache: BlockCache,
        *,
        retry_seconds: int = _RETRY_SECONDS,
    ) -> None:
        self._bucket = bucket
        self._keys = keys
        self._trainer = trainer
        self._scratch = scratch
        self._cache = cache
        self._store = bucket.store(retry_seconds)
        self._sizes: dict[UUID, int] = {}
        scratch.mkdir(parents=True, exist_ok=True, mode=0o700)

    def append(self, records: Sequence[Record]) -> Written:
        self._trainer.train_if_due()
        folder = Path(tempfile.mkdtemp(dir=self._scratch, prefix=_BATCH))
        try:
            writer = PackWriter.create(folder, self._keys.active, self._trainer, _Volatile())
            writer.skip_dictionaries(self._trainer.stored)
            dictionary = self._trainer.current
            batch = writer.append(records)
            sealed = SealedPack(writer.pack_id, 0, writer.seal())
            self._upload(writer.path, writer.pack_id)
            if dictionary is not None:
                self._trainer.stored.add(dictionary.id)
            return Written(batch, (SealedPack(sealed.id, writer.size, sealed.seal),))
        finally:
            shutil.rmtree(folder, ignore_errors=True)

    def _upload(self, path: Path, pack_id: UUID) -> None:
        key = _PREFIX + pack_name(pack_id)
        if self._bucket.object_lock_days:
            self._bucket.put_locked(path, key)
            return
        try:
            obstore.put(self._store, key, path)
        except (BaseError, OSError) as error:
            raise StoreUnavailable(f"can't store {key} in the bucket {self._bucket.name}: {first_line(error)}") from error

    def open(self, pack_id: UUID) -> PackFile:
        name = pack_name(pack_id)
        key = _PREFIX + name
        size = self._size(pack_id, name)

        def fetch(offset: int, length: int) -> bytes:
            try:
                if (offset, length) == (
                    0,
                    size,
                ):  # some servers answer a range that covers everything like a request without a range
                    return bytes(obstore.get(self._store, key).bytes())
                return bytes(obstore.get_range(self._store, key, start=offset, length=length))
            except FileNotFoundError:
                raise LostPack(name) from None
            except BaseError as error:
                raise StoreUnavailable(f"the bucket {self._bucket.name} does not respond: {first_line(error)}") from error

        return PackFile(pack_id, name, size, lambda offset, length: self._cache.read(name, size, offset, length, fetch))

    def _size(self, pack_id: UUID, name: str) -> int:
        if pack_id not in self._sizes:
            try:
                self._sizes[pack_id] = obstore.head(self._store, _PREFIX + name)["size"]
            except FileNotFoundError:
                raise LostPack(name) from None
            except BaseError as error:
                raise StoreUnavailable(f"the bucket {self._bucket.name} does not respond: {first_line(error)}") from error
        return self._sizes[pack_id]

    def packs(self) -> Iterator[UUID]:
        found = []
        try:
            for page in obstore.list(self._store, prefix=_PREFIX):
                for item in page:
                    stem = item["path"].removeprefix(_PREFIX).removesuffix(".pack")
                    try:
                        found.append(UUID(stem))
                    except ValueError:
                        continue  # not ours
        except BaseError as error:
            raise StoreUnavailable(f"the bucket {self._bucket.name} does not respond: {first_line(error)}") from error
        return iter(sorted(found))

    def hold(self, pack_id: UUID, rest_seconds: float) -> Callable[[], None] | None:
        """Objects are never appended to; only an object whose batch may not be committed yet is skipped."""
        made_at = (pack_id.int >> 80) / 1000  # UUIDv7: milliseconds since 1970
        if datetime.now(UTC).timestamp() - made_at < rest_seconds:
            return None
        return lambda: None

    def release_idle(self) -> None:
        """Objects are complete when they are written."""

    def put(self, finished: Path, pack_id: UUID) -> None:
        self._upload(finished, pack_id)

    def remove(self, pack_id: UUID) -> None:
        name = pack_name(pack_id)
        self._cache.forget(name)
        self._sizes.pop(pack_id, None)
        if self.can_lock:
            self._bucket.remove_versions(_PREFIX + name)
            return
        try:
            obstore.delete(self._store, _PREFIX + name)
        except FileNotFoundError:
            return
        except BaseError as error:
            raise StoreUnavailable(f"can't remove {name} from the bucket {self._bucket.name}: {first_line(error)}") from error

    @property
    def can_lock(self) -> bool:
        return self._bucket.object_lock_days > 0

    def lock_until(self, pack_id: UUID, until: datetime) -> None:
        self._bucket.lock(_PREFIX + pack_name(pack_id), until)

    def locked_until(self, pack_id: UUID) -> datetime | None:
        return self._bucket.locked_until(_PREFIX + pack_name(pack_id))

    def sweep(self, age: timedelta) -> None:
        remove_older(self._scratch.glob(f"{_BATCH}*"), age)

    def close(self) -> None:
        """Nothing is held open."""


class _Volatile(OsFiles):
    """For files that exist only until they are uploaded: the bucket makes them durable."""

    def fsync(self, descriptor: int) -> None:
        pass

    def fsync_folder(self, folder: Path) -> None:
        pass
