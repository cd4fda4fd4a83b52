"""`archiver service install`: the unit's text, and that no other file is overwritten."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from archiver.cli.app import build
from archiver.cli.start.service import unit_text
from archiver.errors import Conflict, UsageError


def run(*arguments: str) -> str:
    done = CliRunner().invoke(build(["service"]), ["service", "install", *arguments])
    if done.exception is not None and not isinstance(done.exception, SystemExit):
        raise done.exception
    assert done.exit_code == 0, done.output
    return done.output


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.setenv("ARCHIVER_DATA", "own data")
    return tmp_path


def test_the_unit_of_a_user(here: Path) -> None:
    if not sys.platform.startswith("linux"):
        with pytest.raises(UsageError, match="launchd"):
            run("--user")
        return
    said = run("--user")
    text = (here / "config/systemd/user/archiver.service").read_text()
    assert text in said
    assert f'ExecStart="{sys.executable}" -P -m archiver up\n' in text
    assert f'Environment="ARCHIVER_DATA={here / "own data"}"\n' in text
    assert f"WorkingDirectory={here}\n" in text
    assert "WantedBy=default.target" in text
    assert "User=" not in text
    assert "systemctl --user enable --now archiver" in said.replace("daemon-reload && systemctl --user ", "")
    assert run("--user"), "its own file may be replaced"


def test_a_file_of_somebody_else_stays(here: Path) -> None:
    path = here / "config/systemd/user/archiver.service"
    path.parent.mkdir(parents=True)
    path.write_text("[Service]\nExecStart=/mine\n")
    if sys.platform.startswith("linux"):
        with pytest.raises(Conflict, match="is not touched"):
            run("--user")
    assert path.read_text() == "[Service]\nExecStart=/mine\n"


def test_the_unit_of_the_machine_is_for_another_user_than_root() -> None:
    text = run("--system", "--print", "--run-as", "mailkeeper")
    assert "User=mailkeeper\n" in text
    assert "WantedBy=multi-user.target" in text
    for name in ("root", "a b", "x\nExecStart=/bin/sh"):
        with pytest.raises(UsageError, match="--run-as"):
            run("--system", "--print", "--run-as", name)


def test_paths_with_signs_that_mean_something_to_systemd() -> None:
    text = unit_text(Path('/opt/50% "x"/$HOME/python'), Path("/srv/100%"), Path("/srv/a b/$x"), run_as=None)
    assert 'ExecStart="/opt/50%% \\"x\\"/$$HOME/python" -P -m archiver up\n' in text
    assert "WorkingDirectory=/srv/100%%\n" in text
    assert 'Environment="ARCHIVER_DATA=/srv/a b/$x"\n' in text
    with pytest.raises(UsageError, match="line break"):
        unit_text(Path("/opt/a\nb"), Path("/"), Path("/"), run_as=None)


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="no systemd on this machine")
def test_systemd_accepts_it(here: Path) -> None:
    unit = here / "archiver.service"
    unit.write_text(unit_text(Path(sys.executable), here, here / "data", run_as=None))
    done = subprocess.run(["systemd-analyze", "verify", unit], capture_output=True, text=True)
    assert "archiver.service" not in done.stderr, done.stderr
