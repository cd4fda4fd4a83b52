"""`archiver imports …`: the imports that were requested, and what is kept of those that did not succeed."""

from __future__ import annotations

from typing import Annotated, Any

import typer
from rich.table import Table
from rich.text import Text

from archiver.cli.archive import opened
from archiver.cli.output import Json, console, messages, print_json
from archiver.services import imports, source_rows, upload_imports
from archiver.services.imports import Import
from archiver.services.principal import LOCAL_OPERATOR

app = typer.Typer(no_args_is_help=True, help="Imports of mail files: list them, and discard what did not succeed.")

_STYLES = {"success": "green", "running": "cyan", "waiting": "dim", "incomplete": "yellow"}


@app.command("list")
def list_(
    source: Annotated[str | None, typer.Option(help="Only those of this source.")] = None,
    kept: Annotated[bool, typer.Option("--kept", help="Only those whose uploaded files are still kept.")] = False,
    limit: Annotated[int, typer.Option(min=1, max=100_000, help="At most so many, newest first.")] = 100,
    json: Json = False,
) -> None:
    """Show imports, newest first: what each reads, for whom, by whom, and how it ended."""
    with opened("imports") as archive, archive.engine.connect() as connection:
        source_id = source_rows.find(connection, source).id if source else None
        found = imports.listed(connection, LOCAL_OPERATOR, source_id, limit, only_kept=kept)
    if json:
        return print_json({"imports": [_shape(item) for item in found]})
    if not found:
        return console.print("There are none.")
    table = Table(box=None, pad_edge=False, header_style="dim")
    for heading in ("id", "requested", "by", "mailbox", "state", "files", ""):
        table.add_column(heading)
    for item in found:
        note = "upload is kept" if item.keeps_upload else ""
        state = Text(item.state, style=_STYLES.get(item.state, "red"))
        files, message = Text(", ".join(_files(item))), Text(", ".join(filter(None, (item.shown_message, note))))
        when = f"{item.created_at:%Y-%m-%d %H:%M}"
        table.add_row(str(item.id), when, item.requested_by, item.mailbox, state, files, message)
    return console.print(table)


@app.command("discard")
def discard(
    import_ids: Annotated[list[str], typer.Argument(help="Ids, or the beginnings of them.")],
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask.")] = False,
    json: Json = False,
) -> None:
    """Cancel imports that wait, and remove the uploaded files of those that did not succeed. Named paths are never touched."""
    with opened("imports") as archive:
        with archive.engine.connect() as connection:
            found = [imports.find(connection, one) for one in import_ids]
        names = ", ".join(name for item in found if item.keeps_upload for name in _files(item))
        if names and not yes:
            typer.confirm(f"Remove {names}? These uploads are not (fully) archived.", abort=True, err=True)
        for item in found:
            upload_imports.discard(archive.engine, archive.settings, LOCAL_OPERATOR, item)
    if json:
        return print_json({"imports": [str(item.id) for item in found], "message": "discarded"})
    return messages.print(f"{len(found)} discarded.")


def _files(item: Import) -> list[str]:
    return [path.name if item.upload_folder else str(path) for path in item.paths]


def _shape(item: Import) -> dict[str, Any]:
    names = ("id", "source", "mailbox", "requested_by", "state", "keeps_upload", "created_at", "started_at", "finished_at")
    shape = {name: getattr(item, name) for name in names}
    return {**shape, "files": _files(item), "message": item.shown_message, "run": item.session_id}
