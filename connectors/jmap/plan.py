"""Decides what becomes of each message of a page or a change. Pure."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field

from connectors.base import ChangeKind, CopyChange, FolderListing, Skipped
from connectors.jmap.folders import JmapFolders
from connectors.jmap.message import JmapMessage
from connectors.selection import SourceSettings, date_rule

KEYS_AT_MOST = 200_000
_UNREPORTED_AT_MOST = 5000


@dataclass(frozen=True, slots=True)
class JmapPlan:
    todo: tuple[JmapMessage, ...]
    """To be downloaded."""
    skipped: tuple[Skipped, ...] = ()
    changes: tuple[CopyChange, ...] = ()


def plan_messages(
    messages: Iterable[JmapMessage], held: Collection[str], folders: JmapFolders, settings: SourceSettings
) -> JmapPlan:
    """`held`: the keys that are archived; those messages have changed."""
    todo, skipped, changes = [], [], []
    for message in messages:
        folder, labels = folders.place(message.folders)
        rule = folders.rule(settings, message.folders) or date_rule(settings, message.received_at)
        if message.key in held:
            changes.append(CopyChange(ChangeKind.MOVED, message.key, folder, message.flags, labels))
        elif rule:
            skipped.append(Skipped(message.key, rule, folder))
        else:
            todo.append(message)
    return JmapPlan(tuple(todo), tuple(skipped), tuple(changes))


@dataclass(slots=True)
class JmapListing:
    """The keys of a listing by folder, reported with the batches that are stored anyway."""

    is_continued: bool
    """The listing began in an earlier run."""
    _unreported: dict[str, list[str]] = field(default_factory=dict)
    _all: dict[str, list[str]] | None = field(default_factory=dict)
    """All keys, while they fit into memory."""
    _count: int = 0
    _begun: set[str] = field(default_factory=set)

    def __post_init__(self) -> None:
        self._all = None if self.is_continued else {}

    def add(self, folder: str, key: str) -> None:
        self._unreported.setdefault(folder, []).append(key)
        self._count += 1
        if self._all is not None:
            self._all.setdefault(folder, []).append(key)
            self._all = self._all if self._count <= KEYS_AT_MOST else None

    @property
    def is_long(self) -> bool:
        return sum(map(len, self._unreported.values())) >= _UNREPORTED_AT_MOST

    def pieces(self) -> tuple[FolderListing, ...]:
        """The keys that were not reported yet. They do not show what is gone."""
        found = tuple(
            FolderListing(folder, tuple(keys), self.is_continued or folder in self._begun, is_whole=False)
            for folder, keys in self._unreported.items()
        )
        self._begun.update(self._unreported)
        self._unreported = {}
        return found

    def end(self, paths: Sequence[str]) -> tuple[FolderListing, ...]:
        """A listing seen in a single run is whole: of all folders, empty ones too."""
        if self._all is None:
            return self.pieces()
        return tuple(FolderListing(folder, tuple(self._all.get(folder, ()))) for folder in dict.fromkeys((*paths, *self._all)))
