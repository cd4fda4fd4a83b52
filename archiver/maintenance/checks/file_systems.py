"""Which kind of file system a folder is on, as far as the operating system says."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path

import psutil

SHARED_BY_NFS = frozenset({"nfs", "nfs4"})
SHARED_BY_SMB = frozenset({"cifs", "smb2", "smb3", "smbfs", "afpfs", "webdav", "fuse.sshfs", "fuse.rclone", "vboxsf", "9p"})
"""And others on which owners, modes or sockets mean nothing."""


def file_system_of(path: Path) -> str:
    """Of the folder that a link leads to; of the nearest parent of one that does not exist yet. Empty if it is not known."""
    mounts = ((mount.mountpoint, mount.fstype) for mount in psutil.disk_partitions(all=True))
    return nearest_mount(Path(os.path.realpath(path)), mounts)


def nearest_mount(path: Path, mounts: Iterable[tuple[str, str]]) -> str:
    """Of several that are mounted at one place, the last covers the others."""
    found, depth = "", -1
    for place, kind in mounts:
        folder = Path(place)
        if path.is_relative_to(folder) and len(folder.parts) >= depth:
            found, depth = kind.lower(), len(folder.parts)
    return found
