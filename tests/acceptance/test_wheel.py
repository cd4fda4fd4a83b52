"""The wheel alone: installed into a new environment, it runs `archiver up` without the repository."""

from __future__ import annotations

import re
import subprocess
import zipfile
from pathlib import Path

import pytest

from archiver import __version__
from tests.acceptance.conftest import Archiver
from tests.support.waiting import eventually
from tests.support.wheel import ROOT, build_wheel, install


class Installed(Archiver):
    """`archiver` of an environment of its own."""

    def __init__(self, data: Path, program: Path) -> None:
        super().__init__(data, SAMPLE_SOURCES="")
        self.program = program
        self.environment.pop("PYTHONPATH", None)

    def start(self) -> Installed:
        with self.log.open("w") as log:
            self.process = subprocess.Popen(
                [self.program, "up"], env=self.environment, stdout=log, stderr=log, text=True, cwd=self.data.parent
            )
        eventually(self._ready_or_dead, what="ready")
        assert self.process.poll() is None, self.log.read_text()
        return self


def files_of(folder: str) -> set[str]:
    return {
        str(path.relative_to(ROOT)) for path in (ROOT / folder).rglob("*") if path.is_file() and "__pycache__" not in path.parts
    }


@pytest.mark.slow
def test_the_wheel_runs_without_the_repository(tmp_path: Path) -> None:
    wheel = build_wheel(tmp_path / "build")
    with zipfile.ZipFile(wheel) as opened:
        inside = {name for name in opened.namelist() if ".dist-info/" not in name}
    beside = files_of("workers") | files_of("connectors") | files_of("migrations")
    wanted = files_of("archiver") | {f"archiver/bundled/{name}" for name in beside}
    wanted.remove("archiver/bundled/migrations/script.py.mako")  # for those who write new ones
    assert wanted - inside == set(), "not in the wheel"
    assert inside - wanted == set()
    assert {name.split("/")[0] for name in inside} == {"archiver"}, "other names are other programs'"

    python = install(wheel, tmp_path / "installed")
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    found = subprocess.run(
        [python, "-c", "import archiver, migrations, workers; print(archiver.__file__, migrations.__file__, workers.__file__)"],
        cwd=elsewhere, capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert all(Path(path).is_relative_to(tmp_path / "installed") for path in found.stdout.split())

    packages = next((tmp_path / "installed").glob("lib/python3*/site-packages"))
    for place in (elsewhere, packages):  # somebody's own, which must not be taken for ours
        for name in ("workers.py", "connectors.py", "migrations/__init__.py"):
            (place / name).parent.mkdir(exist_ok=True)
            (place / name).write_text("raise SystemExit('not this one')\n")
    archiver = Installed(elsewhere / "data", python.with_name("archiver"))
    try:
        archiver.start()
        assert archiver.ready() == {"ready": True, "parts": {"postgres": "ok", "redis": "ok", "search": "ok"}}
        link = re.search(r"http://\S+(/welcome)#token=", archiver.log.read_text())
        assert link is not None
        status, page = archiver.get("/welcome")
        assert status == 200
        style = re.search(r'href="(/static[^"]+\.css)"', page)
        assert style is not None
        assert archiver.get(style[1])[0] == 200
        version = subprocess.run([archiver.program, "--version"], capture_output=True, text=True, check=True).stdout
        assert version == f"archiver {__version__}\n"
        for process in archiver.processes():
            assert not any(str(ROOT / name) in " ".join(process.cmdline()) for name in ("archiver", "workers"))
    finally:
        archiver.clean_up()
