"""Where we are in a folder: the sync state of IMAP."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass

from connectors.base import Json
from connectors.imap.folders import Status

_PREFIX = "imap"


@dataclass(frozen=True, slots=True)
class Place:
    validity: int = 0
    """UIDVALIDITY; with another one, all UIDs mean something else."""
    uid: int = 0
    """Everything up to here is stored, skipped or failed."""
    count: int = -1
    """How many messages the folder had up to there; below 0 until it was listed in full for the first time."""
    uid_next: int = 0
    modseq: int = 0
    """As the folder stood when everything in it was seen; 0 as long as that is not so."""
    rules: str = ""
    """The rules under which it was reached: under others, the folder begins again."""
    ids: str = ""
    """What keys are made of: an id that the server gives to messages, or, if empty, their UIDs."""
    day: int = 0
    """On which day the folder was listed in full, counted from 1970."""

    def as_json(self) -> dict[str, Json]:
        return asdict(self)

    def stands_as(self, status: Status | None, rules: str, day: int) -> bool:
        """Nothing has changed since: there is no need to open the folder."""
        return status is not None and (
            (self.validity, self.count, self.uid_next, self.modseq, self.rules, self.day)
            == (status.uid_validity, status.messages, status.uid_next or 0, status.modseq or 0, rules, day)
        )


def state_key(address: str, folder: str) -> str:
    return f"{_PREFIX}:{address}:{folder}"


def folder_of(key: str, address: str) -> str | None:
    prefix = state_key(address, "")
    return key[len(prefix) :] if key.startswith(prefix) else None


def read_place(state: Mapping[str, Json], address: str, folder: str) -> Place:
    """The beginning, if there is no state, or none that we could use."""
    stored = state.get(state_key(address, folder))
    blank = asdict(Place())
    if not isinstance(stored, dict) or stored.keys() != blank.keys():
        return Place()
    if any(type(stored[name]) is not type(value) for name, value in blank.items()):
        return Place()
    return Place(**stored)
