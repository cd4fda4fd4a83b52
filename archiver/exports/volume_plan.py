"""Decides which messages go into which volume, before anything is packed: each volume can then be packed on its own."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from archiver.workflows.definition import MAX_PARTS

_VOLUME_FILES = 50_000
"""A zip file with more is slow to open, and takes much memory to write."""


@dataclass(frozen=True, slots=True)
class VolumePlan:
    """The numbers of the first messages of each volume, in the order of the frozen selection, and the number after the last."""

    bounds: tuple[int, ...]

    @property
    def volumes(self) -> int:
        return len(self.bounds) - 1

    @property
    def parts(self) -> int:
        """Steps that pack in parallel; each packs one volume or, if there are very many, several."""
        return -(-self.volumes // self._per_part)

    @property
    def _per_part(self) -> int:
        return -(-self.volumes // MAX_PARTS)

    def numbers(self, part: int) -> range:
        """Of the volumes that one part packs, from 1."""
        first = part * self._per_part
        return range(first + 1, min(first + self._per_part, self.volumes) + 1)

    def messages(self, volume: int) -> range:
        return range(self.bounds[volume - 1], self.bounds[volume])


def plan_volumes(sizes: Iterable[int], limit_bytes: int, *, is_single: bool) -> VolumePlan:
    """A new volume begins where the next file would exceed the size. There is always one, for the manifest.

    `is_single`: everything in one volume, as for a table or a file that the user named.
    """
    bounds, held, end = [0], 0, 0
    for end, size in enumerate(sizes, start=1):
        number = end - 1
        is_full = held + size > limit_bytes or number - bounds[-1] >= _VOLUME_FILES
        if is_full and not is_single and number > bounds[-1]:
            bounds.append(number)
            held = 0
        held += size
    return VolumePlan((*bounds, end))
