"""The first administrator of a running installation, and users and the audit log on the command line."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import urllib.error
import urllib.request
from typing import Any

import psycopg
import pytest

from archiver.supervisor.folder import DataFolder
from archiver.supervisor.postgres import EmbeddedPostgres
from tests.acceptance.conftest import Archiver
from tests.support.waiting import DEADLINE_SECONDS, eventually

PASSWORD = "correct horse battery"


def command(archiver: Archiver, *arguments: str, given: str = "") -> Any:
    done = subprocess.run(
        [sys.executable, "-m", "archiver", *arguments, "--json"],
        env=archiver.environment,
        input=given,
        capture_output=True,
        text=True,
        timeout=DEADLINE_SECONDS,
        cwd=archiver.data.parent,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def post(archiver: Archiver, path: str, body: dict[str, Any]) -> int:
    request = urllib.request.Request(
        f"http://127.0.0.1:{archiver.port}/api/v1{path}", json.dumps(body).encode(), {"Content-Type": "application/json"}
    )
    try:
        with urllib.request.urlopen(request, timeout=DEADLINE_SECONDS) as answer:
            return int(answer.status)
    except urllib.error.HTTPError as error:
        with error:
            return error.code


@pytest.mark.slow
def test_the_token_that_is_shown_makes_the_first_administrator(archiver: Archiver) -> None:
    archiver.start()
    token = eventually(lambda: re.search(r"#token=(\S{24})\n", archiver.log.read_text()), what="a link in the terminal")
    assert token[1] not in "".join(path.read_text() for path in (archiver.data / "logs").iterdir())
    given = {"token": token[1], "email": "first@example.org", "password": PASSWORD, "purpose": "company"}
    assert archiver.get("/api/v1/messages")[0] == 401
    assert post(archiver, "/first-start", {**given, "token": "x" * 24}) == 401
    assert post(archiver, "/first-start", given) == 201
    assert post(archiver, "/first-start", given) == 401
    assert post(archiver, "/session", {"email": "first@example.org", "password": PASSWORD}) == 201

    assert command(archiver, "user", "add", "second@example.org", given=f"{PASSWORD}\n")["user"]["role"] == "user"
    assert command(archiver, "user", "role", "second@example.org", "auditor")["user"]["role"] == "auditor"
    assert post(archiver, "/session", {"email": "second@example.org", "password": PASSWORD}) == 201
    refused = archiver.command("user", "disable", "first@example.org")
    assert (refused.returncode, "only administrator" in refused.stderr) == (2, True)

    actions = [entry["action"] for entry in command(archiver, "audit", "list")["entries"]]
    assert actions[-2:] == ["session.started", "user.added"]
    assert command(archiver, "audit", "verify")["broken"] == []
    assert PASSWORD not in archiver.log.read_text()

    postgres = EmbeddedPostgres(DataFolder(archiver.data))
    with psycopg.connect(postgres.app_url()) as connection, pytest.raises(psycopg.errors.InsufficientPrivilege):
        connection.execute("DELETE FROM audit_log")
    with psycopg.connect(postgres.app_url()) as connection:
        users = connection.execute(
            "SELECT DISTINCT usename FROM pg_stat_activity WHERE application_name LIKE 'archiver-%'"
        ).fetchall()
    assert users == [("archiver_app",)], "web and workers do not work as the owner of the tables"
