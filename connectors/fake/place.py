"""Where we are in a folder: the sync state of the fake."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from connectors.base import Json


@dataclass(frozen=True, slots=True)
class Place:
    position: int = 0
    """Everything before is stored, skipped or failed."""
    rules: str = ""
    """The rules under which it was reached: under others, the folder begins again."""
    listed: int = -1
    """How many keys the last listing had; below 0 there was none yet."""
    told: str = ""
    """Which changes were told."""

    def as_json(self) -> dict[str, Json]:
        return {"position": self.position, "rules": self.rules, "listed": self.listed, "told": self.told}


def state_key(address: str, folder: str) -> str:
    return f"fake:{address}:{folder}"


def read_place(state: Mapping[str, Json], address: str, folder: str) -> Place:
    """The beginning, if there is no state, or none that we could use."""
    match state.get(state_key(address, folder)):
        case {"position": int(position), "rules": str(rules), "listed": int(listed), "told": str(told)}:
            return Place(position, rules, listed, told)
    return Place()
