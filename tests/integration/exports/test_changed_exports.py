"""Whatever was changed in an export is found, by us and by the recipe in the documentation."""

from __future__ import annotations

import base64
import re
import subprocess
import sys
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import text

from archiver.evidence import signing
from archiver.exports.selection import PackageOptions
from archiver.exports.verifying import ExportCheck, verify_export
from tests.integration.exports.conftest import ExportWorld, manifest_of
from tests.support.export_runs import export_file

RECIPE = Path(__file__).parents[3] / "docs" / "exports.md"


def rewritten(volume: Path, change: Callable[[str, bytes, zipfile.ZipInfo], tuple[str, bytes] | None]) -> Path:
    target = volume.with_name("changed.zip")
    with zipfile.ZipFile(volume) as old, zipfile.ZipFile(target, "w") as new:
        for info in old.infolist():
            changed = change(info.filename, old.read(info), info)
            if changed is not None:
                info.filename = changed[0]
                new.writestr(info, changed[1])
    return target


def problems(world: ExportWorld, volume: Path) -> str:
    check: ExportCheck = verify_export([volume], world.key())
    return "; ".join(check.problems)


@pytest.mark.parametrize("kind", ["eml", "mbox"])
def test_whatever_was_changed_is_found(world: ExportWorld, kind: str) -> None:
    export_id = world.export(options=PackageOptions(kind))
    world.finish()
    (volume,) = world.volumes(export_id)
    target = next(line["file"] for line in manifest_of([volume]) if line.get("bytes", 0) > 100 and "file" in line)

    def content(name: str, data: bytes, _: Any) -> tuple[str, bytes]:
        return name, data.replace(b"a", b"b", 1) if name == target else data

    def renamed(name: str, data: bytes, _: Any) -> tuple[str, bytes]:
        return (name + "x" if name == target else name), data

    def removed(name: str, data: bytes, _: Any) -> tuple[str, bytes] | None:
        return None if name == target else (name, data)

    def date(name: str, data: bytes, _: Any) -> tuple[str, bytes]:
        return name, re.sub(rb'"date":"20', b'"date":"19', data, count=1) if name == "manifest.jsonl" else data

    def order(name: str, data: bytes, _: Any) -> tuple[str, bytes]:
        lines = data.splitlines()
        return name, b"\n".join([*lines[:1], *lines[:0:-1], b""]) if name == "manifest.jsonl" else data

    def signature(name: str, data: bytes, _: Any) -> tuple[str, bytes] | None:
        return None if name == "manifest.sig" else (name, data)

    assert problems(world, volume) == ""
    assert problems(world, rewritten(volume, lambda name, data, _: (name, data))) == "", "only the packing is another"
    assert "content was changed" in problems(world, rewritten(volume, content))
    assert "is not in the manifest" in problems(world, rewritten(volume, renamed))
    assert "is not in volume 1" in problems(world, rewritten(volume, removed))
    for change in (date, order):
        assert "is not what was signed" in problems(world, rewritten(volume, change))
    assert "manifest.sig is missing" in problems(world, rewritten(volume, signature))
    cut = volume.with_name("cut.zip")
    cut.write_bytes(volume.read_bytes()[:-1000])
    assert "can't be opened" in problems(world, cut)


def test_a_date_of_a_file_that_was_changed_is_found(world: ExportWorld) -> None:
    export_id = world.export()
    world.finish()
    (volume,) = world.volumes(export_id)

    def date(name: str, data: bytes, info: zipfile.ZipInfo) -> tuple[str, bytes]:
        if name.endswith(".eml"):
            info.date_time = (1999, 1, 1, 0, 0, 0)
        return name, data

    assert "its date was changed" in problems(world, rewritten(volume, date))


def test_an_export_that_somebody_else_signed_is_found(world: ExportWorld) -> None:
    export_id = world.export()
    world.finish()
    other = world.work.keyring
    with world.engine.begin() as connection:
        connection.execute(text("DELETE FROM signing_keys"))
        signing.create_key(connection, other)
    said = verify_export(world.volumes(export_id), world.key())
    assert "signed with another key" in said.problems[0]


def test_the_recipe_in_the_documentation_finds_the_same(world: ExportWorld, tmp_path: Path) -> None:
    """In plain Python, without a line of ours."""
    (code,) = re.findall(r"```python\n(# check_export\.py.*?)```", RECIPE.read_text(), re.DOTALL)
    script = tmp_path / "check_export.py"
    script.write_text(code)
    for kind in ("eml", "mbox"):
        export_id = world.export(options=PackageOptions(kind))
        world.finish()
        (volume,) = world.volumes(export_id)
        key = base64.b64encode(world.key()).decode()

        def run(path: Path, key: str = key) -> tuple[int, str]:
            done = subprocess.run([sys.executable, "-I", str(script), key, str(path)], capture_output=True, text=True)
            return done.returncode, done.stdout + done.stderr

        code_, said = run(volume)
        assert code_ == 0, said
        target = next(line["file"] for line in manifest_of([volume]) if line.get("bytes", 0) > 100 and "file" in line)
        changed = rewritten(volume, lambda n, d, _, t=target: (n, d.replace(b"a", b"b", 1) if n == t else d))  # type: ignore[misc]
        assert run(changed)[0] != 0


@pytest.mark.parametrize("kind", ["zip", "mbox", "maildir", "csv"])
def test_a_single_file_is_signed_too(world: ExportWorld, tmp_path: Path, kind: str) -> None:
    """As `archiver export -o` writes it; the manifest of all but a zip file is beside it."""
    target = tmp_path / "out"
    done = export_file(world.engine, world.work.ingest.archive, target, kind)
    check = verify_export([target])
    assert (check.problems, check.messages) == ([], done.messages)
    assert sorted(path.name for path in tmp_path.glob(".out*")) == [], "the scratch folder is gone"
    if kind == "zip":
        return
    moved = target.rename(tmp_path / "elsewhere")
    for name in ("manifest.jsonl", "manifest.sig", "archive-key.pem"):
        target.with_name(f"out.{name}").rename(tmp_path / f"elsewhere.{name}")
    assert verify_export([moved]).problems == []
    victim = next(path for path in (moved / "cur").iterdir() if path.stat().st_size > 100) if kind == "maildir" else moved
    victim.write_bytes(victim.read_bytes().replace(b"a", b"b", 1))
    assert any("was changed" in problem for problem in verify_export([moved]).problems)
    if kind == "maildir":
        (moved / "new" / "added").write_bytes(b"Subject: more\n\n")
        assert any("is not in the manifest" in problem for problem in verify_export([moved]).problems)


@pytest.mark.parametrize(
    "manifest",
    [
        b"",
        b"[]\n",
        b'{"kind":"export","volumes":1,"messages":1}\n{"kind":"message","volume":9,"file":"x","sha256":"00"}\n',
        b'{"kind":"export","volumes":1,"messages":1}\n{"kind":"message","volume":1,"file":7,"date":[],"sha256":"00"}\nnull\n',
        b'{"kind":"export","volumes":1,"messages":1}\n'
        b'{"kind":"message","volume":1,"file":"m","offset":-5,"length":"x","sha256":0,"id":0}\n{"kind":"file","volume":1,"file":"m"}\n',
    ],
)
def test_a_manifest_may_say_anything(tmp_path: Path, manifest: bytes) -> None:
    with zipfile.ZipFile(tmp_path / "x.zip", "w") as hostile:
        hostile.writestr("manifest.jsonl", manifest)
        hostile.writestr("m", b"From x\n\n")
    assert verify_export([tmp_path / "x.zip"]).problems
