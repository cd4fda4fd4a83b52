"""PST, OST, MSG and OLM files in a folder of mail files. Their items become messages elsewhere (connectors.outlook)."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Protocol

from connectors.files.detect import FileKind
from connectors.files.header import header_date, header_of
from connectors.files.items import Found, FoundMessage, Remark
from connectors.files.names import SEPARATOR, key_of, role_of, shown
from connectors.files.open_file import OpenFile
from connectors.files.settings import FilesSettings
from connectors.files.tree import FileDirectory
from connectors.outlook import MSG, OLM, PST, OutlookEntry, OutlookFile, OutlookUnreadable
from connectors.selection import date_rule, folder_rule

_FOLDER_CHARS = 500
_KINDS = {FileKind.PST: PST, FileKind.MSG: MSG, FileKind.OLM: OLM}


class OpenOutlook(Protocol):
    def __call__(self, descriptor: int, kind: str, *, recover: bool) -> OutlookFile: ...


@dataclass(frozen=True, slots=True)
class OutlookReading:
    settings: FilesSettings
    open: OpenOutlook
    notes: dict[str, str]
    alive: Callable[[], None]

    def found(self, directory: FileDirectory, name: str, file: OpenFile, kind: FileKind, start: int) -> Iterator[Found]:
        path = directory.key_path(name)
        folder = directory.folder if kind is FileKind.MSG else directory.folder_of_file(name)
        try:
            opened = self.open(file.descriptor, _KINDS[kind], recover=self.settings.include_deleted)
        except OutlookUnreadable as error:
            yield Remark(path, folder, f"can't be read: {error}", True)
            return
        try:
            if opened.summary:
                self.notes[path] = opened.summary
            for entry in opened.entries(start):
                self.alive()
                yield from self._entry(entry, path, folder, file.size * (entry.number + 1) // max(1, opened.total))
        finally:
            opened.close()

    def _entry(self, entry: OutlookEntry, path: str, top: str, read_bytes: int) -> Iterator[Found]:
        folder = "/".join((top, *map(shown, entry.folder)))[:_FOLDER_CHARS]
        key = f"{path}{SEPARATOR}item{SEPARATOR}{entry.number}"
        if entry.is_left_out:  # no message, so its key is that of a file in the file
            yield Remark("/".join((path, *map(shown, entry.folder), str(entry.number))), folder, entry.error, False)
            return
        if entry.error:
            yield Remark(key, folder, entry.error, True)
            return
        for problem in entry.problems:
            yield Remark(key, folder, f"archived, but not as a whole: {problem}", True)
        yield self._message(entry, path, folder, read_bytes)

    def _message(self, entry: OutlookEntry, path: str, folder: str, read_bytes: int) -> FoundMessage:
        pieces = _pieces(entry)
        digest, size, head = hashlib.sha256(), 0, b""
        for piece in pieces():
            head = head or piece
            digest.update(piece)
            size += len(piece)
            self.alive()
        return FoundMessage(
            key_of(path, digest.hexdigest(), entry.node),
            folder,
            size,
            entry.data,
            pieces,
            entry.number + 1,
            entry.flags,
            (),
            entry.received_at,
            self._rule(folder, header_of(head)),
            read_bytes=read_bytes,
        )

    def _rule(self, folder: str, header: bytes) -> str | None:
        rule = folder_rule(self.settings, folder, role_of(folder))
        if rule is None and self.settings.has_dates:
            rule = date_rule(self.settings, header_date(header))
        return rule


def _pieces(entry: OutlookEntry) -> Callable[[], Iterator[bytes]]:
    data = entry.data
    if data is not None:
        return lambda: iter((data,))
    assert entry.pieces is not None
    return entry.pieces
