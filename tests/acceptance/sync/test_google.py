"""Google through the whole engine: 300 mailboxes with kill -9 in the middle, throttling, revoked sign-ins, no secrets."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from collections.abc import Iterator
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import text as sql

from archiver.sources import rows as source_rows
from archiver.supervisor.postgres import EmbeddedPostgres
from tests.acceptance.sync.world import World, eventually, new_world
from tests.support.google_server import GoogleServer, google_server
from tests.support.google_world import message_bytes
from tests.support.waiting import DEADLINE_SECONDS

MAILBOXES, MESSAGES = 300, 4


@pytest.fixture
def world(tmp_path: Path, postgres: EmbeddedPostgres) -> Iterator[World]:
    with new_world(tmp_path, postgres) as made:
        yield made


def _users(count: int, **more: Any) -> list[dict[str, Any]]:
    return [{"address": f"u{number}@acme.test", **more} for number in range(count)]


def _assert_no_secrets(world: World, server: GoogleServer) -> None:
    """In nothing that is written down: logs, errors, dead letters, runs, settings, states."""
    secrets = [json.loads(server.key)["private_key"].splitlines()[5], "ya29.secret", "refresh-secret", "client-secret"]
    files = [path for path in world.place.rglob("*") if path.is_file() and (path.suffix == ".log" or "logs" in path.parts)]
    written = [path.read_text(errors="replace") for path in files]
    tables = ("dead_letters", "sync_runs", "mailboxes", "ingestion_sources", "audit_log", "outbox")
    written += [str(world.rows(f"SELECT row_to_json(t)::text FROM {table} t")) for table in tables]
    assert any("batch_stored" in text for text in written), "the logs were looked at"
    for text in written:
        for secret in secrets:
            assert secret not in text


@pytest.mark.chaos
def test_300_mailboxes_with_a_kill_in_the_middle(world: World, tmp_path: Path) -> None:
    with google_server(tmp_path / "google", _users(MAILBOXES), messages=MESSAGES) as server:
        source = world.add_kind("google", "acme", server.settings, {"key": server.key})
        victim = world.start_worker()
        before = world.start_sync(source)
        eventually(lambda: world.one("SELECT count(*) FROM message_copies") > 100, seconds=200, what="some mail")
        victim.send_signal(signal.SIGKILL)
        victim.wait()
        world.start_worker()
        run = world.wait(source, before, 400)
        assert (run.outcome, run.mailboxes, run.failed_mailboxes) == ("success", MAILBOXES, 0)
        wanted = {
            (user["address"], f"{number + 1:016x}", "All Mail", sha256(message_bytes(user["address"], number, 2000)).digest())
            for user in _users(MAILBOXES)
            for number in range(MESSAGES)
        }
        assert world.archive(source) == wanted
        assert server.calls()["get"] <= MAILBOXES * MESSAGES + 60, "only what was under way was fetched twice"
        labels = "SELECT count(*) FROM message_copies WHERE labels = '{\"Projects/Übersicht\"}' AND flags = '{\"\\\\Flagged\"}'"
        assert world.one(labels) == MAILBOXES * 2

        server.tell(reset_calls=True)
        again = world.sync(source, 400)
        assert (again.outcome, again.archived) == ("success", 0)
        assert server.calls()["history"] == MAILBOXES
        assert server.calls()["get"] == server.calls()["list"] == 0
        world.assert_at_rest()
        _assert_no_secrets(world, server)


def test_a_quota_frees_the_place_and_what_changes_is_recorded(world: World, tmp_path: Path) -> None:
    """Each mailbox may be read in small pieces only, Google refuses on top of it, and all is in at the end."""
    with google_server(tmp_path / "google", _users(3), messages=30, per_user=6000, units_per_message=50) as server:
        settings = {**server.settings, "units_per_message": 50}
        server.tell(troubles=[{"match": "^get .*u1@", "status": 429, "after": 5, "times": 3, "headers": {"Retry-After": "1"}}])
        source = world.add_kind("google", "acme", settings, {"key": server.key})
        world.start_worker()
        before = world.start_sync(source)
        delayed = world.valkey._client()
        eventually(lambda: delayed.zcard("bull:ingestion:delayed") > 1, what="mailboxes in BullMQ's delayed set")
        run = world.wait(source, before, 100)
        assert (run.outcome, run.archived, run.duplicates, run.failed) == ("success", 90, 0, 0)
        assert server.tell()["refused"] == 0, "our own count is stricter than the server's"
        assert 90 + 3 <= server.calls()["get"] <= 90 + 3 + 12, "only what was under way was fetched twice"
        assert float(delayed.hget("archiver:bucket:google:archive-test:u1@acme.test", "share") or 1) < 1

        change = {"in": "u0@acme.test", "what": "delete", "id": f"{1:016x}"}
        relabel = {"in": "u0@acme.test", "what": "label", "id": f"{2:016x}", "labels": ["Label_2", "UNREAD"]}
        server.tell(change=[change, relabel])
        assert world.sync(source).outcome == "success"
        rows = world.rows(
            "SELECT provider_key, gone_at IS NOT NULL, labels FROM message_copies ORDER BY provider_key, mailbox_id"
        )
        assert [row[0] for row in rows if row[1]] == [f"{1:016x}"]
        assert [row[2] for row in rows if row[0] == f"{2:016x}"].count(["Bills"]) == 1

        server.tell(expire=True, change=[{"in": "u2@acme.test", "what": "forget", "id": f"{3:016x}"}], reset_calls=True)
        assert world.sync(source).outcome == "success"
        assert server.calls()["get"] == 0, "an expired history costs ids only"
        gone = world.rows("SELECT provider_key FROM message_copies WHERE gone_at IS NOT NULL ORDER BY provider_key")
        assert [row[0] for row in gone] == [f"{1:016x}", f"{3:016x}"], "what went unseen is found by the listing"


def test_what_google_cannot_find_is_asked_for_once_more_in_a_later_cycle(world: World, tmp_path: Path) -> None:
    for_a_while, for_good = f"{2:016x}", f"{3:016x}"
    with google_server(tmp_path / "google", _users(1), messages=5) as server:
        troubles = [{"match": f"^get .*{key}", "status": 404, "reason": "notFound"} for key in (for_a_while, for_good)]
        server.tell(troubles=troubles)
        source = world.add_kind("google", "acme", server.settings, {"key": server.key})
        world.start_worker()
        first = world.sync(source)
        assert (first.outcome, first.archived, first.failed, first.skipped) == ("incomplete", 3, 2, 0)
        assert world.sync(source).failed == 0, "not before its time"
        server.tell(troubles=troubles[1:])
        with world.engine.begin() as connection:
            connection.execute(sql("UPDATE dead_letters SET next_try_at = now()"))
        second = world.sync(source)
        assert (second.outcome, second.archived, second.failed, second.skipped) == ("success", 1, 0, 1)
        assert world.rows("SELECT provider_key FROM dead_letters") == []
        (skipped,) = world.rows("SELECT provider_key, folder, rule FROM skipped_messages")
        assert tuple(skipped) == (for_good, "All Mail", "deleted at the source before it could be fetched")


def test_signing_in_and_a_sign_in_that_was_revoked(world: World, tmp_path: Path) -> None:
    with google_server(tmp_path / "google", _users(1), messages=5) as server:
        settings = [f"--set={name}={value}" for name, value in server.gmail_settings.items()]
        (tmp_path / "secret").write_text("client-secret")
        given = ["--name=me", *settings, f"--secret=client_secret=@{tmp_path / 'secret'}", "--sign-in"]
        added = _archiver(world, "source", "add", "gmail", *given)
        assert added.returncode == 0, added.stderr
        assert "refresh-secret" not in added.stdout + added.stderr
        with world.engine.connect() as connection:
            source = source_rows.find(connection, "me")
        world.start_worker()
        assert world.sync(source).archived == 5
        _assert_no_secrets(world, server)

        server.tell(revoke=True)
        world.stop_workers()
        world.start_worker()
        assert world.sync(source).outcome == "failed"
        broken = world.load(source)
        assert broken.status == "error"
        assert "sign in again: `archiver source edit" in str(broken.status_message)

        server.tell(allow=True)
        signed_in = _archiver(world, "source", "edit", "me", "--sign-in")
        assert signed_in.returncode == 0, signed_in.stderr
        assert world.sync(source).outcome == "success"


def _archiver(world: World, *arguments: str) -> subprocess.CompletedProcess[str]:
    """With a browser that goes where it is sent, as a person who agrees to everything would."""
    browser = world.place / "browser"
    browser.write_text(
        f"#!{sys.executable}\nimport sys, urllib.request\nurllib.request.urlopen(sys.argv[1], timeout=20).read()\n"
    )
    browser.chmod(0o755)
    environment = {**world.environment, "BROWSER": f"{browser} %s &"}
    environment.pop("DISPLAY", None)
    command = [sys.executable, "-m", "archiver", *arguments]
    return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=DEADLINE_SECONDS)
