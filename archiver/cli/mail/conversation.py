"""`archiver conversation …`: splits conversations that were wrongly joined."""

from __future__ import annotations

from typing import Annotated
from uuid import UUID

import typer

from archiver.access.principal import LOCAL_OPERATOR
from archiver.access.scope import EVERYTHING
from archiver.cli.terminal.archive import archive_for
from archiver.cli.terminal.output import Json, console, print_json
from archiver.indexing import splitting
from archiver.maintenance.snapshot import save_config
from archiver.quantity import quantity

app = typer.Typer(no_args_is_help=True, help="Split conversations that were wrongly joined, and join them again.")

Message = Annotated[UUID, typer.Argument(metavar="ID", help="The message's id, as `archiver search` shows it.")]


@app.command("split")
def split(message: Message, json: Json = False) -> None:
    """Make a message and everything that answers to it a conversation of their own, also for answers that arrive later."""
    with archive_for("conversation") as at:
        with at.engine.begin() as connection:
            moved = splitting.split(connection, LOCAL_OPERATOR, EVERYTHING, message)
        save_config(at.engine, at.archive)
    if json:
        return print_json({"id": message, "messages": moved})
    return console.print(f"Split off: {quantity(moved, 'message')}.")


@app.command("rejoin")
def rejoin(message: Message, json: Json = False) -> None:
    """Undo the last split that a message is part of."""
    with archive_for("conversation") as at:
        with at.engine.begin() as connection:
            splitting.rejoin(connection, LOCAL_OPERATOR, EVERYTHING, message)
        save_config(at.engine, at.archive)
    if json:
        return print_json({"id": message})
    return console.print("The split was undone.")
