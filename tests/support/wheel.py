"""The program as people install it: a wheel of what the Dockerfile copies, where the repository is not seen."""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
import sys
import sysconfig
import venv
from pathlib import Path

ROOT = Path(__file__).parents[2]


def build_wheel(folder: Path) -> Path:
    """From a copy, as `docker build` has it: files that the image would not get are not there."""
    source, built = folder / "source", folder / "wheels"
    source.mkdir(parents=True)
    for name in copied_names():
        if (ROOT / name).is_dir():
            shutil.copytree(ROOT / name, source / name, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            shutil.copy(ROOT / name, source)
    command = [sys.executable, "-m", "pip", "wheel", "--quiet", "--disable-pip-version-check", "--no-deps"]
    subprocess.run([*command, "--no-build-isolation", "--wheel-dir", built, "."], cwd=source, check=True, timeout=300)
    return next(built.glob("archiver-*.whl"))


def copied_names() -> list[str]:
    lines = (ROOT / "Dockerfile").read_text().splitlines()
    return [name for line in lines if line.startswith("COPY ") and "--from" not in line for name in shlex.split(line)[1:-1]]


def install(wheel: Path, folder: Path) -> Path:
    """A new environment with the wheel in it; the packages that it needs are those of this one. Returns its python."""
    venv.create(folder, symlinks=True, with_pip=False)
    python = folder / "bin" / "python"
    command = [sys.executable, "-m", "pip", "--python", str(python), "install", "--quiet", "--disable-pip-version-check"]
    subprocess.run([*command, "--no-deps", "--no-index", wheel], check=True, timeout=300)
    own = Path(sysconfig.get_path("purelib", vars={"base": str(folder), "platbase": str(folder)}))
    # below the prefix, where the readers of mail may look; its own .pth files, which lead to the repository, are not read
    (folder / "lib" / "dependencies").symlink_to(sysconfig.get_path("purelib"))
    (own / "dependencies.pth").write_text(f"{os.path.relpath(folder / 'lib' / 'dependencies', own)}\n")
    for path in (folder, *folder.rglob("*")):  # whatever the umask, others may read it
        if not path.is_symlink():
            path.chmod(path.stat().st_mode | (0o555 if path.is_dir() or os.access(path, os.X_OK) else 0o444))
    return python
