"""The drill: the newest backup is restored into an empty data folder with servers of its own, rebuilt, and compared.

A workflow: each step runs a child process (archiver.maintenance.backups.drill_child) that can be killed, and the last one
reports. The rollback of the first removes everything.
"""

from __future__ import annotations

import os
import select
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any
from uuid import UUID

import orjson
from pydantic import SecretStr
from sqlalchemy import Connection

from archiver.config import Settings
from archiver.errors import ArchiverError, UsageError
from archiver.logs import get_logger
from archiver.maintenance.backups.drill_report import DrillCheck, DrillFailed
from archiver.maintenance.backups.drill_searches import SEARCHES, DrillSearch, compare_with_live
from archiver.maintenance.backups.manifest import load_manifest
from archiver.maintenance.backups.target import open_target
from archiver.maintenance.checks import outcomes
from archiver.secrets import credentials_keyring, storage_keyring
from archiver.supervisor.control import ask_status
from archiver.supervisor.folder import DataFolder
from archiver.supervisor.process import ON_LINUX, parent_death_hook
from archiver.workflows import service as workflows
from archiver.workflows.definition import Nothing, Step, Workflow
from archiver.workflows.step_run import StepRun

_CHILD = "archiver.maintenance.backups.drill_child"
_SECONDS = 5 * 3600.0
_STOP_SECONDS = 60.0
_POLL_SECONDS = 0.5
_BYTES_PER_MESSAGE = 12_000
"""In two databases and an index, beside the packs: an estimate on the safe side."""
_PASSED_ON = ("PATH", "HOME", "LANG", "TMPDIR", "SSL_CERT_FILE", "REQUESTS_CA_BUNDLE", "HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY")

log = get_logger("drill")


@dataclass(frozen=True, slots=True)
class DrillInput:
    target: str


@dataclass(frozen=True, slots=True)
class RestoredBackup:
    backup: str
    made_at: datetime
    messages: int
    checks: list[DrillCheck]


@dataclass(frozen=True, slots=True)
class DrillChecks:
    checks: list[DrillCheck] = field(default_factory=list)


def restore(run: StepRun) -> RestoredBackup:
    given: DrillInput = run.input
    settings = run.resources.settings
    manifest = load_manifest(open_target(settings, given.target))
    if manifest is None:
        raise UsageError(f"{given.target} has no completed backup to restore")
    messages = manifest.figures.messages if manifest.figures else 0
    folder = scratch_folder(settings, run.run_id)
    remove_scratch(folder)
    _check_room(folder.parent, manifest.total_bytes() + messages * _BYTES_PER_MESSAGE + settings.disk_min_free_bytes)
    answer = _run_child(run, "restore", {"target": given.target, "backup": None if not manifest.dump_sha256 else manifest.name})
    return RestoredBackup(manifest.name, manifest.made_at, messages, _checks(answer))


def rebuild(run: StepRun) -> DrillChecks:
    """Nothing to do after a restore that failed: its report is enough."""
    restored: RestoredBackup = run.result("restore")
    if not all(check.ok for check in restored.checks):
        return DrillChecks()
    return DrillChecks(_checks(_run_child(run, "rebuild", {})))


def search(run: StepRun) -> DrillChecks:
    restored: RestoredBackup = run.result("restore")
    earlier = [*restored.checks, *run.result("rebuild").checks]
    if not all(check.ok for check in earlier):
        return DrillChecks()
    answer = _run_child(run, "search", {"searches": SEARCHES})
    searches = [_search(one) for one in answer["searches"]]
    ok, detail = compare_with_live(run.resources.settings, run.resources.engine, restored.made_at, searches)
    return DrillChecks([DrillCheck("searches", ok, detail)])


def report(run: StepRun) -> Nothing:
    """Raises DrillFailed with the first problem, so that the run itself counts as failed."""
    restored: RestoredBackup = run.result("restore")
    checks = [*restored.checks, *run.result("rebuild").checks, *run.result("search").checks]
    failed = next((check for check in checks if not check.ok), None)
    remove_scratch(scratch_folder(run.resources.settings, run.run_id))
    details = {
        "run": str(run.run_id),
        "target": run.input.target,
        "backup": restored.backup,
        "made_at": restored.made_at.isoformat(),
        "messages": restored.messages,
        "checks": [asdict(check) for check in checks],
    }
    if failed is None:
        run.with_result(lambda connection: outcomes.record(connection, outcomes.DRILL, succeeded=True, **details))
        return Nothing()
    reason = f"{failed.name}: {failed.detail}"
    with run.resources.engine.begin() as connection:
        outcomes.record(connection, outcomes.DRILL, succeeded=False, reason=reason[:500], **details)
    raise DrillFailed(f"the backup {restored.backup} failed the drill: {reason}")


def clean_up(run: StepRun) -> None:
    """Also records why a drill could not be carried out; one that was cancelled is no failure."""
    remove_scratch(scratch_folder(run.resources.settings, run.run_id))
    with run.resources.engine.begin() as connection:
        ended = workflows.load(connection, run.run_id)
        if ended.cancel_requested_at is None and not _is_recorded(connection, run.run_id):
            steps = workflows.steps(connection, run.run_id)
            reason = next((step.error for step in steps if step.error), ended.error) or "it did not end"
            details = {"run": str(run.run_id), "target": run.input.target}
            outcomes.record(connection, outcomes.DRILL, succeeded=False, reason=reason[:500], **details)


def _is_recorded(connection: Connection, run_id: UUID) -> bool:
    outcome = outcomes.load(connection, outcomes.DRILL)
    return outcome is not None and outcome.details.get("run") == str(run_id)


DRILL = Workflow(
    "drill",
    1,
    DrillInput,
    (
        (Step("restore", restore, RestoredBackup, rollback=clean_up, timeout_seconds=_SECONDS, attempts=2),),
        (Step("rebuild", rebuild, DrillChecks, timeout_seconds=_SECONDS, attempts=2),),
        (Step("search", search, DrillChecks, timeout_seconds=_SECONDS, attempts=2),),
        (Step("report", report, attempts=1),),
    ),
    open_runs_per_owner=1,
)


def scratch_folder(settings: Settings, run_id: UUID) -> Path:
    return (settings.drill_folder or settings.archiver_data / "drill") / str(run_id)


def remove_scratch(folder: Path) -> None:
    """Its servers stop by themselves when no process uses them."""
    deadline = time.monotonic() + _STOP_SECONDS
    while folder.exists() and ask_status(DataFolder(folder / "data")) is not None:
        if time.monotonic() > deadline:
            raise ArchiverError(f"the servers of the drill in {folder} do not stop")
        time.sleep(0.2)
    shutil.rmtree(folder, ignore_errors=True)


def _check_room(place: Path, needed: int) -> None:
    while not place.exists():
        place = place.parent
    free = shutil.disk_usage(place).free
    if free < needed:
        room = f"{needed / 1e9:,.1f} GB in {place}, and {free / 1e9:,.1f} GB are free"
        raise UsageError(f"the drill needs {room}: set DRILL_FOLDER to a folder on another disk")


def _environment(settings: Settings, folder: Path) -> dict[str, str]:
    """Only what a restore needs: no address of a server of the archive, so that the child can't reach one."""
    backup = {name.upper(): getattr(settings, name) for name in Settings.model_fields if name.startswith("backup_s3_")}
    for name in ("endpoint", "region", "access_key_id", "secret_access_key", "force_path_style"):
        if backup[f"BACKUP_S3_{name.upper()}"] is None:
            backup[f"BACKUP_S3_{name.upper()}"] = getattr(settings, f"storage_s3_{name}")
    return {
        **{name: value for name, value in os.environ.items() if name in _PASSED_ON or name.startswith(("LC_", "PYTHON"))},
        **{name: _plain(value) for name, value in backup.items() if value is not None},
        "ARCHIVER_DATA": str(folder / "data"),
        "STORAGE_ENCRYPTION_KEY": storage_keyring(settings).serialise(),
        "ENCRYPTION_KEY": credentials_keyring(settings).serialise(),
        "DISK_MIN_FREE_BYTES": str(settings.disk_min_free_bytes),
        "LOG_LEVEL": settings.log_level,
    }


def _plain(value: Any) -> str:
    if isinstance(value, SecretStr):
        return value.get_secret_value()
    return str(value).lower() if isinstance(value, bool) else str(value)


def _run_child(run: StepRun, phase: str, request: dict[str, Any]) -> dict[str, Any]:
    """Killed if the step has to stop. Its working folder is empty, so that no `.env` is read."""
    folder = scratch_folder(run.resources.settings, run.run_id)
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    with (folder / f"{phase}.log").open("wb") as errors:
        process = subprocess.Popen(
            [sys.executable, "-P", "-m", _CHILD, phase],
            cwd=folder,
            env=_environment(run.resources.settings, folder),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=errors,
            preexec_fn=_begin_child() if ON_LINUX else None,
        )
    try:
        answer = _follow(process, orjson.dumps(request), run.report)
    finally:
        process.kill()
        process.wait()
        _close_pipes(process)
    if "result" in answer:
        return dict(answer["result"])
    log.warning("drill_child_failed", phase=phase, output=(folder / f"{phase}.log").read_text(errors="replace")[-2000:])
    raise ArchiverError(f"{phase}: {answer.get('error') or f'its process ended with {process.returncode}'}")


def _close_pipes(process: subprocess.Popen[bytes]) -> None:
    for pipe in (process.stdin, process.stdout):
        if pipe is not None:
            with suppress(BrokenPipeError):
                pipe.close()


def _begin_child() -> Callable[[], None]:
    die_with_parent = parent_death_hook(signal.SIGKILL)

    def begin() -> None:
        die_with_parent()
        os.nice(10)

    return begin


def _follow(process: subprocess.Popen[bytes], request: bytes, on_progress: Callable[[int, int], None]) -> dict[str, Any]:
    assert process.stdin is not None
    assert process.stdout is not None
    with suppress(BrokenPipeError):  # it ended early, and says why
        process.stdin.write(request)
        process.stdin.close()
    last: dict[str, Any] = {}
    rest, done, total = b"", 0, 0
    while True:
        ready, _, _ = select.select([process.stdout], [], [], _POLL_SECONDS)
        piece = os.read(process.stdout.fileno(), 1 << 16) if ready else None
        if piece == b"":
            break
        *lines, rest = (rest + (piece or b"")).split(b"\n")
        for line in lines:
            last = orjson.loads(line)
            done, total = int(last.get("done", done)), int(last.get("total", total))
        on_progress(done, total)  # also while the child is silent: it raises when the step has to stop
    process.wait()
    return last


def _checks(answer: dict[str, Any]) -> list[DrillCheck]:
    return [DrillCheck(one["name"], one["ok"], one["detail"]) for one in answer["checks"]]


def _search(one: dict[str, Any]) -> DrillSearch:
    found = None if one["found"] is None else [UUID(item) for item in one["found"]]
    return DrillSearch(one["query"], UUID(one["message_id"]), found, one["finds_its_message"])
