"""`archiver user` and `archiver audit` as a person uses them, on a database of one's own."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import Engine, text
from typer.testing import CliRunner

from archiver.access import audit
from archiver.cli.app import build
from archiver.config import load_settings
from archiver.errors import Conflict, NotFound, UsageError
from archiver.secrets import create_missing_keys

PASSWORD = "correct horse battery"


@pytest.fixture
def run(tmp_path: Path, database_url: str, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Any]:
    variables = {
        "ARCHIVER_DATA": str(tmp_path),
        "DATABASE_URL": database_url,
        "REDIS_URL": "redis://127.0.0.1:1/0",
        "MEILI_HOST": "http://127.0.0.1:1",
        "MEILI_MASTER_KEY": "x",
    }
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    create_missing_keys(load_settings(variables, Path("none")))
    app = build(("user", "audit"))

    def call(*arguments: str, given: str = "") -> Any:
        done = CliRunner().invoke(app, [*arguments, "--json"], input=given, catch_exceptions=False)
        assert done.exit_code == 0, done.output
        return json.loads(done.stdout)

    return call


def test_users(run: Callable[..., Any], engine: Engine) -> None:
    added = run("user", "add", "Ann@example.org", "--role", "administrator", "--name", "Ann", given=f"{PASSWORD}\n")
    assert (added["user"]["email"], added["user"]["role"]) == ("Ann@example.org", "administrator")
    assert "password" not in str(added["user"])
    with pytest.raises(Conflict, match="already"):
        run("user", "add", "ann@EXAMPLE.org", "--no-password")
    with pytest.raises(UsageError, match="10 to 1024"):
        run("user", "add", "bob@example.org", given="short\n")
    with pytest.raises(UsageError, match="standard input"):
        run("user", "add", "bob@example.org")
    with pytest.raises(UsageError, match="not an email address"):
        run("user", "add", "bob", "--no-password")
    run("user", "add", "bob@example.org", "--no-password")
    with pytest.raises(NotFound, match="there is no mailbox"):
        run("user", "grant", "bob@example.org", "--mailbox", "info@example.org")
    run("user", "grant", "bob@example.org", "--pattern", "*@Sales.example.org")
    assert run("user", "show", "bob@example.org")["grants"][0]["pattern"] == "*@sales.example.org"
    run("user", "revoke", "bob@example.org", "--pattern", "*@sales.example.org")
    assert run("user", "show", "bob@example.org")["grants"] == []
    run("user", "read-all", "bob@example.org")
    run("user", "reset-password", "bob@example.org", "--second-factor", given=f"{PASSWORD}\n")
    run("user", "disable", "bob@example.org")
    with pytest.raises(Conflict, match="only administrator"):
        run("user", "role", "ann@example.org", "user")
    run("user", "remove", "bob@example.org", "--yes")
    assert [user["email"] for user in run("user", "list")["users"]] == ["Ann@example.org"]
    actions = [entry["action"] for entry in run("audit", "list", "--actor", "local-operator")["entries"]]
    assert actions == [
        "user.removed",
        "user.changed",
        "user.totp_disabled",
        "user.password_changed",
        "user.read_all_granted",
        "grant.removed",
        "grant.added",
        "user.added",
        "user.added",
    ]
    assert run("audit", "verify")["broken"] == []


def test_a_broken_chain_is_told_by_the_exit_code(run: Callable[..., Any], engine: Engine) -> None:
    run("user", "add", "ann@example.org", "--no-password")
    with engine.begin() as connection:
        connection.execute(text("ALTER TABLE audit_log DISABLE TRIGGER ALL"))
        connection.execute(text("UPDATE audit_log SET actor = 'somebody else'"))
        connection.execute(text("ALTER TABLE audit_log ENABLE TRIGGER ALL"))
    assert audit.verify(engine).broken == ("entry 1 was changed",)
    done = CliRunner().invoke(build(("audit",)), ["audit", "verify", "--json"])
    assert done.exit_code == 1
    assert json.loads(done.stdout)["broken"] == ["entry 1 was changed"]
