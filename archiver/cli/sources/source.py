"""`archiver source …`: where mail comes from."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.table import Table
from rich.text import Text
from sqlalchemy import text

from archiver.cli.sources.cleanup import clean_up
from archiver.cli.sources.sign_in import SignInMethod, sign_in_with
from archiver.cli.terminal.archive import OpenArchive, archive_for
from archiver.cli.terminal.follow import follow_index, follow_run
from archiver.cli.terminal.output import Json, console, messages, print_json
from archiver.cli.terminal.wait import CommandWithWait, Wait, is_full
from archiver.config import load_settings
from archiver.errors import UsageError
from archiver.maintenance.snapshot import save_config
from archiver.quantity import quantity, time_span
from archiver.secrets import credentials_keyring
from archiver.sources import access as source_access
from archiver.sources import back_off, runs
from archiver.sources import kinds as source_kinds
from archiver.sources import rows as source_rows
from archiver.sources import service as sources
from archiver.sources.null_context import QuietContext
from archiver.sources.rows import Source
from archiver.sync import ledger, listings
from archiver.sync.listings import CycleListing

app = typer.Typer(no_args_is_help=True, help="Add, inspect, sync, pause and remove the sources that mail comes from.")
app.command("clean-up")(clean_up)

Name = Annotated[str, typer.Argument(help="The source's name, or its id.")]
Settings = Annotated[list[str] | None, typer.Option("--set", metavar="KEY=VALUE", help="A setting; may be repeated.")]
Secrets = Annotated[
    list[str] | None,
    typer.Option(
        "--secret", metavar="KEY[=@FILE]", help="A secret, read from FILE or a prompt; never put it on the command line."
    ),
]
SigningIn = Annotated[bool, typer.Option("--sign-in", help="Sign in at the provider, for kinds of sources that need it.")]
By = Annotated[
    SignInMethod,
    typer.Option(
        "--by", help="How to sign in: in a browser here, by pasting from a browser elsewhere, or with a code on any device."
    ),
]
_GOOD = {"active": "green", "imported": "green", "syncing": "cyan", "importing": "cyan", "error": "red", "paused": "yellow"}


def _settings(entries: list[str] | None) -> dict[str, Any]:
    pairs = [entry.partition("=") for entry in entries or ()]
    for key, equals, _ in pairs:
        if not key or not equals:
            raise UsageError(f"--set {key}: expected KEY=VALUE")
    return {key: value for key, _, value in pairs}


def _secrets(entries: list[str] | None) -> dict[str, str]:
    found = {}
    for entry in entries or ():
        key, equals, value = entry.partition("=")
        if equals and not value.startswith("@"):
            raise UsageError(
                f"--secret {key}: secrets are not accepted as arguments; use --secret {key} for a prompt, or {key}=@FILE"
            )
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
    name: Annotated[str, typer.Option("--name", help="The name of the new source.")],
    set_: Settings = None,
    secret: Secrets = None,
    sign_in: SigningIn = False,
    by: By = SignInMethod.BROWSER,
    json: Json = False,
) -> None:
    """Add a source. The connection is tested first; the first sync starts within a minute, or with `source sync`."""
    # refused before keys and a data folder are created
    source_kinds.check_installed(source_kinds.kind_of(kind, samples=load_settings().sample_sources))
    with archive_for("source") as archive:
        keyring = credentials_keyring(archive.settings)
        settings, secrets = _settings(set_), _secrets(secret)
        if sign_in:
            secrets = source_access.sign_in(kind, settings, secrets, sign_in_with(by))
        hosts = archive.settings.source_hosts
        source = sources.add(archive.engine, keyring, QuietContext(), kind, name, settings, secrets, hosts=hosts)
        save_config(archive.engine, archive.archive)
    _report(json, source, f"{source.name} was added.")


@app.command("kinds")
def kinds(json: Json = False) -> None:
    """List the kinds of sources with their settings and secrets."""
    offered = source_kinds.kinds(samples=load_settings().sample_sources)
    if json:
        shapes = [
            {
                "kind": kind.name,
                "title": kind.title,
                "settings": {name: field.description or "" for name, field in kind.settings.model_fields.items()},
                "secrets": list(kind.secrets.model_fields),
            }
            for kind in offered
        ]
        return print_json({"kinds": shapes})
    for kind in offered:
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
    """List all sources with their status."""
    with archive_for("source") as archive, archive.engine.connect() as connection:
        found = source_rows.all_sources(connection)
        last = {source.id: next(iter(runs.last_runs(connection, source.id, 1)), None) for source in found}
    if json:
        return print_json({"sources": [_shape(source) for source in found]})
    if not found:
        return console.print(
            "No sources yet. `archiver source add` adds one; `archiver demo` shows an archive with sample mail."
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
    """Show one source: settings, recent runs, and the ledger, which shows whether anything is missing."""
    with archive_for("source") as archive, archive.engine.connect() as connection:
        source = source_rows.find(connection, name)
        history = runs.last_runs(connection, source.id)
        running = runs.running(connection, source.id)
        listing = listings.load_last(connection, source.id)
        boxes = connection.execute(
            text("SELECT id, address, gone_at FROM mailboxes WHERE source_id = :id ORDER BY lower(address) LIMIT 1000"),
            {"id": source.id},
        ).all()
        accounts = {box.address: ledger.account(connection, box.id) for box in boxes}
    if json:
        ledger_rows = {address: [asdict(line) for line in lines] for address, lines in accounts.items()}
        gone = {box.address: box.gone_at for box in boxes if box.gone_at}
        found = {
            "running": [asdict(session) for session in running],
            "runs": [run.figures() for run in history],
            "ledger": ledger_rows,
            "gone_mailboxes": gone,
        }
        return print_json({**_shape(source), "last_listing": asdict(listing) if listing.at else None, **found})
    console.print(f"[bold]{source.name}[/bold]  {source.kind}, {source.status}")
    if source.status_message:
        console.print(Text(source.status_message, style="yellow"))
    for key, value in source.settings.items():
        console.print(Text(f"  {key} = {value}", style="dim"))
    for session in running:
        done = f"{session.ended_mailboxes} of {quantity(session.mailboxes, 'mailbox')}"
        left = f", about {time_span(session.left_seconds)} left" if session.left_seconds else ""
        console.print(f"\nrunning: {session.archived:,} archived, {done}{left}")
    for run in history:
        console.print(
            f"{run.finished_at:%Y-%m-%d %H:%M:%S}  {run.outcome:<10} {run.archived:,} archived, {run.duplicates:,} known, "
            f"{run.skipped:,} skipped, {run.failed:,} failed, {run.missing:,} missing{run.deleted_phrase}, "
            f"{run.seconds:.1f} s"
        )
        if run.gone_mailboxes:
            console.print(
                Text(f"  {quantity(run.gone_mailboxes, 'mailbox')} no longer listed: {', '.join(run.gone_addresses)}")
            )
    for line in _listing_lines(listing):
        console.print(line, style="dim")
    for box in boxes:
        if box.gone_at:
            console.print(Text(f"{box.address}: not listed by the source since {box.gone_at:%Y-%m-%d %H:%M}", style="yellow"))
    return console.print(_ledger_table(accounts))


def _listing_lines(listing: CycleListing) -> Iterator[str]:
    if listing.at:
        yield f"last listing {listing.at[:16].replace('T', ' ')}: {quantity(listing.mailboxes, 'mailbox')}"
    yield from (f"  excluded: {number:,} ({reason})" for reason, number in sorted(listing.left_out.items()))


def _ledger_table(accounts: dict[str, list[ledger.FolderAccount]]) -> Table:
    table = Table(box=None, pad_edge=False, header_style="dim", title="\nledger", title_justify="left")
    headings = ("mailbox", "folder", "listed", "at", "archived", "gone", "deleted", "skipped", "dead letters", "missing")
    for heading in headings:
        table.add_column(heading, justify="left" if heading in ("mailbox", "folder", "at") else "right")
    for address, lines in accounts.items():
        for line in lines:
            numbers = (line.archived, line.gone, line.deleted, line.skipped, line.dead_letters, line.missing)
            at = f"{line.listed_at:%Y-%m-%d %H:%M:%S}" if line.listed_at else "never"  # the others are of now
            cells = (address, line.folder, f"{line.listed:,}", at, *(f"{number:,}" for number in numbers))
            table.add_row(*cells, style="red" if line.missing else None)
    return table


@app.command("check")
def check(name: Name, json: Json = False) -> None:
    """Test the connection and the credentials."""
    with archive_for("source") as archive:
        source = _find(archive, name)
        notes = source_access.check(source, credentials_keyring(archive.settings), QuietContext())
    _report(json, source, f"{source.name} responds and accepts the credentials.", notes)


@app.command("mailboxes")
def mailboxes(name: Name, json: Json = False) -> None:
    """List the mailboxes of the source: which are archived, which are excluded, and why."""
    with archive_for("source") as archive:
        source, context = _find(archive, name), QuietContext()
        found = source_access.mailboxes(source, credentials_keyring(archive.settings), context)
    if json:
        return print_json({"mailboxes": found, "left_out": context.left_out})
    table = Table(box=None, pad_edge=False, show_header=False, padding=(0, 2))
    for address in found:
        table.add_row(Text(address), Text("archived", style="green"))
    for address, reason in context.left_out.items():
        table.add_row(Text(address), Text(f"excluded: {reason}", style="dim"))
    console.print(table)
    return messages.print(f"{len(found):,} archived, {len(context.left_out):,} excluded.", markup=False)


@app.command("edit")
def edit(
    name: Name,
    set_: Settings = None,
    secret: Secrets = None,
    sign_in: SigningIn = False,
    by: By = SignInMethod.BROWSER,
    json: Json = False,
) -> None:
    """Change settings or secrets. An empty value (KEY=) removes a setting. Secrets stay unless they are given again; a change
    of the server (host, port, TLS, address) requires them again."""
    with archive_for("source") as archive:
        changes = {key: value or None for key, value in _settings(set_).items()}
        keyring = credentials_keyring(archive.settings)
        found, secrets = _find(archive, name), _secrets(secret)
        if sign_in:
            secrets = source_access.sign_in_again(keyring, found, changes, secrets, sign_in_with(by))
        hosts = archive.settings.source_hosts
        source = sources.edit(archive.engine, keyring, QuietContext(), found, changes, secrets, hosts=hosts)
        save_config(archive.engine, archive.archive)
    _report(json, source, f"{source.name} was changed.")


@app.command("sync", cls=CommandWithWait)
def sync(
    name: Name,
    wait: Wait = "",
    timeout: Annotated[float | None, typer.Option(help="With --wait: stop waiting after this many seconds.")] = None,
    json: Json = False,
) -> None:
    """Sync now. If a cycle is already running, another one follows it, and --wait waits for that one.

    Mailboxes that wait after a failure are tried at once.
    """
    full = is_full(wait)
    with archive_for("source", "workers") as archive:
        with archive.engine.begin() as connection:
            source = source_rows.find(connection, name)
            before = runs.newest_run(connection, source.id)
            waiting = back_off.waiting(connection, source.id)
            live = sources.sync_now(connection, source)
            if source.kind in source_kinds.RUNS_ONCE:
                live = None  # what runs is the import that is to be followed
        for mailbox in waiting:
            messages.print(mailbox.ended, style="yellow", markup=False)
        if not wait:
            return _report(json, source, f"{source.name} will be synced now.")
        run = follow_run(archive, source, before, live, timeout, quiet=json)
        follow_index(archive.engine, run, timeout, quiet=json, full=full)
    if json:
        print_json(run.figures())
    raise typer.Exit(_exit_code(run))


def _exit_code(run: runs.Run) -> int:
    """3: it finished, but something is missing."""
    return {"success": 0, "incomplete": 3}.get(run.outcome, 1)


@app.command("pause")
def pause(name: Name, json: Json = False) -> None:
    """Pause a source after the current batch. Archived mail stays."""
    _change(name, sources.pause, "is paused.", json=json)


@app.command("resume")
def resume(name: Name, json: Json = False) -> None:
    """Resume a paused source where it stopped."""
    _change(name, sources.resume, "was resumed.", json=json)


@app.command("remove")
def remove(
    name: Name,
    delete_mail: Annotated[
        bool, typer.Option("--delete-mail", help="Permanently delete its mail from the archive as well.")
    ] = False,
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask for confirmation.")] = False,
    json: Json = False,
) -> None:
    """Remove a source and its credentials. Its mail stays in the archive unless --delete-mail is given."""
    fate = "ITS MAIL WILL BE PERMANENTLY DELETED" if delete_mail else "Its mail stays in the archive"
    if not yes:
        typer.confirm(f"Remove the source {name}? {fate}.", abort=True, err=True)
    with archive_for("source") as archive:
        with archive.engine.begin() as connection:
            source = source_rows.find(connection, name)
            sources.remove(connection, source)
            boxes = (
                connection.execute(text("SELECT id FROM mailboxes WHERE source_id = :id"), {"id": source.id}).scalars().all()
            )
        from archiver.retention.delete import Deleted, delete_mailbox_mail  # loads everything that reads mail

        done = Deleted()
        for box in boxes if delete_mail else ():
            done += delete_mailbox_mail(archive.engine, archive.archive, box, f"the source {source.name} was removed")
        save_config(archive.engine, archive.archive)
    fate = "was deleted" if delete_mail else "stays"
    if done.held:
        fate += f", except {quantity(done.held, 'copy')} ({', '.join(done.holds)})"
    _report(json, source, f"{source.name} was removed; its mail {fate}.")


def _change(name: str, act: Any, outcome: str, *, json: bool) -> None:
    with archive_for("source") as archive:
        with archive.engine.begin() as connection:
            source = source_rows.find(connection, name)
            act(connection, source)
        save_config(archive.engine, archive.archive)
    _report(json, source, f"{source.name} {outcome}")


def _find(archive: OpenArchive, name: str) -> Source:
    with archive.engine.connect() as connection:
        return source_rows.find(connection, name)


def _shape(source: Source) -> dict[str, Any]:
    shape = {
        field: getattr(source, field) for field in ("id", "kind", "name", "status", "status_message", "settings", "failures")
    }
    return {**shape, "last_finished_at": source.last_finished_at, "next_due_at": source.next_due_at}


def _report(json: bool, source: Source, sentence: str, notes: tuple[str, ...] | None = None) -> None:
    if json:
        extra = {} if notes is None else {"notes": notes}
        return print_json({"source": _shape(source), "message": sentence, **extra})
    messages.print(sentence, markup=False)
    for note in notes or ():
        messages.print(note, style="yellow", markup=False)
    return None
