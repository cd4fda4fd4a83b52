"""The folders of a tree, each with the names of its files, always in the same order."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from pathlib import Path

from connectors.files.names import folder_of, maildir_folder, shown, stem
from connectors.files.open_file import OpenFile
from connectors.files.single import maildir_unique

_MAILDIR = frozenset({"cur", "new", "tmp"})


@dataclass(frozen=True, slots=True)
class FileDirectory:
    path: Path
    place: str
    """What it is called in the sync state: its path, or its path in an archive."""
    parts: tuple[str, ...] = ()
    """Below the root, as text."""
    root: str = ""
    """The name of the root."""
    identity: str = ""
    """If it changes, the folder is read again."""
    top: str | None = None
    """The top folder, if it is decided already."""
    depth: int = 0
    """How many archives it is nested in."""
    only: tuple[str, ...] | None = None
    """Files of a folder that were named one by one."""
    is_maildir: bool = False

    @property
    def folder(self) -> str:
        """Of the files with one message each."""
        return maildir_folder(self.parts) if self.is_maildir else folder_of(self.parts, self.root)

    def folder_of_file(self, name: str) -> str:
        return folder_of((*self.parts, shown(name)), self.root)

    def key_path(self, name: str) -> str:
        """The path in keys: below the root; in a Maildir without what changes with the flags."""
        last = shown(maildir_unique(name.partition("/")[2]) if self.is_maildir and "/" in name else name)
        return "/".join((*self.parts, last))

    def fingerprint(self, file: OpenFile) -> str:
        """Of a file in it; one that was unpacked is the same as long as its archive is."""
        return f"{self.identity}/{file.size}" if self.depth else file.fingerprint

    def names(self) -> list[str]:
        """Of its files, sorted. Raises OSError."""
        if self.only is not None:
            return sorted(self.only, key=shown)
        names = _list_entries(self.path)[1]
        if self.is_maildir:
            subs = [sub for sub in _MAILDIR if (self.path / sub).is_dir()]
            names += [f"{sub}/{name}" for sub in subs for name in _list_entries(self.path / sub)[1]]
        return sorted(names, key=shown)

    def below(self) -> Iterator[FileDirectory]:
        """Itself, then everything below. Of a folder that can't be listed, `names` says why. Links are not followed."""
        if self.only is not None:
            yield self
            return
        try:
            folders = sorted(_list_entries(self.path)[0])
        except OSError:
            folders = []
        is_maildir = "cur" in folders and ("new" in folders or "tmp" in folders)
        yield replace(self, is_maildir=is_maildir)
        for name in folders:
            if not (is_maildir and name in _MAILDIR):
                yield from self._child(name).below()

    def _child(self, name: str) -> FileDirectory:
        text = shown(name)
        path = self.path / name
        return replace(
            self,
            path=path,
            place=f"{self.place}/{text}",
            parts=(*self.parts, text),
            identity=self.identity if self.depth else identity_of(path),
            top=self.top or text,
        )

    def inside(self, name: str, unpacked: Path, fingerprint: str, *, is_archive: bool) -> FileDirectory:
        """An unpacked file as a folder. A single compressed file, or an archive that is a root, adds nothing to the path."""
        adds = is_archive and self.only is None
        return FileDirectory(
            path=unpacked,
            place=f"{self.place}/{shown(name)}" if self.only is None else f"{shown(str(self.path))}/{shown(name)}/",
            parts=(*self.parts, shown(name)) if adds else self.parts,
            root=self.root if self.only is None else shown(name),
            identity=fingerprint,
            top=self.top or stem(shown(name)),
            depth=self.depth + 1,
        )


def roots_of(paths: Sequence[Path]) -> Iterator[FileDirectory]:
    """Folders as they are; files of one folder that were named one by one, together."""
    for (is_folder, parent), group in groupby(paths, key=lambda path: (path.is_dir(), path.parent)):
        if is_folder:
            for path in group:
                yield FileDirectory(path, shown(str(path)), root=shown(path.name or "root"), identity=identity_of(path))
        else:
            names = tuple(dict.fromkeys(path.name for path in group))
            digest = hashlib.sha256("/".join(map(shown, names)).encode()).hexdigest()[:12]
            yield FileDirectory(
                parent, f"{shown(str(parent))}/:{digest}", root=shown(parent.name), identity="files", only=names
            )


def identity_of(path: Path) -> str:
    try:
        return str(path.stat().st_ino)
    except OSError:
        return "?"


def _list_entries(path: Path) -> tuple[list[str], list[str]]:
    """Folders and everything else."""
    folders: list[str] = []
    files: list[str] = []
    with os.scandir(path) as entries:
        for entry in entries:
            (folders if entry.is_dir(follow_symlinks=False) else files).append(entry.name)
    return folders, files
