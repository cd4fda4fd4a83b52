"""The sync state of a mailbox that is read from files: one entry for each folder, and one for the whole mailbox."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import TypeVar

from connectors.base import Json
from connectors.cursor import read_cursor


@dataclass(slots=True)
class FilesCursor:
    """The position in a folder. Everything before it is stored, skipped or failed."""

    turn: str = ""
    """The rules, and the number of the import, under which it was reached."""
    identity: str = ""
    """Of the folder."""
    name: str = ""
    """The file that is being read."""
    at: int = 0
    file: str = ""
    """Its fingerprint. If it changes, the file is read from its beginning."""
    variant: str = ""
    """The variant that was detected, if it is an mbox."""
    is_done: bool = False
    since: int = 0
    """The newest change of any file in the last completed round; older files are not read again."""
    recent: str = ""
    """Digest of the files that changed just before that, because the clock of a file system has coarse ticks."""
    next_since: int = 0
    next_recent: str = ""
    """The same at the start of this round: what changes during it is read again in the next."""
    is_partial: bool = False
    """This round reads only what changed."""
    names: str = ""
    """Digest of all files and their change times, as of the last round without doubts."""
    next_names: str = ""
    whole_at: int = 0
    """When all names were last compared with the archive, in seconds since 1970."""
    next_whole_at: int = 0
    is_whole: bool = False
    """This round compares all names, including files older than `since`."""


@dataclass(slots=True)
class FilesTally:
    """Progress and results for the whole mailbox, for reports."""

    turn: str = ""
    total_bytes: int = 0
    finished_bytes: int = 0
    """Of files read to their end."""
    read_bytes: int = 0
    """Including the file that is being read."""
    found: int = 0
    """Messages, including known ones."""
    kinds: dict[str, int] = field(default_factory=dict)
    """Number of files by kind."""
    variants: dict[str, str] = field(default_factory=dict)
    """The detected variant of each mbox file and the reason; limited to a readable number."""
    folders: dict[str, int] = field(default_factory=dict)
    """Folders whose listing has begun, by a short hash: several folders on disk may be one mail folder."""
    failures: dict[str, str] = field(default_factory=dict)
    """Files that could not be read completely, with the reason; limited to a readable number."""
    unpacked: dict[str, int] = field(default_factory=dict)
    """Archives, and their unpacked size."""


T = TypeVar("T", FilesCursor, FilesTally)


def as_json(value: FilesCursor | FilesTally) -> dict[str, Json]:
    return asdict(value)


def read(kind: type[T], state: Mapping[str, Json], key: str) -> T:
    return read_cursor(kind, state.get(key), may_lack_fields=True)
