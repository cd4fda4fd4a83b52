"""The position in an account: the sync state of JMAP."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass

from connectors import cursor
from connectors.base import Json

FOLDERS_KEY = "jmap folders"
"""Without a colon: meaningful only for the mailbox itself."""


@dataclass(frozen=True, slots=True)
class JmapCursor:
    state: str = ""
    """The server's state up to which everything is archived; during a listing, the one at its start."""
    rules: str = ""
    """Digest of the rules under which it was reached; if they change, the account is listed again."""
    listing: bool = False
    """The listing is not finished."""
    anchor: str = ""
    """The last message of the listing that is stored, skipped or failed."""


def state_key(address: str) -> str:
    return f"jmap:{address.lower()}"


def as_state(address: str, at: JmapCursor, paths: Mapping[str, str]) -> dict[str, Json]:
    return {state_key(address): asdict(at), FOLDERS_KEY: dict(paths)}


def read_cursor(state: Mapping[str, Json], address: str) -> JmapCursor:
    return cursor.read_cursor(JmapCursor, state.get(state_key(address)))


def read_paths(state: Mapping[str, Json]) -> dict[str, str]:
    stored = state.get(FOLDERS_KEY)
    return {str(key): str(path) for key, path in stored.items()} if isinstance(stored, dict) else {}
