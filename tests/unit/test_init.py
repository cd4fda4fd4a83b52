"""`archiver init`: secrets that compose and the program accept, in a file for its owner only, which is never overwritten."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest
from dotenv import dotenv_values
from typer.testing import CliRunner

from archiver.cli.app import build
from archiver.config import load_settings
from archiver.errors import Conflict, UsageError
from archiver.secrets import credentials_keyring, storage_keyring


def run(*arguments: str) -> str:
    done = CliRunner().invoke(build(["init"]), ["init", *arguments])
    if done.exception is not None and not isinstance(done.exception, SystemExit):
        raise done.exception
    assert done.exit_code == 0, done.output
    return done.output


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_it_is_for_the_owner_only_and_says_what_to_back_up(here: Path) -> None:
    said = run()
    assert stat.S_IMODE((here / ".env").stat().st_mode) == 0o600
    assert "Back up" in said
    assert "STORAGE_ENCRYPTION_KEY" in said
    assert stat.S_IMODE((here / "import").stat().st_mode) == 0o755
    assert stat.S_IMODE((here / "backup").stat().st_mode) == 0o700
    if os.geteuid() == 0:
        assert (here / "backup").stat().st_uid == 10001
    else:
        assert "sudo chown 10001" in said


def test_a_second_one_changes_nothing(here: Path) -> None:
    run()
    before = (here / ".env").read_text()
    with pytest.raises(Conflict, match="may hold the only copy of your keys"):
        run()
    assert (here / ".env").read_text() == before
    run("--file", "other.env")
    other, first = dotenv_values("other.env"), dotenv_values(".env")
    assert set(other) == set(first)
    assert not set(other.values()) & set(first.values()), "every secret is a fresh one"


def test_folders_that_exist_stay_as_they_are(here: Path) -> None:
    (here / "backup").mkdir(mode=0o750)
    before = (here / "backup").stat()
    assert "backup/" not in run()
    after = (here / "backup").stat()
    assert (after.st_mode, after.st_uid) == (before.st_mode, before.st_uid)


def test_the_program_accepts_its_keys(here: Path) -> None:
    run("--domain", "mail.example.org", "--monitoring")
    settings = load_settings({}, here / ".env")
    assert storage_keyring(settings).active != credentials_keyring(settings).active
    written = dotenv_values(here / ".env")
    assert written["COMPOSE_PROFILES"] == "tls,monitoring"
    assert written["ARCHIVER_URL"] == "https://mail.example.org"


@pytest.mark.parametrize("domain", ["", "mail", "a b.org", "https://mail.example.org", "mail.example.org/x", "x=1\nY.org"])
def test_a_domain_that_is_none(here: Path, domain: str) -> None:
    with pytest.raises(UsageError, match="--domain"):
        run("--domain", domain)
    assert not (here / ".env").exists()
