"""Opens and closes what a command needs to work on the archive: servers, database and packs."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from archiver.cli.terminal.connection import connect
from archiver.cli.terminal.output import messages
from archiver.config import Settings

if TYPE_CHECKING:  # these load large libraries, which most commands do not need
    from sqlalchemy import Engine

    from archiver.store.archive import Archive


@dataclass(frozen=True, slots=True)
class OpenArchive:
    settings: Settings
    engine: Engine
    archive: Archive

    @property
    def owner_url(self) -> str:
        """For the tools that dump and load the whole database."""
        url = self.settings.database_owner_url or self.settings.database_url
        assert url is not None
        return url.get_secret_value()


@contextmanager
def archive_for(name: str, *needs: str, migrate: bool = False) -> Iterator[OpenArchive]:
    """The archive for the length of the block. `name`: of the command, as Postgres shows it in pg_stat_activity."""
    from archiver.db import schema
    from archiver.db.engine import make_engine
    from archiver.store.open import open_archive

    with connect(*needs) as settings:
        assert settings.database_url is not None
        engine = make_engine(settings.database_url.get_secret_value(), name)
        try:
            if migrate:
                schema.migrate_database(settings)
            schema.check(engine)
            archive = open_archive(settings, engine)
            try:
                yield OpenArchive(settings, engine, archive)
            finally:
                archive.close()
        finally:
            engine.dispose()


@contextmanager
def progress_bar(title: str, *, shown: bool) -> Iterator[Callable[[int, int], None]]:
    """A progress bar on standard error. Yields the function (done, total) that advances it."""
    from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (TextColumn("{task.description}"), BarColumn(), TextColumn("{task.percentage:>3.0f} %"), TimeRemainingColumn())
    with Progress(*columns, console=messages, disable=not shown, transient=True) as progress:
        task = progress.add_task(title, total=None)
        yield lambda done, total: progress.update(task, completed=done, total=total or None)
