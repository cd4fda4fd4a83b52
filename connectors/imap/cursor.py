"""The position in a folder: the sync state of IMAP."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass

from connectors import cursor
from connectors.base import Json
from connectors.imap.folders import Status

_PREFIX = "imap"


@dataclass(frozen=True, slots=True)
class ImapCursor:
    validity: int = 0
    """UIDVALIDITY; if it changes, all UIDs refer to other messages."""
    uid: int = 0
    """Everything up to this UID is stored, skipped or failed."""
    count: int = -1
    """Number of messages up to that UID; negative until the folder was first listed in full."""
    uid_next: int = 0
    modseq: int = 0
    """HIGHESTMODSEQ when everything in the folder had been seen; 0 until then."""
    rules: str = ""
    """Digest of the rules under which it was reached; if they change, the folder starts over."""
    ids: str = ""
    """What keys are built from: the FETCH item of a server-assigned id or, if empty, the UID."""
    day: int = 0
    """The day of the last full listing, in days since 1970."""
    ahead: int = 0
    """The first UID of the newest messages, which were stored before their turn; 0 if none were."""
    ahead_to: int = 0
    """The last UID of those."""

    def as_json(self) -> dict[str, Json]:
        return asdict(self)

    def is_unchanged(self, status: Status | None, rules: str, day: int) -> bool:
        """Whether nothing has changed since, so that the folder need not be opened."""
        return status is not None and (
            (self.validity, self.count, self.uid_next, self.modseq, self.rules, self.day)
            == (status.uid_validity, status.messages, status.uid_next or 0, status.modseq or 0, rules, day)
        )


def state_key(address: str, folder: str) -> str:
    return f"{_PREFIX}:{address}:{folder}"


def folder_of(key: str, address: str) -> str | None:
    prefix = state_key(address, "")
    return key[len(prefix) :] if key.startswith(prefix) else None


def read_cursor(state: Mapping[str, Json], address: str, folder: str) -> ImapCursor:
    return cursor.read_cursor(ImapCursor, state.get(state_key(address, folder)), may_lack_fields=True)
