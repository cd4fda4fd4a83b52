"""`backup` and `restore`: a second copy of the archive, and how to bring it back."""

from __future__ import annotations

import os
import sys
from contextlib import ExitStack
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from archiver.cli.archive import archive_for, progress_bar
from archiver.cli.connection import connect
from archiver.cli.output import Json, console, messages, print_json
from archiver.config import Settings
from archiver.errors import UsageError
from archiver.quantity import quantity

if TYPE_CHECKING:  # these load large libraries, which most commands do not need
    from sqlalchemy import Engine

    from archiver.maintenance.restore import Backup


def backup(
    target: Annotated[Path, typer.Argument(metavar="DEST", help="A folder, preferably on another disk.")], json: Json = False
) -> None:
    """Copy packs and database to DEST. Later runs copy only new packs. Keys are never part of a backup."""
    from archiver.maintenance.backup import backup as run

    _check_writable(target)
    with archive_for("backup") as at, progress_bar("Copying packs", shown=not json) as progress:
        done = run(at.engine, at.archive, at.owner_url, target, progress)
    if json:
        print_json(asdict(done))
    else:
        console.print(
            f"Copied {done.copied} of {quantity(done.packs, 'pack')} ({done.bytes_copied / 1e6:,.1f} MB) and the database."
        )
        if done.kept:
            console.print(f"Kept {quantity(done.kept, 'pack')} in {target / 'packs'} that this archive does not know.")
        console.print(
            "The keys are not included: store a copy of the key files elsewhere. Without them, the backup can't be read."
        )


def _check_writable(target: Path) -> None:
    """Before servers are started and packs are read."""
    place = target.absolute()
    while not place.exists():
        place = place.parent
    if not place.is_dir() or not os.access(place, os.W_OK | os.X_OK):
        raise UsageError(f"DEST {target}: the user {os.geteuid()} can't write to {place}; choose a folder that it can write to")


def restore(
    source: Annotated[
        str | None,
        typer.Argument(metavar="[SOURCE | QUERY]", help="A folder written by `archiver backup`; with --to, a query."),
    ] = None,
    to: Annotated[
        str | None,
        typer.Option("--to", metavar="URL", help="Append mail to this account: imaps://USER@HOST\\[:PORT]\\[/FOLDER]."),
    ] = None,
    everything: Annotated[bool, typer.Option("--all", help="With --to: all mail.")] = False,
    mailbox: Annotated[str | None, typer.Option(help="With --to: one mailbox, by address or id.")] = None,
    password_file: Annotated[
        Path | None,
        typer.Option(help="With --to: a file with the account's password. Otherwise ARCHIVER_RESTORE_PASSWORD, or a prompt."),
    ] = None,
    rebuild: Annotated[
        bool, typer.Option("--rebuild", help="Rebuild the database from the packs instead of loading the dump.")
    ] = False,
    json: Json = False,
) -> None:
    """Restore a backup into an empty data folder (copy the key files there first); or, with --to, put mail back into an IMAP
    account, with folders, flags and dates, skipping messages that are there already.

    If the dump can't be used, the database is rebuilt from the packs. Exits with 3 if damage was found, or if some messages
    could not be restored.
    """
    if to is not None:
        return _restore_mail(source, to, everything=everything, mailbox=mailbox, password_file=password_file, json=json)
    if source is None or everything or mailbox or password_file:
        raise UsageError(
            "name the backup to restore (archiver restore SOURCE), or the account to restore mail to (--to imaps://…)"
        )
    return _restore_backup(Path(source), rebuild=rebuild, json=json)


def _restore_mail(
    query: str | None, to: str, *, everything: bool, mailbox: str | None, password_file: Path | None, json: bool
) -> None:
    from archiver.maintenance.restore_mail import all_ids, parse_target, restore_mail
    from archiver.reading.export import find_mailbox
    from archiver.search.service import open_search

    if sum((query is not None, everything, mailbox is not None)) != 1:
        raise UsageError("name what to restore: a query, --all, or --mailbox ADDRESS")
    target = parse_target(to)
    password = _password(password_file)
    with archive_for("restore") as at, messages.status("Restoring …") as shown:
        mailbox_id = find_mailbox(at.engine, mailbox) if mailbox else None
        ids = open_search(at.settings, at.engine).message_ids(query) if query else all_ids(at.engine, mailbox_id)
        done = restore_mail(
            at.engine, at.archive, ids, target, password, mailbox_id,
            lambda so_far: shown.update(f"{so_far.appended:,} restored, {so_far.present:,} already there"),
        )  # fmt: skip
    if json:
        print_json(asdict(done))
    else:
        console.print(
            f"{quantity(done.appended, 'message')} restored, {done.present:,} already there, {len(done.failed):,} failed."
        )
        for failed in done.failed:
            console.print(f"not restored: {failed['id']}: {failed['error']}", markup=False)
    raise typer.Exit(3 if done.failed else 0)


def _password(file: Path | None) -> str:
    """From a file, the environment, the terminal, or a line of standard input; never from an argument, which others can see."""
    if file is not None:
        try:
            return file.read_text().rstrip("\n")
        except OSError as error:
            raise UsageError(f"--password-file {file}: can't be read ({error.strerror})") from error
    given = os.environ.get("ARCHIVER_RESTORE_PASSWORD")
    if given:
        return given
    if sys.stdin.isatty():
        return str(typer.prompt("password", hide_input=True, err=True))
    return sys.stdin.readline().rstrip("\n")


def _restore_backup(source: Path, *, rebuild: bool, json: bool) -> None:
    from archiver.db import schema
    from archiver.db.engine import make_engine
    from archiver.maintenance.restore import Backup, check_empty

    saved = Backup.open(source)
    with connect() as found, ExitStack() as resources:
        assert found.database_url is not None
        engine = make_engine(found.database_url.get_secret_value(), "restore")
        resources.callback(engine.dispose)
        schema.migrate_database(found)
        check_empty(engine)
        packs = _restore_packs(found, engine, saved, json=json)
        reason = "--rebuild was given" if rebuild else _load_dump(found, saved)
        damage = _complete(found, engine, rebuild=reason is not None)
    if json:
        print_json({"packs": packs, "database": "rebuilt" if reason else "restored", "reason": reason, "damage": damage})
    else:
        if reason and not rebuild:
            console.print(f"The database was rebuilt from the packs: {reason}.", markup=False)
        for line in damage[:20]:
            console.print(line, style="red", markup=False)
        console.print(
            f"Restored {quantity(packs, 'pack')} and the database. Run `archiver verify --full` to check every message."
        )
    raise typer.Exit(3 if damage else 0)


def _restore_packs(settings: Settings, engine: Engine, source: Backup, *, json: bool) -> int:
    from archiver.maintenance.restore import restore_packs
    from archiver.store.open import open_archive

    archive = open_archive(settings, engine)
    try:
        with progress_bar("Copying packs", shown=not json) as progress:
            return restore_packs(source, archive, progress)
    finally:
        archive.close()


def _load_dump(settings: Settings, source: Backup) -> str | None:
    """The reason why the database has to be rebuilt; None once the dump is loaded."""
    from archiver.db import schema
    from archiver.maintenance.dump import load_dump
    from archiver.secrets import storage_keyring
    from archiver.store.errors import Damage
    from archiver.store.keys import PackKeys

    keys, url = PackKeys(storage_keyring(settings)), settings.database_owner_url or settings.database_url
    assert url is not None
    if reason := source.reason_to_rebuild(keys):
        return reason
    try:
        load_dump(source.dump, url.get_secret_value(), keys)
    except Damage as damage:
        return str(damage)
    schema.migrate_database(settings)
    return None


def _complete(settings: Settings, engine: Engine, *, rebuild: bool) -> list[str]:
    """Returns the damage that was found."""
    from archiver.access.principal import LOCAL_OPERATOR
    from archiver.evidence.anchors import Anchors
    from archiver.maintenance.rebuild import rebuild as rebuild_database
    from archiver.maintenance.restore import adopt_newer
    from archiver.store.open import open_archive

    archive = open_archive(settings, engine)
    try:
        done = rebuild_database(engine, archive) if rebuild else adopt_newer(engine, archive)
        how = "rebuilt" if rebuild else "restored from a backup"
        Anchors(engine, archive, settings.archiver_data).accept(LOCAL_OPERATOR, f"the database was {how}")
        lost = [f"{quantity(done.lost_copies, 'copy')} without their message"] if done.lost_copies else []
        return done.damage + lost
    finally:
        archive.close()
