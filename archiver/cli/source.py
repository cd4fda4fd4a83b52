"""`archiver source …`: where mail comes from."""

from __future__ import annotations

import sys
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.table import Table
from rich.text import Text
from sqlalchemy import text

from archiver.cli.archive import OpenArchive, opened
from archiver.cli.follow import follow_index, follow_run
from archiver.cli.output import Json, console, messages, print_json
from archiver.cli.sign_in import How, asker
from archiver.errors import UsageError
from archiver.secrets import credentials_keyring
from archiver.services import runs, source_access, source_kinds, source_rows, sources
from archiver.services.delete import delete_mailbox_mail
from archiver.services.quiet_context import QuietContext
from archiver.services.snapshot import save_config
from archiver.services.source_rows import Source
from archiver.sync import ledger

app = typer.Typer(no_args_is_help=True, help="Where mail comes from: add, look at, sync, pause and remove sources.")

Name = Annotated[str, typer.Argument(help="The source's name, or its id.")]
Settings = Annotated[list[str] | None, typer.Option("--set", metavar="KEY=VALUE", help="A setting; repeat it for several.")]
Secrets = Annotated[
    list[str] | None,
    typer.Option("--secret", metavar="KEY[=@FILE]", help="A secret: read from FILE, or asked for. Never given as an argument."),
]
SigningIn = Annotated[bool, typer.Option("--sign-in", help="Sign in at the provider, for kinds that need it.")]
By = Annotated[
    How,
    typer.Option(
        "--by", help="How to sign in: with a browser here, by pasting from one elsewhere, or with a code on any device."
    ),
]
_GOOD = {"active": "green", "imported": "green", "syncing": "cyan", "importing": "cyan", "error": "red", "paused": "yellow"}


def _settings(given: list[str] | None) -> dict[str, Any]:
    pairs = [entry.partition("=") for entry in given or ()]
    for key, equals, _ in pairs:
        if not key or not equals:
            raise UsageError(f"--set {key}: expected KEY=VALUE")
    return {key: value for key, _, value in pairs}


def _secrets(given: list[str] | None) -> dict[str, str]:
    found = {}
    for entry in given or ():
        key, equals, value = entry.partition("=")
        if equals and not value.startswith("@"):
            raise UsageError(f"--secret {key}: a secret never stands in an argument; give --secret {key} (asks) or {key}=@FILE")
        if equals:
            try:
                found[key] = Path(value[1:]).read_text().rstrip("\n")
            except OSError as error:
                raise UsageError(f"--secret {key}: {value[1:]} can't be read ({error.strerror})") from error
        else:
            found[key] = (
                typer.prompt(key, hide_input=True, err=True) if sys.stdin.isatty() else sys.stdin.readline().rstrip("\n")
            )
    return found


@app.command("add")
def add(
    kind: Annotated[str, typer.Argument(help="The kind of source; `archiver source kinds` lists them.")],
    name: Annotated[str, typer.Option("--name", help="How you will call it.")],
    set_: Settings = None,
    secret: Secrets = None,
    sign_in: SigningIn = False,
    by: By = How.BROWSER,
    json: Json = False,
) -> None:
    """Add a source. The connection is tried first; the import starts within a minute, or with `source sync`."""
    with opened("source") as archive:
        keyring = credentials_keyring(archive.settings)
        settings, secrets = _settings(set_), _secrets(secret)
        if sign_in:
            secrets = source_access.signed_in(kind, settings, secrets, asker(by))
        source = sources.add(archive.engine, keyring, QuietContext(), kind, name, settings, secrets)
        save_config(archive.engine, archive.archive)
    _tell(json, source, f"{source.name} was added.")


@app.command("kinds")
def kinds(json: Json = False) -> None:
    """The kinds of sources, with their settings and secrets."""
    if json:
        shapes = [
            {
                "kind": kind.name,
                "title": kind.title,
                "settings": {name: field.description or "" for name, field in kind.settings.model_fields.items()},
                "secrets": list(kind.secrets.model_fields),
            }
            for kind in source_kinds.kinds()
        ]
        return print_json({"kinds": shapes})
    for kind in source_kinds.kinds():
        console.print(f"[bold]{kind.name}[/bold]  {kind.title}")
        table = Table(box=None, pad_edge=False, show_header=False, padding=(0, 2))
        for name, field in kind.settings.model_fields.items():
            table.add_row(f"  {name}", Text(field.description or "", style="dim"))
        for name in kind.secrets.model_fields:
            table.add_row(f"  {name}", Text("secret", style="yellow"))
        console.print(table)
    return None


@app.command("list")
def list_(json: Json = False) -> None:
    """All sources and how they stand."""
    with opened("source") as archive, archive.engine.connect() as connection:
        found = source_rows.all_sources(connection)
        last = {source.id: next(iter(runs.last_runs(connection, source.id, 1)), None) for source in found}
    if json:
        return print_json({"sources": [_shape(source) for source in found]})
    if not found:
        return console.print(
            "No sources yet. `archiver source add` adds one, `archiver demo` shows what it looks like with mail."
        )
    table = Table(box=None, pad_edge=False, header_style="dim")
    for heading in ("name", "kind", "status", "last run", "archived", ""):
        table.add_column(heading, justify="right" if heading == "archived" else "left")
    for source in found:
        run = last[source.id]
        when = f"{run.finished_at:%Y-%m-%d %H:%M} {run.outcome}" if run else "never"
        status = Text(source.status, style=_GOOD.get(source.status, ""))
        table.add_row(source.name, source.kind, status, when, f"{run.archived:,}" if run else "", source.status_message or "")
    return console.print(table)


@app.command("show")
def show(name: Name, json: Json = False) -> None:
    """One source: settings, runs, and the ledger that says whether anything is missing."""
    with opened("source") as archive, archive.engine.connect() as connection:
        source = source_rows.find(connection, name)
        history = runs.last_runs(connection, source.id)
        running = runs.running(connection, source.id)
        boxes = connection.execute(
            text("SELECT id, address, status_message FROM mailboxes WHERE source_id = :id ORDER BY lower(address) LIMIT 1000"),
            {"id": source.id},
        ).all()
        accounts = {box.address: ledger.account(connection, box.id) for box in boxes}
    if json:
        ledger_rows = {address: [asdict(line) for line in lines] for address, lines in accounts.items()}
        return print_json({**_shape(source), "runs": [run.figures() for run in history], "ledger": ledger_rows})
    console.print(f"[bold]{source.name}[/bold]  {source.kind}, {source.status}")
    if source.status_message:
        console.print(Text(source.status_message, style="yellow"))
    for key, value in source.settings.items():
        console.print(Text(f"  {key} = {value}", style="dim"))
    for one in running:
        console.print(f"\nrunning: {one.archived:,} archived, {one.ended_mailboxes} of {one.mailboxes} mailboxes")
    for run in history:
        console.print(
            f"{run.finished_at:%Y-%m-%d %H:%M:%S}  {run.outcome:<10} {run.archived:,} archived, {run.duplicates:,} known, "
            f"{run.skipped:,} skipped, {run.failed:,} failed, {run.missing:,} missing{run.said_about_deleted}, "
            f"{run.seconds:.1f} s"
        )
    return console.print(_ledger_table(accounts))


def _ledger_table(accounts: dict[str, list[ledger.FolderAccount]]) -> Table:
    table = Table(box=None, pad_edge=False, header_style="dim", title="\nledger", title_justify="left")
    headings = ("mailbox", "folder", "listed", "archived", "gone", "deleted", "skipped", "dead letters", "missing")
    for heading in headings:
        table.add_column(heading, justify="left" if heading in ("mailbox", "folder") else "right")
    for address, lines in accounts.items():
        for line in lines:
            numbers = (line.listed, line.archived, line.gone, line.deleted, line.skipped, line.dead_letters, line.missing)
            table.add_row(address, line.folder, *(f"{number:,}" for number in numbers), style="red" if line.missing else None)
    return table


@app.command("check")
def check(name: Name, json: Json = False) -> None:
    """Try the connection and the credentials."""
    with opened("source") as archive:
        source = _find(archive, name)
        source_access.check(source, credentials_keyring(archive.settings), QuietContext())
    _tell(json, source, f"{source.name} answers, and accepts the credentials.")


@app.command("mailboxes")
def mailboxes(name: Name, json: Json = False) -> None:
    """The mailboxes that it has now: which are archived, and which are left out, and why."""
    with opened("source") as archive:
        source, context = _find(archive, name), QuietContext()
        found = source_access.mailboxes(source, credentials_keyring(archive.settings), context)
    if json:
        return print_json({"mailboxes": found, "left_out": context.left_out})
    table = Table(box=None, pad_edge=False, show_header=False, padding=(0, 2))
    for address in found:
        table.add_row(Text(address), Text("archived", style="green"))
    for address, reason in context.left_out.items():
        table.add_row(Text(address), Text(f"left out: {reason}", style="dim"))
    console.print(table)
    return messages.print(f"{len(found):,} archived, {len(context.left_out):,} left out.", markup=False)


@app.command("edit")
def edit(
    name: Name,
    set_: Settings = None,
    secret: Secrets = None,
    sign_in: SigningIn = False,
    by: By = How.BROWSER,
    json: Json = False,
) -> None:
    """Change settings or secrets. An empty value (KEY=) removes a setting; secrets that are not given stay."""
    with opened("source") as archive:
        changes = {key: value or None for key, value in _settings(set_).items()}
        keyring = credentials_keyring(archive.settings)
        found, secrets = _find(archive, name), _secrets(secret)
        if sign_in:
            secrets = source_access.signed_in_again(keyring, found, changes, secrets, asker(by))
        source = sources.edit(archive.engine, keyring, QuietContext(), found, changes, secrets)
        save_config(archive.engine, archive.archive)
    _tell(json, source, f"{source.name} was changed.")


@app.command("sync")
def sync(
    name: Name,
    wait: Annotated[bool, typer.Option("--wait", help="Follow it until its mail can be found, with progress bars.")] = False,
    timeout: Annotated[float | None, typer.Option(help="With --wait: give up waiting after so many seconds.")] = None,
    json: Json = False,
) -> None:
    """Sync now. A cycle that runs already is followed by another one."""
    with opened("source", "workers") as archive:
        with archive.engine.begin() as connection:
            source = source_rows.find(connection, name)
            before = runs.newest_run(connection, source.id)
            sources.sync_now(connection, source)
        if not wait:
            return _tell(json, source, f"{source.name} will be synced.")
        run = follow_run(archive, source, before, timeout, quiet=json)
        follow_index(archive.engine, run, timeout, quiet=json)
    if json:
        print_json(run.figures())
    raise typer.Exit(_exit_code(run))


def _exit_code(run: runs.Run) -> int:
    """3: it finished, and something is missing."""
    return {"success": 0, "incomplete": 3}.get(run.outcome, 1)


@app.command("pause")
def pause(name: Name, json: Json = False) -> None:
    """Stop at the next batch. What is archived stays."""
    _change(name, sources.pause, "is paused.", json=json)


@app.command("resume")
def resume(name: Name, json: Json = False) -> None:
    """Go on where it stopped."""
    _change(name, sources.resume, "goes on.", json=json)


@app.command("remove")
def remove(
    name: Name,
    delete_mail: Annotated[bool, typer.Option("--delete-mail", help="Delete its mail from the archive as well.")] = False,
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask.")] = False,
    json: Json = False,
) -> None:
    """Fetch nothing more from it and forget its credentials. Its mail stays in the archive, unless you say otherwise."""
    fate = "ITS MAIL IS DELETED FOR GOOD" if delete_mail else "Its mail stays in the archive"
    if not yes:
        typer.confirm(f"Remove the source {name}? {fate}.", abort=True, err=True)
    with opened("source") as archive:
        with archive.engine.begin() as connection:
            source = source_rows.find(connection, name)
            sources.remove(connection, source)
            boxes = (
                connection.execute(text("SELECT id FROM mailboxes WHERE source_id = :id"), {"id": source.id}).scalars().all()
            )
        if delete_mail:
            for box in boxes:
                delete_mailbox_mail(archive.engine, archive.archive, box, f"the source {source.name} was removed")
        save_config(archive.engine, archive.archive)
    _tell(json, source, f"{source.name} was removed; its mail {'was deleted' if delete_mail else 'stays'}.")


def _change(name: str, act: Any, said: str, *, json: bool) -> None:
    with opened("source") as archive:
        with archive.engine.begin() as connection:
            source = source_rows.find(connection, name)
            act(connection, source)
        save_config(archive.engine, archive.archive)
    _tell(json, source, f"{source.name} {said}")


def _find(archive: OpenArchive, name: str) -> Source:
    with archive.engine.connect() as connection:
        return source_rows.find(connection, name)


def _shape(source: Source) -> dict[str, Any]:
    shape = {
        field: getattr(source, field) for field in ("id", "kind", "name", "status", "status_message", "settings", "failures")
    }
    return {**shape, "last_finished_at": source.last_finished_at, "next_due_at": source.next_due_at}


def _tell(json: bool, source: Source, sentence: str) -> None:
    print_json({"source": _shape(source), "message": sentence}) if json else messages.print(sentence, markup=False)
