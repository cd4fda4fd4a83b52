"""File modes of the data folder: it contains keys and unencrypted indexes, so only its owner may read it."""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Iterator
from pathlib import Path

from archiver.supervisor.folder import DataFolder

_GROUP_MAY_TRAVERSE = 0o010
"""As root, PostgreSQL runs as another user, whose group may traverse the two folders above its own."""


_OURS = re.compile(
    r"packs|secrets|\.?postgres([-.].+)?|valkey|search|logs|uploads|exports|scratch|cache|archiver\.(json|lock)|verify\.json|audit-head\.json"
)
"""ARCHIVER_DATA may be any folder: other files in it are not changed."""


def open_to_others(folder: DataFolder) -> Iterator[Path]:
    """Files and folders that other users could read or write."""
    return (path for path, mode in _entries(folder) if mode & ~_allowed(folder, path, mode))


def close_to_others(folder: DataFolder) -> list[Path]:
    """Removes the permissions of other users. Returns paths that belong to another user and could not be changed."""
    left = []
    for path, mode in _entries(folder):
        closed = mode & _allowed(folder, path, mode)
        if closed != mode:
            try:
                path.chmod(stat.S_IMODE(closed))
            except FileNotFoundError:
                continue
            except PermissionError:
                left.append(path)
    return left


def _allowed(folder: DataFolder, path: Path, mode: int) -> int:
    if not stat.S_ISDIR(mode):
        return ~0o177
    is_traversed = os.geteuid() == 0 and path in (folder.path, folder.run)
    return ~0o777 | 0o700 | (_GROUP_MAY_TRAVERSE if is_traversed else 0)


def _entries(folder: DataFolder) -> Iterator[tuple[Path, int]]:
    """Folders and files with their modes; no links, no sockets, and no files of PostgreSQL, which protects its own."""
    for path in {folder.path, folder.run}:
        if path.is_dir():
            yield path, path.stat().st_mode
    yield from _below(folder, folder.path)


def _below(folder: DataFolder, parent: Path) -> Iterator[tuple[Path, int]]:
    for entry in _scan(parent):
        try:
            mode = entry.stat(follow_symlinks=False).st_mode
        except FileNotFoundError:
            continue
        path = Path(entry.path)
        if not (stat.S_ISDIR(mode) or stat.S_ISREG(mode)) or (parent == folder.path and not _OURS.fullmatch(entry.name)):
            continue
        yield path, mode
        if stat.S_ISDIR(mode) and not (path / "PG_VERSION").exists():
            yield from _below(folder, path)


def _scan(parent: Path) -> list[os.DirEntry[str]]:
    try:
        with os.scandir(parent) as found:
            return list(found)
    except (FileNotFoundError, PermissionError):
        return []
