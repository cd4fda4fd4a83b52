"""How a command gets the servers that it works with."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator

from archiver.cli.output import messages
from archiver.config import Settings, load_settings
from archiver.stack.control import ask_status, stack_in_use
from archiver.stack.folder import DataFolder


@contextlib.contextmanager
def connected(*needs: str, settings: Settings | None = None) -> Iterator[Settings]:
    """Settings with the addresses of all parts: those that were given, and those of the embedded stack on this data folder.

    If none runs there, it is started for as long as the block lasts. `needs="workers"` brings the workers too.
    """
    settings = settings or load_settings()
    if not settings.embedded:
        yield settings
        return
    folder = DataFolder(settings.archiver_data)
    folder.prepare()
    with stack_in_use(folder, *needs, say=lambda text: messages.print(text, style="dim", markup=False)) as addresses:
        yield load_settings({**os.environ, **addresses})


@contextlib.contextmanager
def connected_if_running(settings: Settings) -> Iterator[Settings]:
    """Like `connected`, but starts nothing: addresses of parts that do not run stay unset."""
    folder = DataFolder(settings.archiver_data)
    if not settings.embedded or ask_status(folder) is None:
        yield settings
        return
    with connected(settings=settings) as found:
        yield found
