"""Gives a command the servers that it works with."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator

from archiver.cli.terminal.output import messages
from archiver.config import Settings, load_settings
from archiver.supervisor.control import ask_status, hold_stack
from archiver.supervisor.folder import DataFolder


@contextlib.contextmanager
def connect(*needs: str, settings: Settings | None = None) -> Iterator[Settings]:
    """Settings with the addresses of all parts: the configured ones, and those of the embedded stack on this data folder.

    If no stack runs there, one is started for the length of the block. `needs="workers"` starts the workers as well.
    """
    settings = settings or load_settings()
    if not settings.embedded:
        yield settings
        return
    folder = DataFolder(settings.archiver_data)
    folder.prepare()
    with hold_stack(folder, *needs, notify=lambda text: messages.print(text, style="dim", markup=False)) as addresses:
        yield load_settings({**os.environ, **addresses})


@contextlib.contextmanager
def connect_to_unmigrated() -> Iterator[Settings]:
    """Settings with the address of the database. If it is embedded and does not run, it is started alone: the whole stack
    would migrate it."""
    settings = load_settings()
    folder = DataFolder(settings.archiver_data)
    if "postgres" not in settings.embedded:
        yield settings
    elif ask_status(folder) is not None:
        with connect(settings=settings) as found:
            yield found
    else:
        from archiver.supervisor.postgres import EmbeddedPostgres  # takes long to load

        postgres = EmbeddedPostgres(folder)
        with folder.lock("archiver migrate --plan"), postgres.running_unchanged():
            yield load_settings({**os.environ, "DATABASE_URL": postgres.url()})


@contextlib.contextmanager
def connect_if_running(settings: Settings) -> Iterator[Settings]:
    """Like `connect`, but starts nothing: addresses of parts that do not run stay unset."""
    folder = DataFolder(settings.archiver_data)
    if not settings.embedded or ask_status(folder) is None:
        yield settings
        return
    with connect(settings=settings) as found:
        yield found
