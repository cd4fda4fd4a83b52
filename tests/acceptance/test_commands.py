"""Commands on a bare machine: they find the stack that runs, or bring their own for as long as they need it."""

import json
import os
import signal
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from archiver.supervisor.control import ask_status
from archiver.supervisor.folder import DataFolder
from tests.acceptance.conftest import Archiver
from tests.support.waiting import eventually


def test_a_command_brings_its_own_servers_and_takes_them_away(archiver: Archiver) -> None:
    first = archiver.command("migrate", "--json")
    assert (first.returncode, json.loads(first.stdout)) == (0, {"migrations": []}), first.stderr
    assert "created the key" in first.stderr
    # the next one comes while the servers of the first are still leaving
    second = archiver.command("migrate")
    assert (second.returncode, second.stdout) == (0, "The schema is up to date.\n"), second.stderr
    folder = DataFolder(archiver.data)
    eventually(
        lambda: ask_status(folder) is None and not list((archiver.data / "run").glob("*.sock")), 30, "the end of the servers"
    )


def test_several_commands_share_one_stack(archiver: Archiver) -> None:
    with ThreadPoolExecutor(4) as pool:
        done = list(pool.map(lambda _: archiver.command("migrate"), range(4)))
    assert [one.returncode for one in done] == [0] * 4, [one.stderr for one in done]
    log = (archiver.data / "logs" / "postgres.log").read_text()
    assert log.count("database system is ready to accept connections") <= 2


def test_a_killed_command_leaves_no_servers(archiver: Archiver) -> None:
    process = subprocess.Popen(
        [sys.executable, "-m", "archiver", "web"],
        env=archiver.environment,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    folder = DataFolder(archiver.data)
    status = eventually(
        lambda: (found := ask_status(folder)) and found["ready"] and found["held"] and found, what="the servers"
    )
    assert [part["name"] for part in status["parts"]] == ["postgres", "valkey", "search", "migrate"]
    os.kill(process.pid, signal.SIGKILL)
    process.wait()
    eventually(lambda: not any(_exists(part["pid"]) for part in status["parts"] if part["pid"]), what="the end of the servers")


def _exists(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def test_status_starts_nothing_and_says_so(archiver: Archiver) -> None:
    done = archiver.command("status")
    assert done.returncode == 1
    assert done.stdout.rstrip() == f"Nothing runs on {archiver.data}. `archiver up` starts everything."
    assert not archiver.data.exists()
    assert json.loads(archiver.command("status", "--json").stdout)["ready"] is False


def test_status_and_doctor_of_a_running_stack(running: Archiver) -> None:
    status = running.command("status", "--json")
    assert status.returncode == 0
    found = json.loads(status.stdout)
    assert found["archive"]["messages"] == 0
    assert {part["part"]: part["ok"] for part in found["parts"]} == {"postgres": True, "redis": True, "search": True}
    assert found["jobs"]["ingestion"]["failed"] == 0
    table = running.command("status").stdout
    assert "postgres" in table
    assert "0 messages" in table

    doctor = json.loads(running.command("doctor", "--json").stdout)
    assert doctor["healthy"]
    assert any(finding["check"] == "readers" and finding["verdict"] != "failed" for finding in doctor["findings"])
    texts = {finding["check"]: finding["text"] for finding in doctor["findings"]}
    assert "processed a job in" in texts["ingestion worker"]
    assert "processed a job in" in texts["indexing worker"]
    assert texts["schema"] == "up to date"


def test_doctor_finds_what_is_wrong(archiver: Archiver) -> None:
    assert archiver.command("migrate").returncode == 0
    (archiver.data / "secrets" / "encryption.key").chmod(0o644)
    (archiver.data / "secrets" / "storage-encryption.key").unlink()
    archiver.environment["DISK_MIN_FREE_BYTES"] = "900T"
    eventually(lambda: ask_status(DataFolder(archiver.data)) is None)
    done = archiver.command("doctor", "--json")
    failed = {finding["check"] for finding in json.loads(done.stdout)["findings"] if finding["verdict"] == "failed"}
    assert done.returncode == 1
    assert failed == {"disk", "storage key", "credentials key", "permissions"}


def test_a_lost_key_is_never_replaced_once_there_is_mail(archiver: Archiver) -> None:
    (archiver.data / "packs").mkdir(parents=True)
    (archiver.data / "packs" / "0001.pack").write_bytes(b"frames")
    done = archiver.command("up")
    assert done.returncode == 1
    assert "storage-encryption.key: put it back, or set STORAGE_ENCRYPTION_KEY" in done.stderr
    assert len(done.stderr.splitlines()) == 1
    assert not list((archiver.data / "secrets").glob("*.key"))


def test_a_folder_of_a_newer_version_is_refused(archiver: Archiver) -> None:
    archiver.data.mkdir()
    (archiver.data / "archiver.json").write_text('{"format": 99}')
    for command in ("up", "migrate"):
        done = archiver.command(command)
        assert done.returncode == 1
        assert "belongs to a newer version (its format is 99" in done.stderr
        assert len(done.stderr.splitlines()) == 1


@pytest.mark.parametrize("place", ["/proc/archiver", "/dev/null", "/dev/null/below"])
def test_a_folder_that_cannot_be_written_is_named(archiver: Archiver, place: str) -> None:
    archiver.environment["ARCHIVER_DATA"] = place
    done = archiver.command("up")
    assert done.returncode == 1
    assert done.stderr.startswith(f"archiver: ARCHIVER_DATA={place!r}: not a writable folder (")
    assert len(done.stderr.splitlines()) == 1


def test_a_bad_setting_stops_every_command_with_one_line(archiver: Archiver) -> None:
    archiver.environment["STORAGE_TYPE"] = "ftp"
    for command in (["up"], ["status"], ["doctor"], ["migrate"], ["web"], ["search-server"]):
        done = archiver.command(*command)
        assert (done.returncode, done.stderr) == (2, "archiver: STORAGE_TYPE='ftp': expected 'local' or 's3'\n"), command


def test_help_everywhere(archiver: Archiver) -> None:
    root = archiver.command("--help")
    assert root.returncode == 0
    for command in ("up", "status", "doctor", "migrate", "web", "search-server"):
        assert command in root.stdout
        one = archiver.command(command, "--help")
        assert (one.returncode, "Usage" in one.stdout) == (0, True)
    assert archiver.command("--version").stdout.startswith("archiver ")
    assert archiver.command("fly").returncode == 2


def test_shell_completion_knows_the_commands(archiver: Archiver) -> None:
    archiver.environment |= {"_ARCHIVER_COMPLETE": "complete_bash", "COMP_WORDS": "archiver do", "COMP_CWORD": "1"}
    script = Path(sys.executable).parent / "archiver"
    done = subprocess.run([script], env=archiver.environment, capture_output=True, text=True)
    assert done.stdout.split() == ["doctor"]
