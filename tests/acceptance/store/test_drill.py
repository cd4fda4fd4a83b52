"""Backups and drills: by themselves in a running stack, and by command, on good and on damaged backups."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from archiver.db.engine import make_engine
from archiver.maintenance.checks import outcomes
from archiver.maintenance.checks.outcomes import MaintenanceOutcome
from archiver.supervisor.control import hold_stack
from archiver.supervisor.folder import DataFolder
from tests.acceptance.conftest import Archiver
from tests.support.store_world import mail
from tests.support.waiting import eventually

CHECKS = ["dump", "packs", "counts", "hashes", "rebuild", "searches"]
MESSAGES = 40


@pytest.fixture(scope="module")
def backed_up(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Archiver]:
    """A stack that makes a backup and a drill as soon as there is mail."""
    folder = tmp_path_factory.mktemp("drill")
    installation = Archiver(folder / "data", BACKUP_TARGET=str(folder / "backup"), SYNC_FREQUENCY="2s").start()
    box = folder / "old.mbox"
    box.write_bytes(b"".join(b"From x Thu Jan  1 00:00:00 2024\n" + mail(n, eol="\n") + b"\n" for n in range(MESSAGES)))
    done = installation.command("import", str(box), "--mailbox", "ann@example.org", "--wait")
    assert done.returncode == 0, done.stderr
    yield installation
    installation.clean_up()


def outcome(installation: Archiver, name: str) -> MaintenanceOutcome | None:
    with hold_stack(DataFolder(installation.data)) as addresses:
        engine = make_engine(addresses["DATABASE_URL"], "test")
        try:
            with engine.connect() as connection:
                return outcomes.load(connection, name)
        finally:
            engine.dispose()


def when_idle(installation: Archiver, *arguments: str) -> subprocess.CompletedProcess[str]:
    """The stack makes backups and drills of its own, and only one runs at a time."""

    def run() -> subprocess.CompletedProcess[str] | None:
        done = installation.command(*arguments, "--json", seconds=300)
        return None if "running" in done.stderr else done

    ended: subprocess.CompletedProcess[str] = eventually(run, seconds=300, what=" ".join(arguments), pause=1)
    return ended


@pytest.mark.timeout(600)
def test_a_running_stack_backs_up_and_drills_by_itself(backed_up: Archiver) -> None:
    eventually(lambda: outcome(backed_up, outcomes.DRILL) is not None, seconds=300, what="the report of a drill")
    backup, drill = outcome(backed_up, outcomes.BACKUP), outcome(backed_up, outcomes.DRILL)
    assert backup is not None
    assert backup.succeeded_at is not None
    assert drill is not None
    assert not drill.has_failed, drill.details
    assert [check["name"] for check in drill.details["checks"]] == CHECKS
    assert all(check["ok"] for check in drill.details["checks"])
    assert drill.details["messages"] > 0, "an empty archive is not worth a backup"
    assert "compared hit by hit with the archive in use" in drill.details["checks"][-1]["detail"]
    eventually(lambda: not list((backed_up.data / "drill").iterdir()), what="the scratch folder to be removed")


@pytest.mark.timeout(600)
def test_a_drill_by_command_names_what_is_wrong(backed_up: Archiver) -> None:
    target = backed_up.data.parent / "mine"
    done = when_idle(backed_up, "backup", str(target))
    assert json.loads(done.stdout)["messages"] == MESSAGES, done.stderr
    pack = max((target / "packs").iterdir(), key=lambda path: path.stat().st_size)
    data = bytearray(pack.read_bytes())
    data[len(data) // 2] ^= 1
    pack.write_bytes(data)
    bad = when_idle(backed_up, "drill", str(target))
    assert bad.returncode == 3
    assert "checksum is wrong" in json.loads(bad.stdout)["reason"]
    failed = outcome(backed_up, outcomes.DRILL)
    assert failed is not None
    assert failed.has_failed, "what the alert drill_failed reads"
    assert not list((backed_up.data / "drill").iterdir())
    nowhere = when_idle(backed_up, "drill", str(target / "nothing"))
    assert nowhere.returncode == 3
    assert "no completed backup" in json.loads(nowhere.stdout)["reason"]


def test_the_process_of_a_drill_refuses_servers_that_are_not_its_own(tmp_path: Path) -> None:
    environment = {**os.environ, "ARCHIVER_DATA": str(tmp_path / "data"), "DATABASE_URL": "postgresql://live@localhost/archive"}
    command = [sys.executable, "-m", "archiver.maintenance.backups.drill_child", "restore"]
    done = subprocess.run(command, input=b"{}", env=environment, capture_output=True, cwd=tmp_path, timeout=60)
    assert done.returncode != 0
    assert "nothing was done" in json.loads(done.stdout)["error"]
    assert not (tmp_path / "data").exists()
