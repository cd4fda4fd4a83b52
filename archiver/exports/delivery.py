"""Puts a finished export where a command asked for it: one zip file, mbox, table or Maildir, with its manifest."""

from __future__ import annotations

import shutil
import zipfile
from pathlib import Path

from archiver.exports.layout import CSV_FILE, MBOX_FILE
from archiver.exports.package_files import MANIFEST, PUBLIC_KEY, SIGNATURE, PackageFolder, beside, whole_file
from archiver.exports.packing import link_or_copy

_SINGLE_FILES = {"mbox": MBOX_FILE, "csv": CSV_FILE}
_PIECE_BYTES = 1 << 20


def deliver_output(files: PackageFolder, kind: str, target: Path) -> None:
    """What has the name is complete: the manifest first, then the mail. May be repeated as long as the volume is there."""
    (volume,) = files.volumes()
    if kind not in _SINGLE_FILES and kind != "maildir":
        link_or_copy(volume, target)
        return
    with zipfile.ZipFile(volume) as zipped:
        for name in (MANIFEST, SIGNATURE, PUBLIC_KEY):
            _extract(zipped, name, files.path / name, beside(target, name))
        if kind == "maildir":
            _extract_maildir(zipped, files.path / "maildir", target)
        else:
            _extract(zipped, _SINGLE_FILES[kind], files.path / "mail", target)


def _extract(zipped: zipfile.ZipFile, name: str, draft: Path, target: Path) -> None:
    with whole_file(draft) as out:
        if name in zipped.namelist():  # a package of nothing has no file
            with zipped.open(name) as file:
                shutil.copyfileobj(file, out, _PIECE_BYTES)
    draft.replace(target)


def _extract_maildir(zipped: zipfile.ZipFile, draft: Path, target: Path) -> None:
    """The names are ours, from ids and dates."""
    shutil.rmtree(draft, ignore_errors=True)
    for name in ("cur", "new", "tmp"):
        (draft / name).mkdir(parents=True)
    for name in zipped.namelist():
        if name.startswith("cur/") and not name.endswith("/"):
            with zipped.open(name) as file, (draft / name).open("xb") as out:
                shutil.copyfileobj(file, out, _PIECE_BYTES)
    if (target / "cur").is_dir():  # of an earlier attempt: the command refuses a folder with content
        shutil.rmtree(target)
    draft.replace(target)
