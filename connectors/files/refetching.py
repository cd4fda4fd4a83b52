"""Fetches single messages again by their keys; only the files that hold them are read."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass

from connectors.base import FailedMessage, RawMessage, Skipped
from connectors.files.detect import COMPRESSED, FileKind
from connectors.files.items import Found, FoundMessage
from connectors.files.names import SEPARATOR
from connectors.files.open_file import Changed, OpenFile
from connectors.files.reading import FileReading
from connectors.files.selection import Roots
from connectors.files.spool import FileSpool
from connectors.files.tree import FileDirectory
from connectors.files.unpacking import UnpackingRefused

_ARCHIVES = frozenset({FileKind.ZIP, FileKind.TAR, *COMPRESSED})
Got = RawMessage | FailedMessage | Skipped


@dataclass(frozen=True, slots=True)
class Refetching:
    address: str
    roots: Roots
    reading: FileReading
    spool: FileSpool
    keys: Collection[str]

    def fetch(self) -> Iterator[Got]:
        wanted = dict.fromkeys(self.keys)
        paths = {key.split(SEPARATOR)[0] for key in wanted}
        for directory in self.roots.directories(self.address) if wanted else ():
            yield from self._directory(directory, paths, wanted)
        for key in wanted:
            yield FailedMessage(key, "no longer in these files")

    def _directory(self, directory: FileDirectory, paths: Collection[str], wanted: dict[str, None]) -> Iterator[Got]:
        try:
            names = self.roots.own_names(directory, self.address)
        except OSError:
            return
        for name in names:
            path = directory.key_path(name)
            if wanted and self._may_hold(directory, path, paths):
                try:
                    with OpenFile(directory.path / name) as file:
                        yield from self._file(directory, name, path, file, paths, wanted)
                except (OSError, Changed, UnpackingRefused) as error:
                    if path in wanted:
                        del wanted[path]
                        reason = f"can't be read: {error.strerror}" if isinstance(error, OSError) else str(error)
                        yield FailedMessage(path, reason, directory.folder)

    def _may_hold(self, directory: FileDirectory, path: str, paths: Collection[str]) -> bool:
        """The file itself, or something in it, if it is an archive. A root that is an archive adds nothing to a path."""
        return (
            path in paths
            or directory.only is not None
            or any(one.startswith(f"{path}/") or path.startswith(f"{one}.") for one in paths)
        )

    def _file(
        self, directory: FileDirectory, name: str, path: str, file: OpenFile, paths: Collection[str], wanted: dict[str, None]
    ) -> Iterator[Got]:
        found = self.reading.detect(directory, name, file)
        if found.kind in _ARCHIVES:
            unpacked = self.spool.unpack(directory.path / name, found.kind, lambda _: self.reading.alive())
            inner = directory.inside(name, unpacked.folder, directory.fingerprint(file), is_archive=unpacked.is_archive)
            for below in inner.below():
                yield from self._directory(below, paths, wanted)
        elif found.kind in (FileKind.OTHER, FileKind.EMPTY):
            if path in wanted:
                del wanted[path]
                yield FailedMessage(path, found.reason, directory.folder)
            return
        else:
            for one in self.reading.messages(directory, name, file, found):
                if one.key in wanted:
                    del wanted[one.key]
                    yield self._as_fetched(one)
        if path in wanted:
            del wanted[path]
            yield Skipped(path, "readable now: its messages are archived one by one", directory.folder)

    def _as_fetched(self, one: Found) -> Got:
        if not isinstance(one, FoundMessage):
            return FailedMessage(one.key, one.reason, one.folder)
        large = self.spool.write_message(one.pieces()) if one.data is None else None
        return RawMessage(one.key, one.data, large, one.folder, one.flags, one.labels, one.received_at)
