"""The position in a folder: the sync state of the fake."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass

from connectors import cursor
from connectors.base import Json


@dataclass(frozen=True, slots=True)
class FakeCursor:
    position: int = 0
    """Everything before this position is stored, skipped or failed."""
    rules: str = ""
    """Digest of the rules under which it was reached; if they change, the folder starts over."""
    listed: int = -1
    """Number of keys in the last listing; negative if there was none yet."""
    reported: str = ""
    """Digest of the changes that were reported."""

    def as_json(self) -> dict[str, Json]:
        return asdict(self)


def state_key(address: str, folder: str) -> str:
    return f"fake:{address}:{folder}"


def read_cursor(state: Mapping[str, Json], address: str, folder: str) -> FakeCursor:
    return cursor.read_cursor(FakeCursor, state.get(state_key(address, folder)))
