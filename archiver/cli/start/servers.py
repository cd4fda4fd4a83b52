"""Commands that run a single part, as `archiver up` and compose.yaml do."""

from __future__ import annotations

import os
import runpy
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from archiver.cli.terminal.connection import connect, connect_to_unmigrated
from archiver.cli.terminal.output import Json, console, messages, print_json
from archiver.config import Settings, load_settings, page_address
from archiver.errors import ArchiverError, UsageError
from archiver.logs import set_up_logs
from archiver.quantity import quantity
from archiver.secrets import SecretFolder
from archiver.supervisor.folder import DataFolder
from archiver.supervisor.modes import close_to_others
from archiver.supervisor.ready import VARIABLE, notify_ready

if TYPE_CHECKING:
    from archiver.db.schema import MigrationStep


def migrate(
    json: Json = False,
    quiet: Annotated[bool, typer.Option("--quiet", help="Print nothing on success.")] = False,
    plan: Annotated[bool, typer.Option("--plan", help="Only show the pending migrations; change nothing.")] = False,
) -> None:
    """Migrate the database schema. Safe to run at any time, and several times at once."""
    from archiver.db import schema

    if plan:
        with connect_to_unmigrated() as settings:
            return _show_plan(schema.describe_pending(settings), json=json)
    with connect() as settings:
        steps = schema.migrate_database(settings, lambda sentence: messages.print(f"archiver: {sentence}", markup=False))
    if json:
        print_json({"migrations": steps})
    elif not quiet:
        console.print(f"Ran {quantity(len(steps), 'migration')}: {', '.join(steps)}" if steps else "The schema is up to date.")
    return None


def _show_plan(steps: Sequence[MigrationStep], *, json: bool) -> None:
    if json:
        return print_json({"pending": {step.revision: step.purpose for step in steps}, "pauses_workers": _pausing(steps)})
    for step in steps:
        console.print(f"{step.revision}  {step.purpose}", markup=False, soft_wrap=True)
    if pausing := _pausing(steps):
        console.print(f"Workers pause while {', '.join(pausing)} {'runs' if len(pausing) == 1 else 'run'}, and then go on.")
    return console.print(
        f"{quantity(len(steps), 'migration')} to run; nothing was changed." if steps else "The schema is up to date."
    )


def _pausing(steps: Sequence[MigrationStep]) -> list[str]:
    return [step.revision for step in steps if step.pauses_workers]


def web() -> None:
    """Run only the web process."""
    from archiver.http.serve import serve

    with connect() as settings:
        close_to_others(DataFolder(settings.archiver_data))  # in a container, no supervisor does it
        set_up_logs("web", settings.log_level, settings.log_folder)
        is_supervised = VARIABLE in os.environ  # then `archiver up` announces the token, and a restart must not replace it
        serve(settings, notify_ready if is_supervised else lambda: _announce_first_start(settings))


def _announce_first_start(settings: Settings) -> None:
    """In a container, standard error is what `docker compose logs web` shows. A log file never has the token."""
    from archiver.access.login import first_start
    from archiver.db.engine import DATABASE_ERRORS, make_engine

    notify_ready()
    assert settings.database_url is not None
    engine = make_engine(settings.database_url.get_secret_value(), "first-start", pool_size=1)
    try:
        if notice := first_start.announcement(engine, settings, page_address(settings)):
            messages.print(notice, markup=False, soft_wrap=True)
    except (ArchiverError, *DATABASE_ERRORS) as error:
        messages.print(f"archiver: no link for the first administrator: {error}", markup=False, soft_wrap=True)
    finally:
        engine.dispose()


def worker(
    queue: Annotated[str, typer.Argument(help="The queue to take jobs from: ingestion or indexing.")],
    number: Annotated[int, typer.Option(min=1, help="Number of this process on its queue, for the name of its log file.")] = 1,
    alive_file: Annotated[
        Path | None, typer.Option(help="File to touch every few seconds while the worker is healthy.")
    ] = None,
) -> None:
    """Run only one worker process, until it receives SIGTERM. It needs DATABASE_URL and REDIS_URL."""
    if queue not in ("ingestion", "indexing"):
        raise UsageError(f"there is no queue {queue!r}: expected ingestion or indexing")
    sys.argv = ["workers", queue, f"--number={number}", *([f"--alive-file={alive_file}"] if alive_file else [])]
    runpy.run_module("workers", run_name="__main__", alter_sys=True)  # by name: nothing here imports that package


def journal(
    alive_file: Annotated[
        Path | None, typer.Option(help="File to touch every few seconds while the process is healthy.")
    ] = None,
) -> None:
    """Run only the process that receives journal mail by SMTP (JOURNAL_PORT), until it receives SIGTERM."""
    from archiver.journal.process import serve_journal
    from archiver.maintenance.recovery.catch_up import catch_up

    with connect() as settings:
        folder = DataFolder(settings.archiver_data)
        close_to_others(folder)
        set_up_logs("journal", settings.log_level, settings.log_folder)
        rest_seconds = 600.0 if settings.storage_type == "s3" else 0.0
        serve_journal(
            settings,
            lambda engine, archive: catch_up(engine, archive, lambda _: None, rest_seconds=rest_seconds),
            notify_ready,
            alive_file,
        )


def search_server(
    host: Annotated[str, typer.Option(help="The address to listen on.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=1, max=65535, help="The port to listen on.")] = 7700,
    fd: Annotated[int | None, typer.Option(hidden=True, help="A listening socket, inherited from `archiver up`.")] = None,
) -> None:
    """Run only the embedded search server. It implements Meilisearch's HTTP API; its key is MEILI_MASTER_KEY."""
    from archiver.search_server.server import serve

    # `archiver up` passes everything it needs: it must not read the other parts' secrets from .env
    settings = load_settings() if fd is None else load_settings(env_file=Path(os.devnull))
    folder = DataFolder(settings.archiver_data)
    folder.prepare()
    set_up_logs("search", settings.log_level, folder.logs)
    configured = settings.meili_master_key
    key = configured.get_secret_value() if configured else SecretFolder(folder.path).password("meili-master.key")
    serve(folder.search, key, host, port, inherited=fd, ready=notify_ready)
