"""`backup` and `restore`: a second copy of the archive, and how to bring it back."""

from __future__ import annotations

import os
from contextlib import ExitStack, suppress
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from archiver.cli.terminal.archive import archive_for, progress_bar
from archiver.cli.terminal.connection import connect
from archiver.cli.terminal.output import Json, console, print_json
from archiver.config import Settings, load_settings
from archiver.errors import UsageError
from archiver.quantity import quantity

if TYPE_CHECKING:  # these load large libraries, which most commands do not need
    from sqlalchemy import Engine

    from archiver.maintenance.backups.restore import Backup, RestoredPacks
    from archiver.maintenance.backups.target import BackupTarget


def backup(
    target: Annotated[
        str | None,
        typer.Argument(metavar="[DEST]", help="A folder on another disk, or s3://bucket/prefix. Default: BACKUP_TARGET."),
    ] = None,
    keep: Annotated[int | None, typer.Option(min=1, help="How many dumps to keep. Default: BACKUP_KEEP.")] = None,
    listed: Annotated[bool, typer.Option("--list", help="List the backups in DEST instead.")] = False,
    json: Json = False,
) -> None:
    """Copy packs and database to DEST, and read back what was written. Later runs copy only new packs. Keys are never part of
    a backup."""
    from archiver.maintenance.backups.target import FolderTarget, open_target

    settings = load_settings()
    address = target or settings.backup_target
    if address is None:
        raise UsageError("name a folder or s3://bucket/prefix (archiver backup DEST), or set BACKUP_TARGET")
    place = open_target(settings, address)
    if listed:
        return _list_backups(place, json=json)
    if isinstance(place, FolderTarget):
        _check_writable(place.folder)
    _back_up(place, keep or settings.backup_keep, json=json)
    return None


def _back_up(place: BackupTarget, keep: int, *, json: bool) -> None:
    from archiver.maintenance.backups.backup import backup as run

    with archive_for("backup") as at, progress_bar("Copying packs", shown=not json) as progress:
        done = run(at.engine, at.archive, at.owner_url, place, progress, keep=keep)
    if json:
        return print_json(asdict(done))
    console.print(
        f"Copied {done.copied} of {quantity(done.packs, 'pack')} ({done.bytes_copied / 1e6:,.1f} MB) and the database,"
        f" and read it back. {quantity(done.backups, 'backup')} can be restored from {place.name}.",
        markup=False,
    )
    if done.kept:
        console.print(
            f"Kept {quantity(done.kept, 'pack')} in {place.name}/packs that this archive does not know.", markup=False
        )
    console.print("The keys are not included: store a copy of the key files elsewhere. Without them, the backup can't be read.")
    return None


def _list_backups(place: BackupTarget, *, json: bool) -> None:
    from archiver.maintenance.backups.manifest import kept_backups

    kept = kept_backups(place)
    rows = [
        {
            "name": one.name,
            "made_at": one.made_at,
            "packs": len(one.packs),
            "bytes": one.total_bytes(),
            "messages": one.figures.messages if one.figures else None,
        }
        for one in kept
    ]
    if json:
        return print_json({"target": place.name, "backups": rows})
    for one, row in zip(kept, rows, strict=True):
        messages_in = f", {quantity(one.figures.messages, 'message')}" if one.figures else ""
        size = f"{one.total_bytes() / 1e6:,.1f} MB"
        console.print(
            f"{row['name']}  {one.made_at:%Y-%m-%d %H:%M} UTC  {quantity(len(one.packs), 'pack')}, {size}{messages_in}"
        )
    if not kept:
        console.print(f"{place.name} has no completed backup.", markup=False)
    return None


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
        typer.Argument(
            metavar="[SOURCE | QUERY]", help="A folder or s3://bucket/prefix written by `archiver backup`; with --to, a query."
        ),
    ] = None,
    to: Annotated[
        str | None,
        typer.Option(
            "--to",
            metavar="WHERE",
            help="Put mail back: into an account (imaps://USER@HOST\\[:PORT]\\[/FOLDER]), into an archived mailbox"
            " (mailbox:ADDRESS), or into the mailboxes it came from (origins).",
        ),
    ] = None,
    everything: Annotated[bool, typer.Option("--all", help="With --to: all mail.")] = False,
    mailbox: Annotated[str | None, typer.Option(help="With --to: one mailbox, by address or id.")] = None,
    folder: Annotated[str | None, typer.Option(help="With --to and --mailbox: one folder of it, by its exact name.")] = None,
    below: Annotated[str | None, typer.Option(help="With --to: the folder, or Gmail label, to put everything below.")] = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="With --to: only compare, and say what would be restored.")
    ] = False,
    erasures: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="A register of erasures (erasures.jsonl): what it names is deleted again."),
    ] = None,
    password_file: Annotated[
        Path | None,
        typer.Option(help="With --to: a file with the account's password. Otherwise ARCHIVER_RESTORE_PASSWORD, or a prompt."),
    ] = None,
    name: Annotated[
        str | None,
        typer.Option("--backup", metavar="NAME", help="An older backup in SOURCE (`archiver backup SOURCE --list`)."),
    ] = None,
    rebuild: Annotated[
        bool, typer.Option("--rebuild", help="Rebuild the database from the packs instead of loading the dump.")
    ] = False,
    json: Json = False,
) -> None:
    """Restore a backup into an empty data folder (copy the key files there first); or, with --to, put mail back into
    mailboxes, with folders, flags and dates, skipping messages that are there already. It can be interrupted and repeated.

    If the dump can't be used, the database is rebuilt from the packs. Exits with 3 if damage was found, or if some messages
    could not be restored.
    """
    if to is not None:
        from archiver.cli.mail.restores import WantedMail, restore_mail

        wanted = WantedMail(source, everything, mailbox, folder)
        return restore_mail(wanted, to, below=below, dry_run=dry_run, password_file=password_file, json=json)
    if source is None or everything or mailbox or folder or below or dry_run or password_file:
        raise UsageError(
            "name the backup to restore (archiver restore SOURCE), or the account to restore mail to (--to imaps://…)"
        )
    return _restore_backup(source, name, rebuild=rebuild, register=erasures, json=json)


def _restore_backup(address: str, name: str | None, *, rebuild: bool, register: Path | None, json: bool) -> None:
    from archiver.db import schema
    from archiver.db.engine import make_engine
    from archiver.maintenance.backups.restore import Backup, check_empty
    from archiver.maintenance.backups.target import open_target

    settings = load_settings()
    saved = Backup.open(open_target(settings, address), settings.archiver_data / "scratch", name)
    with connect() as found, ExitStack() as resources:
        assert found.database_url is not None
        engine = make_engine(found.database_url.get_secret_value(), "restore")
        resources.callback(engine.dispose)
        schema.migrate_database(found)
        check_empty(engine)
        packs = _restore_packs(found, engine, saved, json=json)
        reason = "--rebuild was given" if rebuild else _load_dump(found, saved)
        damage = [*packs.damage, *_complete(found, engine, rebuild=reason is not None)]
        erased = _erase_again(found, engine, saved, register)
    if json:
        print_json(
            {
                "packs": packs.packs,
                "database": "rebuilt" if reason else "restored",
                "reason": reason,
                "damage": damage,
                "erased_copies": erased,
            }
        )
    else:
        if reason and not rebuild:
            console.print(f"The database was rebuilt from the packs: {reason}.", markup=False)
        for line in damage[:20]:
            console.print(line, style="red", markup=False)
        if erased:
            console.print(f"{quantity(erased, 'copy')} that were erased since the backup are deleted again.")
        console.print(
            f"Restored {quantity(packs.packs, 'pack')} and the database. Run `archiver verify --full` to check every message."
        )
    raise typer.Exit(3 if damage else 0)


def _erase_again(settings: Settings, engine: Engine, saved: Backup, given: Path | None) -> int:
    """What was erased after the backup was made: by the registers beside it, in the data folder, and named by the user."""
    from archiver.access.principal import LOCAL_OPERATOR
    from archiver.maintenance.erasure.register import REGISTER, replay
    from archiver.store.open import open_archive

    if given is not None and not given.is_file():
        raise UsageError(f"--erasures {given}: there is no such file")
    archive = open_archive(settings, engine)
    with ExitStack() as opened:
        opened.callback(archive.close)
        paths = [settings.archiver_data / REGISTER, *([given] if given else [])]
        with suppress(FileNotFoundError):
            paths.append(opened.enter_context(saved.target.as_file(REGISTER, saved.scratch)))
        return replay(engine, archive, LOCAL_OPERATOR, paths)


def _restore_packs(settings: Settings, engine: Engine, source: Backup, *, json: bool) -> RestoredPacks:
    from archiver.maintenance.backups.restore import restore_packs
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
    from archiver.maintenance.backups.dump import load_dump
    from archiver.secrets import storage_keyring
    from archiver.store.errors import Damage
    from archiver.store.keys import PackKeys

    keys, url = PackKeys(storage_keyring(settings)), settings.database_owner_url or settings.database_url
    assert url is not None
    if reason := source.reason_to_rebuild(keys):
        return reason
    try:
        with source.dump_file() as dump:
            load_dump(dump, url.get_secret_value(), keys)
    except Damage as damage:
        return str(damage)
    schema.migrate_database(settings)
    return None


def _complete(settings: Settings, engine: Engine, *, rebuild: bool) -> list[str]:
    """Returns the damage that was found."""
    from archiver.access.principal import LOCAL_OPERATOR
    from archiver.evidence.anchors import Anchors
    from archiver.maintenance.backups.restore import adopt_newer
    from archiver.maintenance.recovery.rebuild import rebuild as rebuild_database
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
