"""Programs from npm that some tests need, installed once into a cache folder outside the repository."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

_CACHE = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "archiver-tests"


def install(name: str, packages: tuple[str, ...], files: tuple[str, ...], what: str) -> Path:
    """The folder with `node_modules`, or a skipped test where npm is missing or reaches no registry."""
    folder = _CACHE / name
    if all((folder / "node_modules" / file).exists() for file in files):
        return folder
    npm = shutil.which("npm")
    if npm is None:
        pytest.skip(f"no npm to install {what} with")
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "package.json").write_text("{}")
    done = subprocess.run(
        [npm, "install", "--no-audit", "--no-fund", *packages], cwd=folder, capture_output=True, text=True, timeout=150
    )
    if done.returncode or not all((folder / "node_modules" / file).exists() for file in files):
        pytest.skip(f"npm can't install {what}: {done.stderr.strip()[-200:]}")
    return folder
