"""Logs are JSON lines with ids; secrets have no place in them."""

import json
import logging
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import structlog

from archiver.logs import get_logger, set_up_logs


@pytest.fixture(autouse=True)
def restore() -> Iterator[None]:
    handlers, level = logging.root.handlers[:], logging.root.level
    yield
    for handler in logging.root.handlers:
        handler.close()
    logging.root.handlers[:] = handlers
    logging.root.setLevel(level)
    structlog.reset_defaults()


def lines(folder: Path) -> list[dict[str, object]]:
    return [json.loads(line) for line in (folder / "part.log").read_text().splitlines()]


def test_events_are_json_with_time_level_and_ids(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    set_up_logs("part", "info", tmp_path)
    with structlog.contextvars.bound_contextvars(request_id="r1"):
        get_logger("sync").info("batch_stored", mailbox="m1", messages=200)
    (line,) = lines(tmp_path)
    assert line.pop("timestamp")
    assert line == {
        "event": "batch_stored",
        "level": "info",
        "logger": "sync",
        "mailbox": "m1",
        "messages": 200,
        "request_id": "r1",
    }
    assert json.loads(capsys.readouterr().err)["event"] == "batch_stored"


def test_fields_named_like_secrets_are_hidden(tmp_path: Path) -> None:
    set_up_logs("part", "info", tmp_path)
    get_logger("x").info("added", imap_password="hunter2", access_token="hunter2", Authorization="hunter2", user="u")
    assert "hunter2" not in (tmp_path / "part.log").read_text()
    assert lines(tmp_path)[0]["user"] == "u"


def test_other_libraries_and_errors_use_the_same_form(tmp_path: Path) -> None:
    set_up_logs("part", "warning", tmp_path)
    logging.getLogger("somelib").warning("hello %s", "world")
    logging.getLogger("somelib").info("not shown")
    try:
        raise ValueError("broken")
    except ValueError:
        get_logger("x").exception("job_failed", id="j1")
    first, second = lines(tmp_path)
    assert first["event"] == "hello world"
    assert "ValueError: broken" in str(second["exception"])


def test_files_are_rotated(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("archiver.logs._FILE_BYTES", 2_000)
    set_up_logs("part", "info", tmp_path)
    for number in range(200):
        get_logger("x").info("event", number=number)
    files = sorted(file.name for file in tmp_path.iterdir())
    assert files == ["part.log", *(f"part.log.{n}" for n in range(1, 6))]
    assert max(file.stat().st_size for file in tmp_path.iterdir()) <= 2_000


def test_commands_write_nothing_but_results_to_standard_output() -> None:
    program = "from archiver.logs import *; log_problems_only(); log = get_logger('x'); log.info('step'); log.warning('lost')"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout == ""
    assert "lost" in done.stderr
    assert "step" not in done.stderr
