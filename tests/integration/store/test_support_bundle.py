"""The support bundle, with secrets and mail planted wherever the installation has them."""

from __future__ import annotations

import json
import stat
import zipfile
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import text

from archiver.config import Settings, load_settings
from archiver.db.ids import uuid7
from archiver.errors import ArchiverError
from archiver.maintenance.support.bundle import BundleSource, write_bundle
from connectors.base import Batch, RawMessage
from tests.integration.store.conftest import MAILBOX, SOURCE, World

MAIL = b"From: Zacharias <zacharias@planted.example>\r\nSubject: planted subject Quokka\r\n\r\nplanted body Wombat\r\n"
FORBIDDEN = (
    "planted", "Zacharias", "Quokka", "Wombat", "alice", "bob@", "s3cr3t", "correct-horse", "example.org", "k3y-material",
    "Divorce",
)  # fmt: skip


def _settings(folder: Path, database_url: str) -> Settings:
    """Each secret contains a word that must not be found."""
    variables = {
        "ARCHIVER_DATA": str(folder),
        "DATABASE_URL": database_url,
        "ENCRYPTION_KEY": "",
        "METRICS_TOKEN": "s3cr3t-metrics-token",
        "OPERATOR_HMAC_KEY": "s3cr3t-operator-key-of-enough-characters",
        "SMTP_URL": "smtp://planted:s3cr3t-smtp@mail.planted.example:25",
        "ALERT_URLS": "https://planted.example/hook#s3cr3t-hook",
        "ARCHIVER_ADMIN_EMAIL": "zacharias@planted.example",
        "ARCHIVER_ADMIN_PASSWORD": "correct-horse-battery",
        "SOURCE_HOSTS": "imap.planted.example",
        "OIDC_CLIENT_ID": "planted-client",
        "BACKUP_TARGET": "s3://planted-bucket/path",
        "BACKUP_S3_ACCESS_KEY_ID": "planted-key-id",
        "BACKUP_S3_SECRET_ACCESS_KEY": "s3cr3t-backup",
    }
    return load_settings(variables, folder / "no.env")


def _plant(world: World, folder: Path) -> None:
    world.open().store_batch(world.origin(), Batch((RawMessage("planted-key", MAIL, folder="Personal/Divorce"),)))
    with world.engine.begin() as connection:
        connection.execute(
            text(
                "UPDATE ingestion_sources SET name = 'import:alice@example.org', settings = CAST(:s AS jsonb), credentials = :c"
            ),
            {"s": json.dumps({"host": "imap.planted.example", "user": "alice@example.org"}), "c": b"s3cr3t-sealed"},
        )
        letter = (
            "INSERT INTO dead_letters (id, kind, source_id, mailbox_id, provider_key, folder, payload, reason)"
            " VALUES (:i, 'message', :s, :m, 'planted-key-2', 'Personal/Divorce', CAST(:p AS jsonb), :r)"
        )
        reason = "timed out while reading 'planted subject Quokka' of alice@example.org at imap.planted.example (code 17)"
        connection.execute(text(letter), {"i": uuid7(), "s": SOURCE, "m": MAILBOX, "p": '{"planted": "s3cr3t"}', "r": reason})
    (folder / "secrets").mkdir(parents=True)
    (folder / "secrets" / "storage.key").write_text("k1:k3y-material-of-the-packs\n")
    logs = folder / "logs"
    logs.mkdir()
    lines: list[dict[str, Any]] = [
        {"event": "login_failed", "level": "error", "error": "k3y-material-of-the-packs, alice@example.org", "attempts": 3},
        {"event": "mail_unreadable", "level": "warning", "error": "header 'planted subject Quokka' is too long"},
        {"event": "boom", "level": "error", "exception": 'Traceback\n  File "/home/planted/archiver/x.py", line 7, in read\n'
         '    raise ValueError("Wombat")\nValueError: "planted body Wombat"'},
        {"event": "fine", "level": "info", "error": "not in the bundle"},
    ]  # fmt: skip
    (logs / "ingestion.log").write_text("".join(json.dumps(line) + "\n" for line in lines) + "no json: planted\n")
    (logs / "postgres.log").write_text('ERROR:  invalid input syntax for type uuid: "planted subject Quokka"\nLOG:  planted\n')


def test_it_has_what_helps_and_nothing_that_was_planted(world: World, database_url: str, tmp_path: Path) -> None:
    folder, target = tmp_path / "data", tmp_path / "bundle.zip"
    _plant(world, folder)
    settings = _settings(folder, database_url)
    written = write_bundle(BundleSource(settings, world.engine, running=True), target)
    with zipfile.ZipFile(target) as opened:
        found = {name.partition("/")[2]: opened.read(name).decode() for name in opened.namelist()}
    assert written.missing == {}
    for name, content in found.items():
        assert [word for word in FORBIDDEN if word.lower() in content.lower()] == [], name
    assert stat.S_IMODE(target.stat().st_mode) == 0o600
    events = [json.loads(line) for line in found["errors.jsonl"].splitlines()]
    assert [event.get("event", "") for event in events] == ["login_failed", "mail_unreadable", "boom", ""]
    assert events[0]["attempts"] == 3
    assert "archiver/x.py, line 7, in read" in events[2]["exception"]
    assert "invalid input syntax for type uuid" in events[3]["text"]
    (letter,) = json.loads(found["dead-letters.json"])
    assert letter["reason"].startswith("timed out while reading <quoted> of <")
    assert letter["letters"] == 1
    shown = json.loads(found["settings.json"])
    assert (shown["METRICS_TOKEN"], shown["SLICE_SECONDS"], shown["SMTP_URL"]) == ("set", 30, "set (smtp://…)")
    assert "messages" in {table["name"] for table in json.loads(found["database.json"])["tables"]}
    plans = json.loads(found["slow-queries.json"])
    assert any("Execution Time" in line for plan in plans for line in plan["plan"])
    assert "archiver_packs{open} 1" in found["metrics.txt"]
    assert json.loads(found["versions.json"])["packages"]["bullmq"]


def test_it_replaces_no_file_and_names_what_is_missing(tmp_path: Path) -> None:
    settings = load_settings({"ARCHIVER_DATA": str(tmp_path / "data")}, tmp_path / "no.env")
    source, target = BundleSource(settings, None, running=False), tmp_path / "bundle.zip"
    written = write_bundle(source, target)
    assert set(written.missing) == {"database.json", "slow-queries.json", "dead-letters.json", "runs.json", "errors.jsonl"}
    before = target.read_bytes()
    with pytest.raises(ArchiverError, match="there is a file of this name already"):
        write_bundle(source, target)
    with pytest.raises(ArchiverError, match="can't be written: No such file"):
        write_bundle(source, tmp_path / "nowhere" / "bundle.zip")
    assert target.read_bytes() == before
    assert [path.name for path in tmp_path.iterdir() if path.name.endswith(".part")] == []
