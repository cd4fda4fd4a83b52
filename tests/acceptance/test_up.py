"""`archiver up` from start to stop, and what happens when somebody kills something."""

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
from pathlib import Path

import psutil
import psycopg
import pytest

from archiver.supervisor.folder import DataFolder
from archiver.supervisor.postgres import EmbeddedPostgres
from tests.acceptance.conftest import Archiver
from tests.support.waiting import DEADLINE_SECONDS, eventually

PARTS = ["postgres", "valkey", "search", "migrate", "ingestion", "indexing", "web"]


def alive(processes: list[psutil.Process]) -> list[psutil.Process]:
    return [process for process in processes if _lives(process)]


def _lives(process: psutil.Process) -> bool:
    try:
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:  # it ended between the two questions
        return False


def test_start_stop_and_start_again(archiver: Archiver) -> None:
    archiver.start()
    assert [part["name"] for part in archiver.status()["parts"]][:4] == PARTS[:4]
    assert archiver.ready() == {"ready": True, "parts": {"postgres": "ok", "redis": "ok", "search": "ok"}}
    assert "created the key" in archiver.log.read_text()
    children = archiver.processes()
    assert len(children) >= 6

    assert archiver.stop(signal.SIGINT) == 0
    assert not alive(children)
    stopped = [line.split(":")[0] for line in archiver.log.read_text().splitlines() if line.endswith(": stopped")]
    assert set(stopped[:3]) == {"ingestion", "indexing", "web"}
    assert stopped[3:] == ["search", "valkey", "postgres"]

    archiver.data.chmod(0o755)
    (archiver.data / "logs").chmod(0o755)
    (archiver.data / "logs" / "web.log").chmod(0o644)
    archiver.start()
    assert open_to_others(archiver.data) == [], "what an earlier version left open is closed"
    assert "created the key" not in archiver.log.read_text()
    assert archiver.ready()["ready"]
    assert archiver.stop(signal.SIGTERM) == 0


def test_a_second_instance_is_refused_and_told_the_pid_of_the_first(running: Archiver) -> None:
    assert running.process is not None
    second = running.command("up")
    assert second.returncode == 1
    holder = f"pid {running.process.pid} (archiver up)"
    place = f"ARCHIVER_DATA={str(running.data)!r}"
    assert second.stderr == f"archiver: {place}: in use by {holder}; stop it, or use another folder\n"
    assert running.ready()["ready"]


@pytest.mark.parametrize("part", ["web", "ingestion", "indexing", "search", "valkey", "postgres"])
def test_a_child_that_dies_is_started_again(running: Archiver, part: str) -> None:
    before = running.pid(part)
    assert before is not None
    os.kill(before, signal.SIGKILL)
    eventually(lambda: running.pid(part) not in (None, before), what=f"a new {part}")
    eventually(lambda: running.status()["ready"], what="everything ready again")
    eventually(lambda: running.ready()["ready"], what="an answer from all parts")
    assert f"*** {part} was killed by SIGKILL" in running.log.read_text()
    eventually(lambda: running.command("doctor", "--json").returncode == 0, what="an answer from the workers")


def test_a_dead_supervisor_leaves_nothing_running_and_the_next_start_recovers(archiver: Archiver) -> None:
    archiver.start()
    children = archiver.processes()
    assert archiver.process is not None
    os.kill(archiver.process.pid, signal.SIGKILL)
    archiver.process.wait()
    eventually(lambda: not alive(children), what="the end of all children")
    assert not list(archiver.data.glob("*.orphan"))

    archiver.start()
    assert archiver.ready()["ready"]


def test_everything_dies_at_once_and_the_next_start_recovers(archiver: Archiver) -> None:
    """As after a power cut: stale sockets, pid files, and a Postgres that was not shut down."""
    archiver.start()
    assert archiver.process is not None
    children = archiver.processes()
    for process in [psutil.Process(archiver.process.pid), *children]:
        with contextlib.suppress(psutil.NoSuchProcess):  # some die with their parent
            process.send_signal(signal.SIGKILL)
    archiver.process.wait()
    eventually(lambda: not alive(children), what="the end of all children")
    assert (archiver.data / "postgres" / "postmaster.pid").exists()

    archiver.start()
    assert archiver.ready()["ready"]
    assert "not properly shut down" in (archiver.data / "logs" / "postgres.log").read_text()


def test_the_second_ctrl_c_ends_it_at_once(archiver: Archiver) -> None:
    archiver.start()
    assert archiver.process is not None
    children = archiver.processes()
    worker = archiver.pid("ingestion")
    assert worker is not None
    os.kill(worker, signal.SIGSTOP)  # can't finish anything
    archiver.process.send_signal(signal.SIGINT)
    eventually(lambda: "ingestion: stopping" in archiver.log.read_text())
    archiver.process.send_signal(signal.SIGINT)
    assert archiver.process.wait(DEADLINE_SECONDS) == 0
    assert "did not stop within" not in archiver.log.read_text(), "at once, not when its time was over"
    eventually(lambda: not alive(children), what="the end of all children")


def test_a_part_that_never_works_stops_everything_loudly(archiver: Archiver) -> None:
    archiver.environment["DATABASE_URL"] = "postgresql://nobody:hunter2@127.0.0.1:1/none"
    done = archiver.command("up")
    assert done.returncode == 1
    assert "archiver: migrate exited with code 1; see" in done.stderr
    assert "postgres does not answer" in done.stdout
    assert "hunter2" not in done.stdout + done.stderr


def test_the_port_is_taken(running: Archiver, tmp_path_factory: pytest.TempPathFactory) -> None:
    other = Archiver(tmp_path_factory.mktemp("other") / "data", ARCHIVER_PORT=str(running.port))
    done = other.command("up")
    assert done.returncode == 1
    assert done.stderr.startswith(f"archiver: ARCHIVER_PORT={running.port}: can't listen on 127.0.0.1:{running.port}")
    assert f"pid {running.pid('web')}" in done.stderr
    assert len(done.stderr.splitlines()) == 1


def test_no_password_is_visible_in_arguments_or_logs(running: Archiver) -> None:
    secrets = [file.read_text().strip().split(":")[-1] for file in (running.data / "secrets").iterdir()]
    assert len(secrets) == 7
    said = " ".join(" ".join(process.cmdline()) for process in running.processes())
    said += running.log.read_text() + "".join(file.read_text() for file in (running.data / "logs").iterdir())
    assert "postgres" in said
    assert not [secret for secret in secrets if secret in said]


def open_to_others(data: Path) -> list[str]:
    """Sockets lie in folders that are closed; as root, the user of Postgres may pass through the two above its own."""
    passed = {data, data / "run"} if os.geteuid() == 0 else set()
    paths = [data, *(path for path in data.rglob("*") if path.is_dir() or path.is_file())]
    return [
        f"{path} {path.stat().st_mode:o}" for path in paths if path.stat().st_mode & (0o067 if path in passed else 0o077) != 0
    ]


def test_files_are_closed_to_others(running: Archiver) -> None:
    assert open_to_others(running.data) == []
    for process in running.processes():
        status = Path(f"/proc/{process.pid}/status").read_text()
        assert "Umask:\t0077" in status, process.cmdline()


def test_doctor_says_what_others_can_read(running: Archiver) -> None:
    assert running.command("doctor").returncode == 0
    opened = running.data / "logs" / "web.log"
    opened.chmod(0o644)
    try:
        done = running.command("doctor", "--json")
        finding = next(one for one in json.loads(done.stdout)["findings"] if one["check"] == "permissions")
        assert done.returncode == 1
        assert str(opened) in finding["text"]
    finally:
        opened.chmod(0o600)


def test_the_search_server_knows_no_other_part_and_its_port_is_never_free(running: Archiver) -> None:
    search = running.pid("search")
    assert search is not None
    environment = psutil.Process(search).environ()
    assert environment["MEILI_MASTER_KEY"]
    assert not {"DATABASE_URL", "DATABASE_OWNER_URL", "REDIS_URL"} & set(environment)
    web = running.pid("web")
    assert web is not None
    port = int(psutil.Process(web).environ()["MEILI_HOST"].rpartition(":")[2])
    os.kill(search, signal.SIGKILL)
    psutil.wait_procs([psutil.Process(search)] if psutil.pid_exists(search) else [], 10)
    with socket.socket() as thief:
        thief.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        with pytest.raises(OSError, match="in use"):
            thief.bind(("127.0.0.1", port))
    eventually(lambda: running.pid("search") not in (None, search), what="a new search server")
    eventually(lambda: running.ready()["ready"], what="an answer from all parts")
    assert psutil.Process(web).environ()["MEILI_HOST"].endswith(f":{port}")


def test_the_audit_log_is_anchored_and_a_cut_is_found_at_the_next_start(archiver: Archiver) -> None:
    archiver.start()
    assert archiver.command("user", "add", "a@example.org", "--no-password").returncode == 0
    assert archiver.stop() == 0
    head = archiver.data / "audit-head.json"
    anchored = json.loads(head.read_text())["entry"]
    done = archiver.command("audit", "verify", "--json")
    assert (done.returncode, json.loads(done.stdout)["anchored_entries"]) == (0, anchored)

    folder = DataFolder(archiver.data)
    with EmbeddedPostgres(folder).running(), psycopg.connect(EmbeddedPostgres(folder).url()) as owner:
        owner.execute("ALTER TABLE audit_log DISABLE TRIGGER ALL")
        owner.execute("DELETE FROM audit_log WHERE id = %s", (anchored,))
        owner.execute("ALTER TABLE audit_log ENABLE TRIGGER ALL")
    archiver.start()
    eventually(lambda: "audit_log_cut" in archiver.log.read_text(), what="a word about the cut")
    eventually(lambda: archiver.command("doctor").returncode == 1, what="a doctor who knows")
    found = archiver.command("audit", "verify", "--json")
    assert found.returncode == 1
    assert "does not match" in json.loads(found.stdout)["broken"][0]
    assert archiver.command("audit", "accept", "--reason", "a test did it").returncode == 0
    assert archiver.command("audit", "verify").returncode == 0
    assert archiver.command("doctor").returncode == 0


def test_the_key_of_the_credentials_is_rotated_while_nothing_runs(archiver: Archiver) -> None:
    file = archiver.data / "secrets" / "encryption.key"
    archiver.start()
    before = file.read_text()
    refused = archiver.command("keys", "rotate", "--credentials")
    assert (refused.returncode, file.read_text()) == (2, before)
    assert "stop `archiver up`" in refused.stderr
    assert archiver.stop() == 0
    done = archiver.command("keys", "rotate", "--credentials", "--forget-old", "--json")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["forgotten"] == [before.partition(":")[0]]
    assert file.read_text().count(":") == 1
    archiver.start()
    assert archiver.ready()["ready"]


def test_rotated_logs_are_structured(running: Archiver) -> None:
    lines = (running.data / "logs" / "ingestion.log").read_text().splitlines()
    events = [json.loads(line)["event"] for line in lines]
    assert "worker_ready" in events


def test_it_works_in_a_terminal(archiver: Archiver) -> None:
    """A live table, and the address at the end. `script` gives it a terminal."""
    typescript = archiver.data.with_suffix(".tty")
    command = f"exec {sys.executable} -m archiver up"
    process = subprocess.Popen(
        ["script", "-qfec", command, str(typescript)],
        env={**archiver.environment, "TERM": "xterm", "COLUMNS": "120"},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        eventually(lambda: typescript.exists() and "ready in" in typescript.read_text(), what="ready")
        assert "restarts" in typescript.read_text()
    finally:
        for child in psutil.Process(process.pid).children():
            child.send_signal(signal.SIGINT)
        process.wait(DEADLINE_SECONDS)
    assert "stopped" in typescript.read_text()
