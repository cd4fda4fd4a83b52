"""Reads the streams of compound files (MS-CFB), the container of Office documents before 2007.

A damaged chain of sectors ends at the damage. No chain is longer than the file, so a cycle ends as well.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass
from mmap import mmap

_HEADER = struct.Struct("<8s16sHHHHH6xIIIIIIIII")
_MAGIC = b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1"
_ENTRY_BYTES = 128
_MINI_CUTOFF = 4096
_MINI_BYTES = 64
_LAST = 0xFFFFFFFA  # numbers from here on have special meanings
_STORAGE, _STREAM, _ROOT = 1, 2, 5
_MOST_ENTRIES = 100_000


@dataclass(frozen=True, slots=True)
class _Entry:
    name: str
    kind: int
    left: int
    right: int
    child: int
    start: int
    size: int


class NotCompound(ValueError):
    pass


class CompoundFile:
    """The streams of the document itself. Those of embedded documents are in storages, see `storage`."""

    def __init__(self, data: bytes | mmap) -> None:
        if len(data) < 512 or data[: len(_MAGIC)] != _MAGIC:
            raise NotCompound
        self._data = data
        fields = _HEADER.unpack_from(data)
        major, shift = fields[3], fields[5]
        if shift not in (9, 12):
            raise NotCompound
        self._sector = 1 << shift
        self._has_large = major >= 4
        self._directory, mini_start, difat_start = fields[9], fields[12], fields[14]
        self._fat = self._read_fat(difat_start)
        self._entries = self._read_entries()
        self._mini_fat = _numbers(self._chain(mini_start))
        self._mini: bytes | None = None
        if not self._entries:
            raise NotCompound
        self.names = self._names_below(0)

    @property
    def root(self) -> Storage:
        return Storage(self, 0)

    def stream(self, *names: str) -> bytes | None:
        """The stream with the first of these names that exists, ignoring case."""
        for name in names:
            entry = self.names.get(name.casefold())
            if entry is not None and entry.kind == _STREAM:
                return self._content(entry)
        return None

    def _read_fat(self, difat_start: int) -> tuple[int, ...]:
        sectors = list(struct.unpack_from("<109I", self._data, 76))
        number, seen = difat_start, 0
        while number < _LAST and seen <= len(self._data) // self._sector:
            block = _numbers(self._at(number))
            if len(block) < 2:
                break
            sectors += block[:-1]
            number, seen = block[-1], seen + 1
        most = len(self._data) // self._sector + 1
        used = list(dict.fromkeys(sector for sector in sectors if sector < most))
        return _numbers(b"".join(map(self._at, used)))

    def _at(self, sector: int) -> bytes:
        start = (sector + 1) * self._sector
        return self._data[start : start + self._sector]

    def _chain(self, start: int, size: int | None = None) -> bytes:
        content = b"".join(self._sectors(start, size))
        return content if size is None else content[:size]

    def _sectors(self, start: int, size: int | None) -> Iterator[bytes]:
        left = len(self._data) // self._sector + 1
        if size is not None:
            left = min(left, -(-size // self._sector))
        number = start
        while number < _LAST and left:
            yield self._at(number)
            number = self._fat[number] if number < len(self._fat) else _LAST
            left -= 1

    def _read_entries(self) -> list[_Entry]:
        table = self._chain(self._directory)[: _MOST_ENTRIES * _ENTRY_BYTES]
        found = []
        for at in range(0, len(table) - _ENTRY_BYTES + 1, _ENTRY_BYTES):
            length, kind = struct.unpack_from("<HB", table, at + 64)
            left, right, child = struct.unpack_from("<III", table, at + 68)
            start, size = struct.unpack_from("<IQ", table, at + 116)
            name = table[at : at + max(0, min(length, 64) - 2)].decode("utf-16-le", "replace")
            found.append(_Entry(name, kind, left, right, child, start, size if self._has_large else size & 0xFFFFFFFF))
        return found

    def _names_below(self, number: int) -> dict[str, _Entry]:
        return {name: self._entries[at] for name, at in self._numbers_below(number).items()}

    def _numbers_below(self, number: int) -> dict[str, int]:
        found: dict[str, int] = {}
        waiting, seen = [self._entries[number].child], {number}
        while waiting:
            number = waiting.pop()
            if number >= len(self._entries) or number in seen:
                continue
            seen.add(number)
            entry = self._entries[number]
            found.setdefault(entry.name.casefold(), number)
            waiting += [entry.left, entry.right]
        return found

    def _content(self, entry: _Entry) -> bytes:
        if entry.size >= _MINI_CUTOFF:
            return self._chain(entry.start, entry.size)
        if self._mini is None:
            root = self._entries[0]
            self._mini = self._chain(root.start, root.size)
        pieces: list[bytes] = []
        number, left = entry.start, len(self._mini_fat) + 1
        while number < _LAST and left and len(pieces) * _MINI_BYTES < entry.size:
            pieces.append(self._mini[number * _MINI_BYTES : (number + 1) * _MINI_BYTES])
            number = self._mini_fat[number] if number < len(self._mini_fat) else _LAST
            left -= 1
        return b"".join(pieces)[: entry.size]


class Storage:
    """A folder of a compound file. Names ignore case."""

    def __init__(self, file: CompoundFile, number: int) -> None:
        self._file = file
        self._below = file._numbers_below(number)

    def stream(self, name: str) -> bytes | None:
        entry = self._entry(name, _STREAM)
        return self._file._content(entry) if entry is not None else None

    def pieces(self, name: str, piece_bytes: int) -> Iterator[bytes]:
        """A stream of any size; each piece but the last has `piece_bytes`."""
        entry = self._entry(name, _STREAM)
        if entry is None:
            return
        if entry.size < _MINI_CUTOFF:
            yield self._file._content(entry)
            return
        held, left = bytearray(), entry.size
        for sector in self._file._sectors(entry.start, entry.size):
            held += sector[:left]
            left -= min(left, len(sector))
            if len(held) >= piece_bytes:
                yield bytes(held[:piece_bytes])
                del held[:piece_bytes]
        if held:
            yield bytes(held)

    def size(self, name: str) -> int:
        entry = self._entry(name, _STREAM)
        return entry.size if entry is not None else 0

    def storage(self, name: str) -> Storage | None:
        entry = self._entry(name, _STORAGE)
        return Storage(self._file, self._below[name.casefold()]) if entry is not None else None

    def streams(self) -> Iterator[str]:
        return (name for name in self._below if self._entry(name, _STREAM))

    def storages(self, prefix: str) -> Iterator[Storage]:
        """In the order of their names."""
        for name in sorted(self._below):
            if name.startswith(prefix.casefold()) and (found := self.storage(name)) is not None:
                yield found

    def _entry(self, name: str, kind: int) -> _Entry | None:
        number = self._below.get(name.casefold())
        entry = self._file._entries[number] if number is not None else None
        return entry if entry is not None and entry.kind == kind else None


def _numbers(block: bytes) -> tuple[int, ...]:
    return struct.unpack(f"<{len(block) // 4}I", block[: len(block) // 4 * 4])
