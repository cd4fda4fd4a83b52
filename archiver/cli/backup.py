"""`backup` and `restore`: a second copy of the archive, and the way back."""

from __future__ import annotations

import os
import sys
from contextlib import ExitStack
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from archiver.cli.archive import bar, opened
from archiver.cli.connection import connected
from archiver.cli.output import Json, console, messages, print_json
from archiver.config import Settings
from archiver.errors import UsageError

if TYPE_CHECKING:  # the libraries behind these are slow to load, and most commands do without
    from sqlalchemy import Engine

    from archiver.services.restore import Backup


def backup(
    target: Annotated[Path, typer.Argument(metavar="DEST", help="A folder, on another disk.")], json: Json = False
) -> None:
    """Copy packs and database to DEST. Again and again: packs that are there already are not copied. Keys stay apart."""
    from archiver.services.backup import backup as run

    with opened("backup") as at, bar("Copying packs", shown=not json) as progress:
        done = run(at.engine, at.archive, at.owner_url, target, progress)
    if json:
        print_json(asdict(done))
    else:
        console.print(f"{done.copied} of {done.packs} pack(s) copied, {done.bytes_copied / 1e6:,.1f} MB, and the database.")
        if done.kept:
            console.print(f"{done.kept} pack(s) in {target / 'packs'} are unknown to this archive and were kept.")
        console.print("The keys are not in it: keep a copy of the key files in another place, without them it can't be read.")


def restore(
    source: Annotated[
        str | None,
        typer.Argument(metavar="[SOURCE | QUERY]", help="A folder that `archiver backup` has filled; with --to, a query."),
    ] = None,
    to: Annotated[
        str | None, typer.Option("--to", metavar="URL", help="Put mail into this account: imaps://USER@HOST[:PORT][/FOLDER].")
    ] = None,
    everything: Annotated[bool, typer.Option("--all", help="With --to: all mail.")] = False,
    mailbox: Annotated[str | None, typer.Option(help="With --to: one mailbox, by address or id.")] = None,
    password_file: Annotated[
        Path | None, typer.Option(help="With --to: the account's password. Else ARCHIVER_RESTORE_PASSWORD, or it is asked for.")
    ] = None,
    rebuild: Annotated[bool, typer.Option("--rebuild", help="Make the database from the packs, not from the dump.")] = False,
    json: Json = False,
) -> None:
    """Bring a backup into an empty data folder (its key files have to be there before); or, with --to, put mail back into an
    IMAP account: with folders, flags and dates, and without what is there already.

    If the dump is of no use, the database is rebuilt from the packs. Ends with 3 if damage was met on the way.
    """
    if to is not None:
        return _restore_mail(source, to, everything=everything, mailbox=mailbox, password_file=password_file, json=json)
    if source is None or everything or mailbox or password_file:
        raise UsageError("say which backup to restore (archiver restore SOURCE), or where to put mail (--to imaps://…)")
    return _restore_backup(Path(source), rebuild=rebuild, json=json)


def _restore_mail(
    query: str | None, to: str, *, everything: bool, mailbox: str | None, password_file: Path | None, json: bool
) -> None:
    from archiver.services.export import find_mailbox
    from archiver.services.restore_mail import all_ids, parse_target, restore_mail
    from archiver.services.search import open_search

    if sum((query is not None, everything, mailbox is not None)) != 1:
        raise UsageError("say what to restore: a query, --all, or --mailbox ADDRESS")
    target = parse_target(to)
    password = _password(password_file)
    with opened("restore") as at, messages.status("Restoring …") as shown:
        mailbox_id = find_mailbox(at.engine, mailbox) if mailbox else None
        ids = open_search(at.settings, at.engine).message_ids(query) if query else all_ids(at.engine, mailbox_id)
        done = restore_mail(
            at.engine, at.archive, ids, target, password, mailbox_id,
            lambda so_far: shown.update(f"{so_far.appended:,} restored, {so_far.present:,} were there"),
        )  # fmt: skip
    if json:
        print_json(asdict(done))
    else:
        console.print(
            f"{done.appended:,} message(s) restored, {done.present:,} were there already, {len(done.failed):,} failed."
        )
        for failed in done.failed:
            console.print(f"not restored {failed['id']}: {failed['error']}", markup=False)
    raise typer.Exit(1 if done.failed else 0)


def _password(file: Path | None) -> str:
    """Never from an argument: from a file, the environment, the terminal, or a line of standard input."""
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
    from archiver.db import make_engine
    from archiver.services import schema
    from archiver.services.restore import Backup, check_empty

    kept = Backup.open(source)
    with connected() as found, ExitStack() as opened_:
        assert found.database_url is not None
        engine = make_engine(found.database_url.get_secret_value(), "restore")
        opened_.callback(engine.dispose)
        schema.migrate_database(found)
        check_empty(engine)
        packs = _restore_packs(found, engine, kept, json=json)
        reason = "it was asked for" if rebuild else _load_dump(found, kept)
        damage = _complete(found, engine, rebuild=reason is not None)
    if json:
        print_json({"packs": packs, "database": "rebuilt" if reason else "restored", "reason": reason, "damage": damage})
    else:
        if reason and not rebuild:
            console.print(f"The database was rebuilt from the packs: {reason}.", markup=False)
        for one in damage[:20]:
            console.print(one, style="red", markup=False)
        console.print(f"{packs} pack(s) and the database are back. Run `archiver verify --full` to prove it.")
    raise typer.Exit(3 if damage else 0)


def _restore_packs(settings: Settings, engine: Engine, source: Backup, *, json: bool) -> int:
    from archiver.services.places import open_archive
    from archiver.services.restore import restore_packs

    archive = open_archive(settings, engine)
    try:
        with bar("Copying packs", shown=not json) as progress:
            return restore_packs(source, archive, progress)
    finally:
        archive.close()


def _load_dump(settings: Settings, source: Backup) -> str | None:
    """Why the database has to be rebuilt; None once it is loaded."""
    from archiver.secrets import storage_keyring
    from archiver.services import schema
    from archiver.services.dump import load_dump
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
    """Returns the damage that was met."""
    from archiver.services.audit_anchors import Anchors
    from archiver.services.places import open_archive
    from archiver.services.principal import LOCAL_OPERATOR
    from archiver.services.rebuild import rebuild as rebuild_database
    from archiver.services.restore import take_in

    archive = open_archive(settings, engine)
    try:
        done = rebuild_database(engine, archive) if rebuild else take_in(engine, archive)
        how = "rebuilt" if rebuild else "restored from a backup"
        Anchors(engine, archive, settings.archiver_data).accept(LOCAL_OPERATOR, f"the database was {how}")
        lost = [f"{done.lost_copies:,} copies have lost their message"] if done.lost_copies else []
        return done.damage + lost
    finally:
        archive.close()
