"""`archiver support-bundle`: what the person who helps needs to see."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated

import typer

from archiver.cli.terminal.connection import connect_if_running
from archiver.cli.terminal.output import Json, console, messages, print_json
from archiver.config import load_settings
from archiver.supervisor.control import ask_status
from archiver.supervisor.folder import DataFolder


def support_bundle(
    output: Annotated[
        Path | None,
        typer.Option("--output", "-o", metavar="FILE", help="Where to write it. Default: archiver-support-TIME.zip, here."),
    ] = None,
    json: Json = False,
) -> None:
    """Write a zip for the person who helps you: versions, settings, metrics, errors, slow statements. No mail, no secrets.

    Starts no server; what does not run is left out. Read the file before you pass it on.
    """
    from archiver.db.engine import make_engine
    from archiver.maintenance.support.bundle import BundleSource, write_bundle

    settings = load_settings()
    running = not settings.embedded or ask_status(DataFolder(settings.archiver_data)) is not None
    path = output or Path(f"archiver-support-{datetime.now(UTC):%Y%m%d-%H%M%S}.zip")
    with connect_if_running(settings) as found:
        url = found.database_url
        engine = make_engine(url.get_secret_value(), "support-bundle", pool_size=2) if url else None
        try:
            source = BundleSource(found, engine, running)
            written = write_bundle(
                source, path, lambda part: None if json else messages.print(f"collecting {part}", style="dim")
            )
        finally:
            if engine is not None:
                engine.dispose()
    if json:
        print_json({"path": str(written.path.absolute()), "files": written.files, "missing": written.missing})
        return
    for name, reason in written.missing.items():
        messages.print(f"left out {name}: {reason}", markup=False)
    console.print(f"Written: {written.path}. It has no mail and no secrets; read it before you pass it on.", markup=False)
