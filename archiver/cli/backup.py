"""`backup` and `restore`: a second copy of the archive, and the way back."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from archiver.cli.archive import bar, opened
from archiver.cli.connection import connected
from archiver.cli.output import Json, console, print_json
from archiver.config import load_settings


def backup(
    target: Annotated[Path, typer.Argument(metavar="DEST", help="A folder, on another disk.")], json: Json = False
) -> None:
    """Copy packs and database to DEST. Again and again: packs that are there already are not copied. Keys stay apart."""
    from archiver.services.backup import backup as run

    with opened("backup") as at, bar("Copying packs", shown=not json) as progress:
        done = run(at.engine, at.archive, at.database_url, target, progress)
    if json:
        print_json(asdict(done))
    else:
        console.print(f"{done.copied} of {done.packs} pack(s) copied, {done.bytes_copied / 1e6:,.1f} MB, and the database.")
        console.print("The keys are not in it: keep a copy of the key files in another place, without them it can't be read.")


def restore(
    source: Annotated[Path, typer.Argument(metavar="SOURCE", help="A folder that `archiver backup` has filled.")],
    rebuild: Annotated[bool, typer.Option("--rebuild", help="Make the database from the packs, not from the dump.")] = False,
    json: Json = False,
) -> None:
    """Bring a backup into an empty data folder. The key files have to be in its `secrets` folder before."""
    from archiver.db import make_engine
    from archiver.services import schema
    from archiver.services.backup import check_empty, load_dump
    from archiver.services.backup import restore as run
    from archiver.services.places import open_archive
    from archiver.services.rebuild import rebuild as rebuild_database

    settings = load_settings()
    with bar("Copying packs", shown=not json) as progress:
        packs = run(source, settings.archiver_data, progress)
    with connected() as found:
        assert found.database_url is not None
        url = found.database_url.get_secret_value()
        engine = make_engine(url, "restore")
        try:
            schema.migrate(engine)
            check_empty(engine)
            if not rebuild:
                load_dump(source, url)
                schema.migrate(engine)
            archive = open_archive(found, engine)
            if rebuild:
                rebuild_database(engine, archive)
            archive.close()
        finally:
            engine.dispose()
    if json:
        print_json({"packs": packs, "database": "rebuilt" if rebuild else "restored"})
    else:
        console.print(f"{packs} pack(s) and the database are back. Run `archiver verify --full` to prove it.")
