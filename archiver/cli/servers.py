"""The parts on their own: what `archiver up` and compose.yaml start."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated

import typer

from archiver.cli.connection import connected
from archiver.cli.output import Json, console, print_json
from archiver.config import load_settings
from archiver.logs import set_up_logs
from archiver.secrets import SecretFolder
from archiver.stack.folder import DataFolder
from archiver.stack.modes import close_to_others
from archiver.stack.ready import notify_ready


def migrate(
    json: Json = False, quiet: Annotated[bool, typer.Option("--quiet", help="Say nothing when it goes well.")] = False
) -> None:
    """Bring the database's schema up to date. Safe to run at any time, and by several at once."""
    from archiver.services import schema

    with connected() as settings:
        steps = schema.migrate_database(settings)
    if json:
        print_json({"migrations": steps})
    elif not quiet:
        console.print(f"{len(steps)} migration(s) run: {', '.join(steps)}" if steps else "The schema is up to date.")


def web() -> None:
    """Run the web process alone."""
    from archiver.web.serve import serve

    with connected() as settings:
        close_to_others(DataFolder(settings.archiver_data))  # in a container nobody else does it
        set_up_logs("web", settings.log_level, settings.archiver_data / "logs")
        serve(settings, notify_ready)


def search_server(
    host: Annotated[str, typer.Option(help="The address to listen on.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=1, max=65535, help="The port to listen on.")] = 7700,
    fd: Annotated[int | None, typer.Option(hidden=True, help="A listening socket, inherited from `archiver up`.")] = None,
) -> None:
    """Run the embedded search server alone. It speaks Meilisearch's HTTP API; MEILI_MASTER_KEY is its key."""
    from archiver.search.embedded.server import serve

    # started by `archiver up`, it is given all that it needs, and has no business with what .env says of the other parts
    settings = load_settings() if fd is None else load_settings(env_file=Path(os.devnull))
    folder = DataFolder(settings.archiver_data)
    folder.prepare()
    set_up_logs("search", settings.log_level, folder.logs)
    given = settings.meili_master_key
    key = given.get_secret_value() if given else SecretFolder(folder.path).password("meili-master.key")
    serve(folder.search, key, host, port, inherited=fd, ready=notify_ready)
