"""Provider keys: the permanent name of a message.

By UID: `folder␟uidvalidity␟uid`. By a server-assigned id (OBJECTID, Dovecot's GUID), which survives a change of UIDVALIDITY:
`folder␟id`; the folder is part of it because a copy in another folder has the same id. Gmail: only its own message id.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import overload

from connectors.imap.parse import Value
from connectors.imap.uids import Uids

UNIT = "\u241f"
GMAIL = "X-GM-MSGID"
OBJECT = "EMAILID"
DOVECOT = "X-GUID"
_NAME_BYTES = 400


def kind_of_ids(capabilities: frozenset[str], server_name: str) -> str:
    """The best id that the server offers; empty if there are only UIDs."""
    if "X-GM-EXT-1" in capabilities:
        return GMAIL
    if "OBJECTID" in capabilities:
        return OBJECT
    return DOVECOT if "dovecot" in server_name.lower() else ""


def folder_part(folder: str) -> str:
    """A name too long for an index entry is replaced by its hash."""
    data = folder.encode("utf-8", "replace")
    return folder if len(data) <= _NAME_BYTES else f"sha256:{hashlib.sha256(data).hexdigest()}"


def uid_key(folder: str, validity: int, uid: int) -> str:
    return f"{folder_part(folder)}{UNIT}{validity}{UNIT}{uid}"


def id_key(folder: str, ids: str, value: str) -> str:
    return f"{GMAIL}{UNIT}{value}" if ids == GMAIL else f"{folder_part(folder)}{UNIT}{value}"


def id_text(value: Value) -> str:
    """EMAILID is in parentheses (RFC 8474), the others are an atom or a string."""
    found = value[0] if isinstance(value, list) and value else value
    return found.decode("latin-1") if isinstance(found, bytes) else ""


@dataclass(frozen=True, slots=True)
class Wanted:
    """A parsed key: either a UID (with its UIDVALIDITY) or an id."""

    folder: str
    """The folder part of the key; empty for Gmail."""
    validity: int = 0
    uid: int = 0
    id: str = ""


def parse_key(key: str) -> Wanted | None:
    match key.split(UNIT):
        case [folder, validity, uid] if validity.isdecimal() and uid.isdecimal() and len(uid) <= 10:
            return Wanted(folder, validity=int(validity), uid=int(uid))
        case [folder, value] if value:
            return Wanted("" if folder == GMAIL else folder, id=value)
    return None


class Keys(Sequence[str]):
    """The keys of a whole folder, built on access, because there may be millions."""

    def __init__(self, prefix: str, endings: Uids | Sequence[str], without: frozenset[int] = frozenset()) -> None:
        self._prefix, self._endings, self._without = prefix, endings, without

    def __iter__(self) -> Iterator[str]:
        return (f"{self._prefix}{ending}" for ending in self._endings if ending not in self._without)

    def __len__(self) -> int:
        return len(self._endings) - len(self._without)

    @overload
    def __getitem__(self, index: int) -> str: ...
    @overload
    def __getitem__(self, index: slice) -> list[str]: ...
    def __getitem__(self, index: int | slice) -> str | list[str]:
        return list(self)[index]
