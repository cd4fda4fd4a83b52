"""Servers from packages of Debian that can't be installed side by side: unpacked into a cache folder outside the repository."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

_CACHE = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "archiver-tests"


def unpacked(name: str, *packages: str) -> Path:
    """The folder that holds what the packages would install below `/`. Skips, and says so, where there are none to be had."""
    folder = _CACHE / name
    if folder.exists():
        return folder
    if shutil.which("apt-get") is None or shutil.which("dpkg-deb") is None:
        pytest.skip(f"no apt-get to download {name} with")
    making = _CACHE / f"{name}.{os.getpid()}"
    making.mkdir(parents=True)
    try:
        done = subprocess.run(["apt-get", "download", *packages], cwd=making, capture_output=True, text=True, timeout=150)
        archives = sorted(making.glob("*.deb"))
        if done.returncode or len(archives) != len(packages):
            pytest.skip(f"{name} can't be downloaded: {done.stderr.strip()[-200:]}")
        for archive in archives:
            subprocess.run(["dpkg-deb", "-x", archive, making / "root"], check=True)
        try:
            (making / "root").rename(folder)
        except OSError:  # another test run was first
            assert folder.exists()
    finally:
        shutil.rmtree(making, ignore_errors=True)
    return folder


def library_path(folder: Path) -> dict[str, str]:
    """The environment in which its programs find their libraries."""
    places = [path.parent for path in (folder / "usr/lib").rglob("*.so*")] + [
        path.parent for path in folder.glob("lib/*/*.so*")
    ]
    return {**os.environ, "LD_LIBRARY_PATH": ":".join(dict.fromkeys(str(place) for place in places))}
