"""Sets of UIDs as ranges: a million of them may take as little as two numbers."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from connectors.imap.errors import Broken

_LARGEST = 0xFFFFFFFF
_MOST = 50_000_000
_PIECES = 300
"""Limit of a set in a command: servers need not accept lines longer than 8 KiB (RFC 7162, section 4)."""


@dataclass(frozen=True, slots=True)
class Uids:
    """Ascending, without duplicates."""

    ranges: tuple[tuple[int, int], ...] = ()

    @classmethod
    def parse(cls, text: bytes) -> Uids:
        """`1:4,7`, as in ESEARCH responses."""
        pairs = []
        for piece in filter(None, text.split(b",")):
            first, _, last = piece.partition(b":")
            if not first.isdigit() or (last and not last.isdigit()) or len(piece) > 21:
                raise Broken("a set of UIDs that can't be read")
            low, high = int(first), int(last or first)
            pairs.append((min(low, high), max(low, high)))
        return cls._join(pairs)

    @classmethod
    def of(cls, numbers: Iterable[int]) -> Uids:
        return cls._join([(number, number) for number in numbers])

    @classmethod
    def _join(cls, pairs: list[tuple[int, int]]) -> Uids:
        joined: list[tuple[int, int]] = []
        for low, high in sorted(pairs):
            if low < 1 or high > _LARGEST:
                raise Broken("an invalid UID")
            if joined and low <= joined[-1][1] + 1:
                joined[-1] = (joined[-1][0], max(high, joined[-1][1]))
            else:
                joined.append((low, high))
        uids = cls(tuple(joined))
        if len(uids) > _MOST:
            raise Broken(f"the server lists more than {_MOST:,} messages in a folder")
        return uids

    def __or__(self, other: Uids) -> Uids:
        return Uids._join([*self.ranges, *other.ranges])

    def __len__(self) -> int:
        return sum(high - low + 1 for low, high in self.ranges)

    def __iter__(self) -> Iterator[int]:
        for low, high in self.ranges:
            yield from range(low, high + 1)

    def after(self, uid: int) -> Uids:
        return Uids(tuple((max(low, uid + 1), high) for low, high in self.ranges if high > uid))

    def up_to(self, uid: int) -> Uids:
        return Uids(tuple((low, min(high, uid)) for low, high in self.ranges if low <= uid))

    def windows(self, size: int) -> Iterator[list[int]]:
        """Up to `size` at a time; fewer if their set would be too long for a command."""
        window: list[int] = []
        pieces = 0
        for low, high in self.ranges:
            pieces += 1
            for start in range(low, high + 1, size):
                window.extend(range(start, min(high + 1, start + size)))
                if len(window) >= size or pieces >= _PIECES:
                    yield from (window[at : at + size] for at in range(0, len(window) - len(window) % size, size))
                    window = window[len(window) - len(window) % size :]
                    if pieces >= _PIECES and window:
                        yield window
                        window = []
                    pieces = 1
        if window:
            yield window

    def encoded(self) -> bytes:
        """In the syntax of a command."""
        return b",".join(b"%d" % low if low == high else b"%d:%d" % (low, high) for low, high in self.ranges)
