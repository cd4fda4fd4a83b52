"""`archiver imports …`: requested imports, and the uploads of those that did not succeed."""

from __future__ import annotations

from typing import Annotated, Any

import typer
from rich.table import Table
from rich.text import Text

from archiver.access.principal import LOCAL_OPERATOR
from archiver.cli.terminal.archive import archive_for
from archiver.cli.terminal.output import Json, console, messages, print_json
from archiver.quantity import quantity
from archiver.sources import imports, upload_imports
from archiver.sources import rows as source_rows
from archiver.sources.imports import Import

app = typer.Typer(no_args_is_help=True, help="List imports of mail files, and discard those that did not succeed.")

_STYLES = {"success": "green", "running": "cyan", "waiting": "dim", "incomplete": "yellow"}


@app.command("list")
def list_(
    source: Annotated[str | None, typer.Option(help="Only imports of this source.")] = None,
    kept: Annotated[bool, typer.Option("--kept", help="Only imports whose uploaded files are still stored.")] = False,
    limit: Annotated[int, typer.Option(min=1, max=100_000, help="Show at most this many.")] = 100,
    json: Json = False,
) -> None:
    """List imports, newest first: files, mailbox, who requested each, and how it ended."""
    with archive_for("imports") as archive, archive.engine.connect() as connection:
        source_id = source_rows.find(connection, source).id if source else None
        found = imports.listed(connection, LOCAL_OPERATOR, source_id, limit, only_kept=kept)
    if json:
        return print_json({"imports": [_shape(item) for item in found]})
    if not found:
        return console.print("There are no imports.")
    table = Table(box=None, pad_edge=False, header_style="dim")
    for heading in ("id", "requested", "by", "mailbox", "state", "files", ""):
        table.add_column(heading)
    for item in found:
        note = "upload still stored" if item.keeps_upload else ""
        state = Text(item.state, style=_STYLES.get(item.state, "red"))
        files, message = Text(", ".join(_files(item))), Text(", ".join(filter(None, (item.shown_message, note))))
        when = f"{item.created_at:%Y-%m-%d %H:%M}"
        table.add_row(str(item.id), when, item.requested_by, item.mailbox, state, files, message)
    return console.print(table)


@app.command("discard")
def discard(
    import_ids: Annotated[list[str], typer.Argument(help="Ids, or their beginnings.")],
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask for confirmation.")] = False,
    json: Json = False,
) -> None:
    """Cancel waiting imports, and delete the uploaded files of those that did not succeed. Files named by path are kept."""
    with archive_for("imports") as archive:
        with archive.engine.connect() as connection:
            found = [imports.find(connection, import_id) for import_id in import_ids]
        names = ", ".join(name for item in found if item.keeps_upload for name in _files(item))
        if names and not yes:
            typer.confirm(f"Delete {names}? These uploads are not, or not completely, archived.", abort=True, err=True)
        for item in found:
            upload_imports.discard(archive.engine, archive.settings, LOCAL_OPERATOR, item)
    if json:
        return print_json({"imports": [str(item.id) for item in found], "message": "discarded"})
    return messages.print(f"{quantity(len(found), 'import')} discarded.")


def _files(item: Import) -> list[str]:
    return [path.name if item.upload_folder else str(path) for path in item.paths]


def _shape(item: Import) -> dict[str, Any]:
    names = ("id", "source", "mailbox", "requested_by", "state", "keeps_upload", "created_at", "started_at", "finished_at")
    shape = {name: getattr(item, name) for name in names}
    return {**shape, "files": _files(item), "message": item.shown_message, "run": item.session_id}
