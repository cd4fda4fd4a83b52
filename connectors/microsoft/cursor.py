"""The position in a folder: the sync state, keyed by the folder's id, so that renaming changes nothing."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass

from connectors import cursor
from connectors.base import Json

_STORED_NAMES = {"is_full": "full", "is_again": "again"}


@dataclass(frozen=True, slots=True)
class MicrosoftCursor:
    link: str = ""
    """The link to the next page, as Graph returned it; empty for the start."""
    done: int = 0
    """How many entries of that page are stored, skipped or failed."""
    last: str = ""
    """The key of the last of them, because the page may differ when it is requested again."""
    is_full: bool = True
    """This round lists the whole folder; later ones return only changes."""
    is_again: bool = False
    """It was listed before, so archived copies may be gone."""
    rules: str = ""
    """Digest of the rules under which it was reached; if they change, the folder starts over."""
    path: str = ""
    """The folder's path as last recorded in its copies. Empty if none was."""

    def as_json(self) -> dict[str, Json]:
        return {_STORED_NAMES.get(name, name): value for name, value in asdict(self).items()}


def prefix(address: str) -> str:
    return f"microsoft:{address.lower()}:"


def tree_key(address: str) -> str:
    return f"{prefix(address)}tree"


def folder_key(address: str, folder_id: str) -> str:
    return f"{prefix(address)}folder:{folder_id}"


def cursor_key(address: str, folder_id: str) -> str:
    return f"{prefix(address)}messages:{folder_id}"


def read_cursor(state: Mapping[str, Json], address: str, folder_id: str) -> MicrosoftCursor:
    stored = state.get(cursor_key(address, folder_id))
    if isinstance(stored, dict):
        stored = {**stored, **{name: stored[short] for name, short in _STORED_NAMES.items() if short in stored}}
    return cursor.read_cursor(MicrosoftCursor, stored)
