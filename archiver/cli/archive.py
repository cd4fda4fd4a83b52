"""How a command that cares for the archive gets at it: servers, database and packs, opened and closed."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from uuid import UUID

from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn
from sqlalchemy import Engine, text

from archiver.cli.connection import connected
from archiver.cli.output import messages
from archiver.config import Settings
from archiver.db import make_engine
from archiver.errors import UsageError
from archiver.services import schema
from archiver.services.places import open_archive
from archiver.store.archive import Archive


@dataclass(frozen=True, slots=True)
class OpenArchive:
    settings: Settings
    engine: Engine
    archive: Archive

    @property
    def database_url(self) -> str:
        assert self.settings.database_url is not None
        return self.settings.database_url.get_secret_value()


@contextmanager
def opened(name: str, *needs: str, migrate: bool = False) -> Iterator[OpenArchive]:
    with connected(*needs) as settings:
        assert settings.database_url is not None
        engine = make_engine(settings.database_url.get_secret_value(), name)
        try:
            if migrate:
                schema.migrate(engine)
            schema.check(engine)
            archive = open_archive(settings, engine)
            try:
                yield OpenArchive(settings, engine, archive)
            finally:
                archive.close()
        finally:
            engine.dispose()


@contextmanager
def bar(what: str, *, shown: bool) -> Iterator[Callable[[int, int], None]]:
    """A progress bar on standard error; a function (done, total) moves it."""
    columns = (TextColumn("{task.description}"), BarColumn(), TextColumn("{task.percentage:>3.0f} %"), TimeRemainingColumn())
    with Progress(*columns, console=messages, disable=not shown, transient=True) as progress:
        task = progress.add_task(what, total=None)
        yield lambda done, total: progress.update(task, completed=done, total=total or None)


def find_mailbox(engine: Engine, address: str) -> UUID:
    """By its address, which has to be the mailbox of one source only."""
    with engine.connect() as connection:
        ids = connection.execute(text("SELECT id FROM mailboxes WHERE lower(address) = lower(:a)"), {"a": address}).scalars().all()
    if not ids:
        raise UsageError(f"there is no mailbox {address}")
    if len(ids) > 1:
        raise UsageError(f"{len(ids)} sources have a mailbox {address}: give its id, one of {', '.join(map(str, ids))}")
    found: UUID = ids[0]
    return found


def mailbox_of(engine: Engine, given: str) -> UUID:
    """An id or an address."""
    try:
        return UUID(given)
    except ValueError:
        return find_mailbox(engine, given)
