"""The process of a drill that restores a backup into an empty data folder, with servers of its own: nothing that it does can
touch the archive. Started as `python -m archiver.maintenance.backups.drill_child PHASE`.

Reads a JSON object from standard input, and writes lines of JSON: progress, and finally the result or an error.
"""

from __future__ import annotations

import os
import sys
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict
from typing import Any

import orjson
import psycopg
from pydantic import SecretStr
from sqlalchemy import Engine, make_url, text

from archiver.config import Settings, load_settings
from archiver.db import schema
from archiver.db.engine import make_engine
from archiver.errors import ArchiverError, DataFolderError
from archiver.logs import log_problems_only
from archiver.maintenance.backups import drill_searches
from archiver.maintenance.backups.archive_figures import ArchiveFigures, archive_figures
from archiver.maintenance.backups.drill_report import DrillCheck
from archiver.maintenance.backups.dump import load_dump
from archiver.maintenance.backups.restore import Backup, adopt_newer, restore_packs
from archiver.maintenance.backups.target import digest_of, open_target
from archiver.maintenance.checks.verify import verify
from archiver.maintenance.recovery.rebuild import rebuild
from archiver.quantity import quantity
from archiver.secrets import storage_keyring
from archiver.store.archive import Archive
from archiver.store.keys import PackKeys
from archiver.store.open import open_archive
from archiver.supervisor.control import hold_stack
from archiver.supervisor.folder import DataFolder

_REBUILT = "rebuilt"
_ROWS = 10_000
_HASHES = "SELECT sha256 FROM messages ORDER BY sha256"
_UNITS = """
    SELECT DISTINCT uuid_send(message_id) || uuid_send(mailbox_id) AS unit FROM message_copies
    WHERE deleted_at IS NULL AND message_id IS NOT NULL ORDER BY unit"""

Report = Callable[[int, int], None]


def restore_backup(settings: Settings, request: dict[str, Any], report: Report) -> dict[str, Any]:
    """Packs and dump, compared with the manifest; then every message is read and its SHA-256 checked."""
    saved = Backup.open(open_target(settings, request["target"]), settings.archiver_data / "scratch", request["backup"])
    keys = PackKeys(storage_keyring(settings))
    checks = [_check_dump_file(saved)]
    with _engine(_owner_url(settings)) as engine, _archive(settings, engine) as archive:
        packs = restore_packs(saved, archive, report)
    problem = packs.damage[0] if packs.damage else saved.reason_to_rebuild(keys)
    checks.append(DrillCheck("packs", problem is None, problem or quantity(packs.packs, "pack")))
    if any(not check.ok for check in checks):
        return {"checks": checks, "figures": None}
    with saved.dump_file() as dump:
        load_dump(dump, _owner_url(settings), keys)
    schema.migrate_database(settings)
    with _engine(_owner_url(settings)) as engine:
        checks.append(_compare_with_manifest(_figures(engine), saved.manifest.figures))
        with _archive(settings, engine) as archive:
            adopt_newer(engine, archive)
            verified = verify(engine, archive, full=True, progress=report)
            detail = verified.problems[0].what if verified.problems else quantity(verified.messages, "message")
            checks.append(DrillCheck("hashes", verified.is_healthy, detail))
        return {"checks": checks, "figures": _figures(engine)}


def rebuild_database(settings: Settings, _: dict[str, Any], report: Report) -> dict[str, Any]:
    """A second database from the packs alone, compared with the restored one: nothing may be missing."""
    url = _create_rebuilt(settings)
    with _engine(_owner_url(settings)) as restored, _engine(url) as engine:
        schema.migrate(engine)
        with _archive(settings, engine) as archive:
            done = rebuild(engine, archive, report)
        lost = [(what, _count_missing(restored, engine, statement)) for what, statement in _COMPARED]
    problems = [*done.damage[:3], *(f"{quantity(n, what)} missing" for what, n in lost if n)]
    detail = (
        "; ".join(problems) or f"{quantity(done.messages, 'message')} and {quantity(done.copies, 'copy')} from the packs alone"
    )
    return {"checks": [DrillCheck("rebuild", not problems, detail)]}


_COMPARED = (("message", _HASHES), ("copy", _UNITS))


def index_and_search(settings: Settings, request: dict[str, Any], report: Report) -> dict[str, Any]:
    """Indexes the rebuilt database, and searches in it."""
    url = _rebuilt_url(settings)
    own = settings.model_copy(update={"database_url": SecretStr(url), "database_owner_url": None})
    with _engine(url) as engine, _archive(own, engine) as archive:
        drill_searches.index_all(own, engine, archive, report)
        found = drill_searches.run_searches(own, engine, int(request["searches"]), report)
    return {"searches": [asdict(one) for one in found]}


PHASES: dict[str, Callable[[Settings, dict[str, Any], Report], dict[str, Any]]] = {
    "restore": restore_backup,
    "rebuild": rebuild_database,
    "search": index_and_search,
}


def _check_dump_file(saved: Backup) -> DrillCheck:
    wanted = saved.manifest.dump_sha256
    try:
        is_same = wanted is None or digest_of(saved.target.read(saved.manifest.dump)).sha256 == wanted
    except FileNotFoundError:
        return DrillCheck("dump", ok=False, detail=f"{saved.manifest.dump} is missing")
    return DrillCheck("dump", is_same, saved.manifest.dump if is_same else f"{saved.manifest.dump}: its checksum is wrong")


def _compare_with_manifest(found: ArchiveFigures, wanted: ArchiveFigures | None) -> DrillCheck:
    if wanted is None:
        return DrillCheck("counts", ok=True, detail="a backup of an older version, which has no figures to compare with")
    if found == wanted:
        return DrillCheck("counts", ok=True, detail=_describe(found))
    if _describe(found) == _describe(wanted):
        return DrillCheck("counts", ok=False, detail=f"{_describe(found)}, but not those that were backed up")
    return DrillCheck("counts", ok=False, detail=f"restored {_describe(found)}; backed up {_describe(wanted)}")


def _describe(figures: ArchiveFigures) -> str:
    named = ((figures.messages, "message"), (figures.copies, "copy"), (figures.mailboxes, "mailbox"))
    return ", ".join(quantity(number, noun) for number, noun in named)


def _count_missing(whole: Engine, other: Engine, statement: str) -> int:
    """How many rows of one database the other one lacks; both are read in order, a few at a time."""
    there, missing = _stream(other, statement), 0
    candidate = next(there, None)
    for row in _stream(whole, statement):
        while candidate is not None and candidate < row:
            candidate = next(there, None)
        missing += candidate != row
    return missing


def _stream(engine: Engine, statement: str) -> Iterator[bytes]:
    with engine.connect() as connection:
        rows = connection.execution_options(yield_per=_ROWS).execute(text(statement))
        for (value,) in rows:
            yield bytes(value)


def _figures(engine: Engine) -> ArchiveFigures:
    with engine.connect() as connection:
        return archive_figures(connection)


def _owner_url(settings: Settings) -> str:
    url = settings.database_owner_url or settings.database_url
    assert url is not None
    return url.get_secret_value()


def _rebuilt_url(settings: Settings) -> str:
    return make_url(_owner_url(settings)).set(database=_REBUILT).render_as_string(hide_password=False)


def _create_rebuilt(settings: Settings) -> str:
    with psycopg.connect(_owner_url(settings), autocommit=True) as connection:
        connection.execute(f'DROP DATABASE IF EXISTS "{_REBUILT}" WITH (FORCE)')
        connection.execute(f'CREATE DATABASE "{_REBUILT}" TEMPLATE template0')
    return _rebuilt_url(settings)


@contextmanager
def _engine(url: str) -> Iterator[Engine]:
    engine = make_engine(url, "drill")
    try:
        yield engine
    finally:
        engine.dispose()


@contextmanager
def _archive(settings: Settings, engine: Engine) -> Iterator[Archive]:
    archive = open_archive(settings, engine)
    try:
        yield archive
    finally:
        archive.close()


def _take_output() -> Callable[[dict[str, Any]], None]:
    """Standard output for the answers alone: whatever else is printed or logged goes to standard error."""
    output = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    log_problems_only()

    def write(line: dict[str, Any]) -> None:
        output.write(orjson.dumps(line) + b"\n")
        output.flush()

    return write


def _scratch_settings() -> Settings:
    settings = load_settings()
    if settings.embedded != {"postgres", "valkey", "search"} or settings.storage_type != "local":
        raise DataFolderError("a drill needs servers of its own, and found the address of another one: nothing was done")
    return settings


def main() -> int:
    os.umask(0o077)
    write = _take_output()
    try:
        settings = _scratch_settings()
        folder = DataFolder(settings.archiver_data)
        folder.prepare()
        request = orjson.loads(sys.stdin.buffer.read())
        with hold_stack(folder) as addresses:
            found = load_settings({**os.environ, **addresses})
            result = PHASES[sys.argv[1]](found, request, lambda done, total: write({"done": done, "total": total}))
    except ArchiverError as error:
        write({"error": str(error)})
        return error.exit_code
    except Exception:  # noqa: BLE001  (the parent process reports it)
        traceback.print_exc()
        write({"error": "internal error; see the log of the ingestion worker"})
        return 1
    write({"result": result})
    return 0


if __name__ == "__main__":
    sys.exit(main())
