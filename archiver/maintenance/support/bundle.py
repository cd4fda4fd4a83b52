"""Writes the support bundle: a zip with a file for each part, each scrubbed, and a list of what is in it.

Nothing in it comes from mail, and no part is required: what can't be read is listed with the reason.
"""

from __future__ import annotations

import json
import os
import platform
import secrets as random
import zipfile
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from importlib.metadata import distributions
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

import psutil
from pydantic import SecretStr
from sqlalchemy import Engine
from sqlalchemy.exc import DBAPIError

from archiver import __version__
from archiver.config import Settings
from archiver.db.counters import read_counts
from archiver.errors import ArchiverError
from archiver.maintenance.checks.doctor import examine
from archiver.maintenance.checks.health import check_parts
from archiver.maintenance.figures import Figure, database_figures, disk_figures, queue_figures
from archiver.maintenance.support import database
from archiver.maintenance.support.scrubber import Scrubber

_LOG_LINES = 2_000
_LOG_TAIL_BYTES = 8 << 20
_LEVELS = ("warning", "error", "critical")
_PLAIN_TYPES = (bool, int, float)
_PLAIN_WORDS = frozenset(
    {"storage_type", "sync_frequency", "reconcile_frequency", "backup_frequency", "drill_frequency", "retention_frequency",
     "log_level", "ocr", "ocr_languages", "storage_s3_region", "two_person_approval", "archiver_admin_purpose"}
)  # fmt: skip
"""Text settings that are shown unchanged, because they contain no personal data."""

READ_ME = """\
This is a support bundle of Archiver. Read it before you pass it on.

It contains versions, settings, counts, metrics, plans of database statements, and the warnings and errors of the logs.
It contains no mail, no subjects, no names of folders in mailboxes, no addresses, and no secret. Names, addresses, servers
and paths are replaced by marks such as <address 1f2e3d4c>; the same mark means the same name within this bundle, and in
no other.
"""


@dataclass(frozen=True, slots=True)
class SupportBundle:
    path: Path
    files: dict[str, int]
    """Their sizes, by name."""
    missing: dict[str, str]
    """Why a part is missing."""


@dataclass(frozen=True, slots=True)
class BundleSource:
    """What a bundle is collected from. `engine`: None while the database does not run."""

    settings: Settings
    engine: Engine | None
    running: bool


def write_bundle(source: BundleSource, path: Path, report: Callable[[str], None] = lambda part: None) -> SupportBundle:
    """Raises ArchiverError if `path` exists. The file is readable by its owner only, and whole or not there."""
    scrubber = make_scrubber(source)
    files, missing = {"README.txt": READ_ME}, {}
    for name, collect in _PARTS.items():
        report(name)
        try:
            files[name] = collect(source, scrubber)
        except (ArchiverError, DBAPIError, OSError, ValueError) as error:
            missing[name] = scrubber.text(str(error).splitlines()[0] if str(error) else type(error).__name__)
    files["missing.json"] = _json(missing)
    for name, text in files.items():
        if scrubber.contains_secret(text):  # scrubbing has a hole: better no file than this one
            files[name], missing[name] = "", "left out, because it contained a secret"
    _write(path, files)
    return SupportBundle(path, {name: len(text.encode()) for name, text in files.items()}, missing)


def _write(path: Path, files: dict[str, str]) -> None:
    partial = path.with_name(f".{path.name}.{os.getpid()}.part")
    try:
        with os.fdopen(os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
            with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive:
                for name, text in files.items():
                    archive.writestr(f"archiver-support/{name}", text)
            file.flush()
            os.fsync(file.fileno())
        os.link(partial, path)  # unlike a rename, this replaces nothing
    except FileExistsError as error:
        raise ArchiverError(f"{path}: there is a file of this name already") from error
    except OSError as error:
        raise ArchiverError(f"{path}: the bundle can't be written: {error.strerror}") from error
    finally:
        partial.unlink(missing_ok=True)


def make_scrubber(source: BundleSource) -> Scrubber:
    names: list[str] = [platform.node(), str(source.settings.archiver_data), str(Path.home())]
    if source.engine is not None:
        try:
            with source.engine.connect() as connection:
                names += database.load_names(connection)
        except DBAPIError:
            pass  # before the first migration there are no names
    return Scrubber.of(known_secrets(source.settings), names, random.token_bytes(32))


def known_secrets(settings: Settings) -> Iterator[str]:
    """All secrets of the settings, the passwords within addresses, and what is in the folder of the keys."""
    for name in Settings.model_fields:
        value = getattr(settings, name)
        if isinstance(value, SecretStr):
            yield from _parts_of_secret(value.get_secret_value())
    folder = settings.archiver_data / "secrets"
    for file in sorted(folder.iterdir()) if folder.is_dir() else ():
        try:
            yield from _parts_of_secret(file.read_text().strip())
        except (OSError, UnicodeDecodeError):
            continue


def _parts_of_secret(value: str) -> Iterator[str]:
    """The whole, the keys of a keyring, and the password of an address, in both spellings."""
    for word in value.split():
        if "://" not in word:
            yield word
            yield from (key.partition(":")[2] for key in word.split(",") if ":" in key)
            continue
        try:
            password = urlsplit(word).password
        except ValueError:
            password = None
        if password:
            yield from (password, unquote(password))
        if "#" in word:
            yield word.partition("#")[2]


def _json(value: Any) -> str:
    return json.dumps(value, indent=1, default=str, ensure_ascii=False) + "\n"


def _versions(source: BundleSource, scrubber: Scrubber) -> str:
    memory = psutil.virtual_memory()
    return _json(
        {
            "archiver": __version__,
            "created_at": datetime.now(UTC),
            "python": platform.python_version(),
            "system": f"{platform.system()} {platform.release()} {platform.machine()}",
            "libc": " ".join(platform.libc_ver()),
            "cores": os.cpu_count(),
            "memory_bytes": memory.total,
            "memory_available_bytes": memory.available,
            "parts": [{**asdict(part), "detail": scrubber.text(part.detail)} for part in check_parts(source.settings)],
            "packages": {found.name: found.version for found in sorted(distributions(), key=lambda one: one.name.lower())},
        }
    )


def _settings(source: BundleSource, scrubber: Scrubber) -> str:
    return _json({name.upper(): show_setting(source.settings, name, scrubber) for name in Settings.model_fields})


def show_setting(settings: Settings, name: str, scrubber: Scrubber) -> Any:
    """A secret is "set"; of other texts only what kind they are, unless they name nobody."""
    value = getattr(settings, name)
    if value is None or isinstance(value, _PLAIN_TYPES):
        return value
    if isinstance(value, SecretStr):
        scheme = value.get_secret_value().partition("://")[0] if "://" in value.get_secret_value() else ""
        return f"set ({scheme}://…)" if scheme.isalpha() and name.endswith(("_url", "_host", "_endpoint")) else "set"
    if isinstance(value, tuple):
        return f"{len(value)} values"
    if name in _PLAIN_WORDS:
        return value
    return "default" if value == Settings.model_fields[name].default else scrubber.mark("setting", str(value))


def _doctor(source: BundleSource, scrubber: Scrubber) -> str:
    findings = examine(source.settings, running=source.running, port_free=lambda: None)
    return _json([{**asdict(one), "text": scrubber.text(one.text)} for one in findings if one.check != "packages"])


def _metrics(source: BundleSource, scrubber: Scrubber) -> str:
    found = disk_figures(source.settings) + queue_figures(source.settings)
    lines: list[str] = []
    if source.engine is not None:
        found += database_figures(source.engine)
        with source.engine.connect() as connection:
            counts = read_counts(connection)
        lines = [
            f"{name}{{{','.join(f'{key}={value}' for key, value in labels)}}} {count:g}"
            for (name, labels), count in counts.items()
        ]
    return "\n".join([*(_line(figure, scrubber) for figure in found), *map(scrubber.text, sorted(lines))]) + "\n"


def _line(figure: Figure, scrubber: Scrubber) -> str:
    labels = ",".join(map(scrubber.text, figure.labels))
    return f"{figure.name}{{{labels}}} {figure.value:g}"


def _from_database(describe: Callable[[Any], Any]) -> Callable[[BundleSource, Scrubber], str]:
    def collect(source: BundleSource, scrubber: Scrubber) -> str:
        if source.engine is None:
            raise ArchiverError("the database does not run")
        with source.engine.connect() as connection:
            return _json(scrub(describe(connection), scrubber))

    return collect


def scrub(value: Any, scrubber: Scrubber) -> Any:
    """All texts in it but the plans of our own statements, which have no values."""
    if isinstance(value, dict):
        kept = ("version",) if value.get("name") == database.STATISTICS else ("version", "plan", "statement")
        return {key: found if key in kept else scrub(found, scrubber) for key, found in value.items()}
    if isinstance(value, list):
        return [scrub(item, scrubber) for item in value]
    return scrubber.text(value) if isinstance(value, str) else value


def _errors(source: BundleSource, scrubber: Scrubber) -> str:
    """The newest warnings and errors of each log, the oldest first."""
    folder = source.settings.log_folder
    if folder is None or not folder.is_dir():
        raise ArchiverError("there are no log files: in containers, the engine stores the logs")
    lines: list[str] = []
    for file in sorted(folder.glob("*.log")):
        kept: deque[str] = deque(maxlen=_LOG_LINES)
        for line in _tail(file):
            if (event := _problem(line)) is not None:
                kept.append(json.dumps({"log": file.stem, **scrubber.event(event)}, ensure_ascii=False))
        lines += kept
    return "".join(f"{line}\n" for line in lines)


def _tail(file: Path) -> Iterator[str]:
    with file.open("rb") as opened:
        opened.seek(max(0, file.stat().st_size - _LOG_TAIL_BYTES))
        for line in opened:
            yield line.decode("utf-8", "replace").rstrip()


def _problem(line: str) -> dict[str, Any] | None:
    """A warning or an error as an event; None for everything else."""
    try:
        event = json.loads(line)
    except ValueError:
        is_error = any(word in line for word in ("ERROR:", "FATAL:", "PANIC:", "WARNING:", "Traceback"))
        return {"text": line} if is_error else None
    return event if isinstance(event, dict) and event.get("level") in _LEVELS else None


_PARTS: dict[str, Callable[[BundleSource, Scrubber], str]] = {
    "versions.json": _versions,
    "settings.json": _settings,
    "doctor.json": _doctor,
    "metrics.txt": _metrics,
    "database.json": _from_database(database.describe_database),
    "slow-queries.json": _from_database(database.explain_slow),
    "dead-letters.json": _from_database(database.describe_failures),
    "runs.json": _from_database(database.describe_runs),
    "errors.jsonl": _errors,
}
