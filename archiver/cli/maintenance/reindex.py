"""`archiver reindex`: rebuilds the search index from the packs and the stored texts."""

from __future__ import annotations

import time
from typing import Annotated

import typer

from archiver.cli.terminal.archive import archive_for, progress_bar
from archiver.cli.terminal.output import Json, console, print_json
from archiver.quantity import quantity

_POLL_SECONDS = 0.5


def reindex(
    wait: Annotated[bool, typer.Option("--wait/--no-wait", help="Wait until the new index is live.")] = True,
    json: Json = False,
) -> None:
    """Build a new search index beside the live one and swap them. Searching and archiving continue during that time.

    An interrupted reindex resumes by itself, and no text is extracted again.
    """
    from archiver.access.principal import LOCAL_OPERATOR
    from archiver.indexing.reindex import reindex_progress
    from archiver.maintenance.status import request_reindex

    with archive_for("reindex", "workers") as at, progress_bar("Reindexing", shown=wait and not json) as progress:
        with at.engine.begin() as connection:
            request_reindex(connection, LOCAL_OPERATOR)
        found = reindex_progress(at.engine)
        while wait and not found.is_done:
            progress(found.done, found.total)
            time.sleep(_POLL_SECONDS)
            found = reindex_progress(at.engine)
    if json:
        print_json({"done": found.is_done, "messages": found.done, "total": found.total})
    elif found.is_done:
        console.print(f"The search index was rebuilt: {quantity(found.done, 'message')}.")
    else:
        console.print("The search index is being rebuilt; `archiver status` shows the progress.")
