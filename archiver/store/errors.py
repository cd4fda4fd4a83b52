"""Errors of the store, ordered by what the caller should do."""

from __future__ import annotations

from typing import NamedTuple
from uuid import UUID

from archiver.errors import ArchiverError


class StoreError(ArchiverError):
    """The store could not do what was requested."""


class StoreUnavailable(StoreError):
    """Nothing was stored: no space, a read-only or failing disk, no response from the bucket. Trying again later helps."""


class PackLocked(StoreError):
    """The bucket refuses to remove a pack before its Object Lock ends."""


class UnknownVersion(StoreError):
    """A pack was written by a newer version of the program."""


class NotStored(StoreError):
    """There is no object with this SHA-256."""


class Spot(NamedTuple):
    """A place in a pack, for people."""

    pack: str
    offset: int

    def __str__(self) -> str:
        return f"pack {self.pack} at {self.offset}"


class Damage(StoreError):
    """Bytes in a pack are not what was written. They are never handed out; another copy of the pack is needed."""

    def __init__(self, spot: Spot, what: str, sha256: bytes | None = None) -> None:
        touched = f" (object {sha256.hex()})" if sha256 else ""
        super().__init__(f"damage in {spot}: {what}{touched}")
        self.spot = spot
        self.what = what
        self.sha256 = sha256


class LostPack(Damage):
    """A pack that `objects` refers to is not there."""

    def __init__(self, pack: UUID | str, offset: int = 0, sha256: bytes | None = None) -> None:
        super().__init__(Spot(str(pack), offset), "the pack is missing", sha256)


class LostDictionary(Damage):
    """The dictionary that a frame was compressed with is in no pack."""

    def __init__(self, spot: Spot, dictionary_id: int) -> None:
        super().__init__(spot, f"the dictionary {dictionary_id:08x} it was compressed with is in no pack")
        self.dictionary_id = dictionary_id
