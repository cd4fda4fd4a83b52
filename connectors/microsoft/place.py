"""Where we are in a folder: the sync state, by the folder's id, so that a new name changes nothing."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from connectors.base import Json


@dataclass(frozen=True, slots=True)
class Place:
    link: str = ""
    """The page to ask for next, as Graph gave it; without it, the beginning."""
    done: int = 0
    """So many entries of that page are stored, skipped or failed."""
    last: str = ""
    """The key of the last of them: the page may look different when it is asked for again."""
    is_full: bool = True
    """This round lists the whole folder; later ones bring changes only."""
    is_again: bool = False
    """And it was listed before: what we hold of it may be gone."""
    rules: str = ""
    """The rules under which it was reached: under others, the folder begins again."""
    path: str = ""
    """What the folder was called when its copies were told of it. Empty: none was yet."""

    def as_json(self) -> dict[str, Json]:
        return {
            "link": self.link,
            "done": self.done,
            "last": self.last,
            "full": self.is_full,
            "again": self.is_again,
            "rules": self.rules,
            "path": self.path,
        }


def prefix(address: str) -> str:
    return f"microsoft:{address.lower()}:"


def tree_key(address: str) -> str:
    return f"{prefix(address)}tree"


def folder_key(address: str, folder_id: str) -> str:
    return f"{prefix(address)}folder:{folder_id}"


def place_key(address: str, folder_id: str) -> str:
    return f"{prefix(address)}messages:{folder_id}"


def read_place(state: Mapping[str, Json], address: str, folder_id: str) -> Place:
    """The beginning, if there is no state, or none that we could use."""
    match state.get(place_key(address, folder_id)):
        case {
            "link": str(link),
            "done": int(done),
            "last": str(last),
            "full": bool(full),
            "again": bool(again),
            "rules": str(rules),
            "path": str(path),
        }:
            return Place(link, done, last, full, again, rules, path)
    return Place()
