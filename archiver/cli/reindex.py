"""`archiver reindex`: the search index anew, from the packs and the stored texts."""

from __future__ import annotations

import time
from typing import Annotated

import typer

from archiver.cli.archive import bar, opened
from archiver.cli.output import Json, console, print_json

_LOOK_SECONDS = 0.5


def reindex(
    wait: Annotated[bool, typer.Option("--wait/--no-wait", help="Follow it to its end.")] = True,
    json: Json = False,
) -> None:
    """Fill a new search index beside the live one, and put it in its place. Searching and archiving go on meanwhile.

    It goes on by itself after a stop, and nothing is extracted again.
    """
    from archiver.services.overview import request_reindex
    from archiver.services.principal import LOCAL_OPERATOR
    from archiver.services.reindex import reindex_progress

    with opened("reindex", "workers") as at, bar("Reindexing", shown=wait and not json) as progress:
        with at.engine.begin() as connection:
            request_reindex(connection, LOCAL_OPERATOR)
        found = reindex_progress(at.engine)
        while wait and not found.is_done:
            progress(found.done, found.total)
            time.sleep(_LOOK_SECONDS)
            found = reindex_progress(at.engine)
    if json:
        print_json({"done": found.is_done, "messages": found.done, "total": found.total})
    elif found.is_done:
        console.print(f"The index is new: {found.done:,} messages.")
    else:
        console.print("The index will be made anew; `archiver status` shows how far it is.")
