"""Where backups are stored: a folder, or a prefix of an S3-compatible bucket.

A file is written completely, read back and compared before anything refers to it.
"""

from __future__ import annotations

import hashlib
import os
import tempfile
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Protocol
from urllib.parse import urlsplit

from archiver.config import Settings
from archiver.errors import ArchiverError, ConfigError, UsageError
from archiver.store.errors import StoreUnavailable
from archiver.store.files import OsFiles, write_all
from connectors.errors import first_line

if TYPE_CHECKING:
    from archiver.store.s3 import Bucket

PIECE_BYTES = 1 << 20


@dataclass(frozen=True, slots=True)
class WrittenFile:
    bytes: int
    sha256: str


class BackupTarget(Protocol):
    """Names are relative paths with `/`. Errors are OSError or ArchiverError."""

    name: str
    """For people; without secrets."""

    def prepare(self) -> None:
        """Before the first write: creates the place, and removes what killed writers left."""

    def sizes(self, folder: str = "") -> dict[str, int]:
        """The files in a folder, without those in folders below it: name within the folder → size."""

    def write(self, name: str, pieces: Iterable[bytes]) -> WrittenFile:
        """Durable, and read back, when it returns. Until then a file of this name is unchanged, except in a bucket's check."""

    def read(self, name: str) -> Iterator[bytes]:
        """Raises FileNotFoundError."""

    def read_at(self, name: str, offset: int, length: int) -> bytes:
        """May return less at the end. Raises FileNotFoundError."""

    def remove(self, name: str) -> None:
        """No error if it is gone already."""

    def as_file(self, name: str, scratch: Path) -> AbstractContextManager[Path]:
        """The content as a local file for the length of the block; not to be changed."""


def open_target(settings: Settings, address: str) -> BackupTarget:
    """`s3://bucket/prefix`, or a folder. Opens no connection."""
    parts = urlsplit(address)
    if parts.scheme == "s3":
        return _bucket_target(settings, parts.netloc, parts.path.strip("/"))
    if "://" in address:
        raise UsageError(f"{parts.scheme}://…: expected a folder, or s3://bucket/prefix")
    folder = Path(os.path.abspath(Path(address).expanduser()))  # noqa: PTH100  (symbolic links are used on purpose)
    data = settings.archiver_data
    if folder.resolve() in (data.resolve(), (data / "packs").resolve()):
        raise UsageError(f"{address}: this is the archive itself; choose another folder, on another disk")
    return FolderTarget(folder)


def _bucket_target(settings: Settings, bucket: str, prefix: str) -> BackupTarget:
    try:
        from archiver.store.s3 import Bucket
    except ModuleNotFoundError as error:
        raise ConfigError(
            f"s3:// needs packages that are not installed ({error.name}): install Archiver with the extra 's3'"
        ) from error

    endpoint = settings.backup_s3_endpoint or settings.storage_s3_endpoint
    key_id = settings.backup_s3_access_key_id or settings.storage_s3_access_key_id
    secret = settings.backup_s3_secret_access_key or settings.storage_s3_secret_access_key
    if not bucket or not key_id or not secret:
        raise ConfigError(
            "a backup to s3://bucket/prefix needs a bucket, BACKUP_S3_ACCESS_KEY_ID and BACKUP_S3_SECRET_ACCESS_KEY"
        )
    path_style = settings.backup_s3_force_path_style
    return BucketTarget(
        Bucket(
            bucket,
            settings.backup_s3_region or settings.storage_s3_region,
            key_id,
            secret,
            endpoint.get_secret_value() if endpoint else None,
            settings.storage_s3_force_path_style if path_style is None else path_style,
        ),
        prefix,
    )


class FolderTarget:
    """Readable by its owner only."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.name = str(folder)
        self._files = OsFiles()

    def prepare(self) -> None:
        for path in (self.folder, self.folder / "packs"):
            path.mkdir(parents=True, exist_ok=True)
            path.chmod(0o700)
            for left in path.glob(".*.new"):
                left.unlink(missing_ok=True)

    def sizes(self, folder: str = "") -> dict[str, int]:
        try:
            with os.scandir(self.folder / folder) as entries:
                return {one.name: one.stat().st_size for one in entries if one.is_file() and not one.name.startswith(".")}
        except FileNotFoundError:
            return {}

    def write(self, name: str, pieces: Iterable[bytes]) -> WrittenFile:
        path = self.folder / name
        temporary = path.with_name(f".{path.name}.new")
        try:
            written = self._write(temporary, pieces)
            _compare(self.name, name, written, self._read(temporary))
        except BaseException:
            temporary.unlink(missing_ok=True)
            raise
        self._files.rename(temporary, path)
        self._files.fsync_folder(path.parent)
        return written

    def _write(self, path: Path, pieces: Iterable[bytes]) -> WrittenFile:
        counted = _Counted()
        descriptor = self._files.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        try:
            for piece in counted.count(pieces):
                write_all(self._files, descriptor, piece)
            self._files.fsync(descriptor)
            if hasattr(os, "posix_fadvise"):  # so that it is read from the disk, not from memory
                os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
        finally:
            os.close(descriptor)
        return counted.written()

    def read(self, name: str) -> Iterator[bytes]:
        return self._read(self.folder / name)

    @staticmethod
    def _read(path: Path) -> Iterator[bytes]:
        with path.open("rb") as file:
            yield from iter(lambda: file.read(PIECE_BYTES), b"")

    def read_at(self, name: str, offset: int, length: int) -> bytes:
        with (self.folder / name).open("rb") as file:
            return os.pread(file.fileno(), length, offset)

    def remove(self, name: str) -> None:
        (self.folder / name).unlink(missing_ok=True)

    def as_file(self, name: str, scratch: Path) -> AbstractContextManager[Path]:
        return nullcontext(self.folder / name)


class BucketTarget:
    def __init__(self, bucket: Bucket, prefix: str) -> None:
        self.name = f"s3://{bucket.name}/{prefix}".rstrip("/")
        self._prefix = f"{prefix}/" if prefix else ""
        self._store = bucket.store()

    def prepare(self) -> None:
        """An interrupted upload leaves no object."""

    def sizes(self, folder: str = "") -> dict[str, int]:
        import obstore

        prefix = f"{self._prefix}{folder}/" if folder else self._prefix
        with self._explained("can't be listed"):
            items = [item for page in obstore.list(self._store, prefix=prefix or None) for item in page]
        names = {item["path"].removeprefix(prefix): item["size"] for item in items}
        return {name: size for name, size in names.items() if len(PurePosixPath(name).parts) == 1}

    def write(self, name: str, pieces: Iterable[bytes]) -> WrittenFile:
        import obstore

        counted, failed = _Counted(), _Failure()
        try:
            with self._explained(f"can't store {name}"):
                obstore.put(self._store, self._prefix + name, failed.watch(counted.count(pieces)))
        except BaseException:
            failed.check()  # what the caller's own pieces raised
            raise
        failed.check()
        written = counted.written()
        _compare(self.name, name, written, self.read(name))
        return written

    def read(self, name: str) -> Iterator[bytes]:
        import obstore

        with self._explained(f"can't read {name}"):
            for piece in obstore.get(self._store, self._prefix + name).stream(min_chunk_size=PIECE_BYTES):
                yield bytes(piece)

    def read_at(self, name: str, offset: int, length: int) -> bytes:
        import obstore
        from obstore.exceptions import GenericError

        with self._explained(f"can't read {name}"):
            try:
                return bytes(obstore.get_range(self._store, self._prefix + name, start=offset, length=length))
            except GenericError:  # some servers answer some ranges with the whole object, which this client refuses
                return bytes(obstore.get(self._store, self._prefix + name).bytes())[offset : offset + length]

    def remove(self, name: str) -> None:
        import obstore

        with suppress(FileNotFoundError), self._explained(f"can't remove {name}"):
            obstore.delete(self._store, self._prefix + name)

    @contextmanager
    def as_file(self, name: str, scratch: Path) -> Iterator[Path]:
        scratch.mkdir(parents=True, exist_ok=True, mode=0o700)
        with tempfile.NamedTemporaryFile(dir=scratch, prefix="backup-") as file:
            for piece in self.read(name):
                file.write(piece)
            file.flush()
            yield Path(file.name)

    @contextmanager
    def _explained(self, what: str) -> Iterator[None]:
        from obstore.exceptions import BaseError

        try:
            yield
        except FileNotFoundError:
            raise
        except BaseError as error:
            raise StoreUnavailable(f"{self.name}: {what}: {first_line(error)}") from error


class _Counted:
    def __init__(self) -> None:
        self._digest = hashlib.sha256()
        self._bytes = 0

    def count(self, pieces: Iterable[bytes]) -> Iterator[bytes]:
        for piece in pieces:
            self._digest.update(piece)
            self._bytes += len(piece)
            yield piece

    def written(self) -> WrittenFile:
        return WrittenFile(self._bytes, self._digest.hexdigest())


class _Failure:
    """What the iterator of pieces raised: the library that consumes it reports it as an error of its own."""

    def __init__(self) -> None:
        self._error: BaseException | None = None

    def watch(self, pieces: Iterator[bytes]) -> Iterator[bytes]:
        try:
            yield from pieces
        except BaseException as error:
            self._error = error
            raise

    def check(self) -> None:
        if self._error is not None:
            raise self._error


def _compare(target: str, name: str, written: WrittenFile, pieces: Iterator[bytes]) -> None:
    found = _Counted()
    for _ in found.count(pieces):
        pass
    if found.written() != written:
        raise ArchiverError(f"{target}: {name} was read back with other content than was written: check the disk or the server")


def digest_of(pieces: Iterator[bytes], on_piece: Callable[[], None] = lambda: None) -> WrittenFile:
    found = _Counted()
    for _ in found.count(pieces):
        on_piece()
    return found.written()
