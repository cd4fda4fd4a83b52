"""`archiver policy …`: how long mail is kept, and when it is deleted."""

from __future__ import annotations

import sys
from dataclasses import asdict
from functools import partial
from typing import Annotated, Any
from uuid import UUID

import typer
from rich.table import Table
from rich.text import Text

from archiver.access.principal import LOCAL_OPERATOR
from archiver.cli.terminal.archive import archive_for
from archiver.cli.terminal.output import Json, console, print_json
from archiver.cli.terminal.zone import local_zone_name
from archiver.db.states import AgeOrigin
from archiver.evidence import signing
from archiver.maintenance.retention import apply
from archiver.maintenance.snapshot import save_config
from archiver.quantity import quantity
from archiver.retention import policies, runs, simulation
from archiver.retention.approval import needs_second_person
from archiver.retention.policies import NewPolicy, PolicyVersion
from archiver.secrets import credentials_keyring

app = typer.Typer(no_args_is_help=True, help="Set how long mail is kept, and when it is deleted.")

Name = Annotated[str, typer.Argument(metavar="NAME", help="The policy's name or id, or the id of a version.")]
Reason = Annotated[str, typer.Option(help="Why. The reason is stored with the version.")]
Query = Annotated[str, typer.Option(help="Which mail it applies to; without it, all mail.")]
Keep = Annotated[str | None, typer.Option("--keep", help="Keep for at least this long: 10y, 18m, 90d.", metavar="PERIOD")]
Delete = Annotated[str | None, typer.Option("--delete-after", help="Delete after this long: 10y, 18m, 90d.", metavar="PERIOD")]
From = Annotated[AgeOrigin, typer.Option("--from", help="What the age is counted from.")]
YearEnd = Annotated[bool, typer.Option("--from-year-end", help="Count from the end of the calendar year.")]


@app.command("add")
def add(
    name: Annotated[str, typer.Argument(metavar="NAME", help='A name, such as "Finance 10 years".')],
    reason: Reason,
    query: Query = "",
    keep: Keep = None,
    delete_after: Delete = None,
    counted_from: From = AgeOrigin.RECEIVED,
    from_year_end: YearEnd = False,
    json: Json = False,
) -> None:
    """Propose a policy. If it only keeps mail, it takes effect at once; otherwise simulate and approve it first."""
    new = NewPolicy(name, reason, query, counted_from, from_year_end, keep, delete_after, local_zone_name())
    _propose(new, None, json=json)


@app.command("change")
def change(
    name: Name,
    reason: Reason,
    query: Annotated[str | None, typer.Option(help="Which mail it applies to.")] = None,
    keep: Keep = None,
    delete_after: Delete = None,
    counted_from: Annotated[AgeOrigin | None, typer.Option("--from", help="What the age is counted from.")] = None,
    from_year_end: Annotated[bool | None, typer.Option("--from-year-end/--from-day", help="Count from the year's end.")] = None,
    json: Json = False,
) -> None:
    """Propose a new version of a policy. What is not named stays as it is; a period of "none" removes it."""
    with archive_for("policy") as at, at.engine.connect() as connection:
        last = policies.find(connection, name)[0]
    new = NewPolicy(
        last.name, reason, last.query if query is None else query, counted_from or last.counted_from,
        last.from_year_end if from_year_end is None else from_year_end, _period(keep, last.keep_for),
        _period(delete_after, last.delete_after), last.zone,
    )  # fmt: skip
    _propose(new, last.policy_id, json=json)


def _period(given: str | None, before: str | None) -> str | None:
    return before if given is None else None if given.lower() == "none" else given


def _propose(new: NewPolicy, policy_id: UUID | None, *, json: bool) -> None:
    with archive_for("policy") as at:
        version = policies.propose(at.engine, LOCAL_OPERATOR, new, policy_id)
        save_config(at.engine, at.archive)
    _report(version, json=json)


@app.command("retire")
def retire(name: Name, reason: Reason, json: Json = False) -> None:
    """Propose that a policy no longer applies."""
    with archive_for("policy") as at:
        with at.engine.connect() as connection:
            policy_id = policies.find(connection, name)[0].policy_id
        version = policies.retire(at.engine, LOCAL_OPERATOR, policy_id, reason)
        save_config(at.engine, at.archive)
    _report(version, json=json)


@app.command("list")
def list_(json: Json = False) -> None:
    """List the policies, with their newest versions."""
    with archive_for("policy") as at, at.engine.connect() as connection:
        found = policies.list_versions(connection)
        current = {version.id for version in policies.in_force(connection)}
    if json:
        return print_json({"policies": [[{**asdict(one), "in_force": one.id in current} for one in each] for each in found]})
    table = Table(box=None, pad_edge=False, header_style="dim")
    for heading in ("policy", "version", "applies to", "from", "keep", "delete after", "state"):
        table.add_column(heading)
    for each in found:
        for version in [one for one in each if one.is_open or one.id in current] or each[:1]:
            end = " (year end)" if version.from_year_end else ""
            values = (
                version.name, str(version.number), version.query or "all mail", f"{version.counted_from}{end}",
                version.keep_for or "-", version.delete_after or "-", _state(version, current),
            )  # fmt: skip
            table.add_row(*map(Text, values))
    return console.print(table) if found else console.print("There is no policy: everything is kept forever.")


@app.command("simulate")
def simulate(
    name: Name,
    csv: Annotated[bool, typer.Option("--csv", help="Print the figures as CSV.")] = False,
    json: Json = False,
) -> None:
    """Count what the newest version would delete, and when. Changes nothing."""
    with archive_for("policy") as at:
        with at.engine.connect() as connection:
            version = policies.find(connection, name)[0]
        version = simulation.simulate(at.engine, at.archive, LOCAL_OPERATOR, version)
    figures = version.simulation or {}
    if json:
        return print_json(figures)
    if csv:
        sys.stdout.writelines(simulation.as_csv(version))
        return None
    _print_figures(version, figures)
    return None


def _print_figures(version: PolicyVersion, figures: dict[str, Any]) -> None:
    console.print(
        f"{version.name}, version {version.number}: matches {quantity(figures['messages'], 'message')}.", markup=False
    )
    console.print(f"Due now: {quantity(figures['due'], 'message')}, {figures['due_bytes'] / 1e6:,.1f} MB.")
    notes = {
        "kept_longer": "kept longer by another policy",
        "unclear": "unreadable, or not read yet: they stay",
        "disputed_dates": "whose date disagrees with the server: the server's counts",
        "date_only": "with nothing but a date header",
    }
    for field, label in notes.items():
        if figures[field]:
            console.print(f"  {quantity(figures[field], 'message')} {label}")
    for title, rows in (("month", "months"), ("mailbox", "mailboxes"), ("sender", "senders"), ("on hold", "held")):
        if figures[rows]:
            table = Table(box=None, pad_edge=False, header_style="dim")
            table.add_column(title)
            for heading in ("messages", "MB"):
                table.add_column(heading, justify="right")
            for value, count, size in figures[rows]:
                table.add_row(Text(str(value or "-")), f"{count:,}", f"{size / 1e6:,.1f}")
            console.print(table)


@app.command("approve")
def approve(name: Name, json: Json = False) -> None:
    """Approve the newest version, which then takes effect. Needs a simulation of the last day, and another person."""
    with archive_for("policy") as at:
        with at.engine.begin() as connection:
            second = needs_second_person(connection, at.settings)
            version = policies.find(connection, name)[0]
            version = policies.approve(connection, LOCAL_OPERATOR, version, second_person=second)
        save_config(at.engine, at.archive)
    _report(version, json=json)


@app.command("reject")
def reject(name: Name, json: Json = False) -> None:
    """Reject, or withdraw, the newest version."""
    with archive_for("policy") as at:
        with at.engine.begin() as connection:
            version = policies.reject(connection, LOCAL_OPERATOR, policies.find(connection, name)[0])
        save_config(at.engine, at.archive)
    _report(version, json=json)


@app.command("run")
def run(yes: Annotated[bool, typer.Option("--yes", help="Do not ask for confirmation.")] = False, json: Json = False) -> None:
    """Delete what is due now, instead of waiting for the schedule."""
    if not yes:
        typer.confirm("Permanently delete what the policies in force say?", abort=True, err=True)
    with archive_for("policy") as at:
        done = apply(at.settings, at.engine, at.archive, credentials_keyring(at.settings))
    if json:
        print_json(None if done is None else asdict(done))
    elif done is None:
        console.print("Nothing is due, or another process is at work.")
    else:
        counts = f"{quantity(done.copies, 'copy')}, {quantity(done.messages, 'message')}"
        console.print(f"Deleted {counts}; {quantity(done.held, 'copy')} stay on hold. Receipt: {done.id}")
        if done.error:
            console.print(done.error, style="red", markup=False)
    raise typer.Exit(1 if done is not None and done.error else 0)


@app.command("receipts")
def receipts(json: Json = False) -> None:
    """List the runs that deleted something."""
    with archive_for("policy") as at, at.engine.connect() as connection:
        found = runs.list_runs(connection, limit=1000)
    if json:
        return print_json({"runs": [asdict(one) for one in found]})
    table = Table(box=None, pad_edge=False, header_style="dim")
    for heading in ("id", "finished", "copies", "messages", "MB", "held", "error"):
        table.add_column(heading)
    for one in found:
        end = f"{one.finished_at:%Y-%m-%d %H:%M}" if one.finished_at else "running"
        counts = (f"{one.copies:,}", f"{one.messages:,}", f"{one.size_bytes / 1e6:,.1f}", f"{one.held:,}")
        table.add_row(*map(Text, (str(one.id), end, *counts, one.error or "")))
    return console.print(table) if found else console.print("Nothing has been deleted by a policy.")


@app.command("receipt")
def receipt(
    run_id: Annotated[UUID, typer.Argument(metavar="ID", help="The id of the run.")],
    listed: Annotated[bool, typer.Option("--list", help="Print what was deleted: mailbox and SHA-256, one line each.")] = False,
    verify: Annotated[bool, typer.Option("--verify", help="Check the signature and the hash of the list.")] = False,
    public_key: Annotated[bool, typer.Option("--public-key", help="Print the key that checks the signature, as PEM.")] = False,
) -> None:
    """Print the signed receipt of a run, exactly as it was signed."""
    with archive_for("policy") as at, at.engine.connect() as connection:
        found = runs.load(connection, run_id)
        keys = {one.id: one.public_bytes for one in signing.public_keys(connection)}
        lines = list(runs.deleted_units(connection, found)) if listed or verify else []
    if listed:
        sys.stdout.writelines(f"{line}\n" for line in lines)
    elif public_key:
        sys.stdout.write(signing.public_pem(keys[found.key or ""]) if found.key in keys else "")
    elif verify:
        faults = runs.faults(found, partial(signing.is_signed, keys.get(found.key or "", b"")), lines)
        for fault in faults:
            console.print(fault, style="red", markup=False)
        console.print("The receipt is genuine." if not faults else "The receipt is not valid.")
        raise typer.Exit(1 if faults else 0)
    else:
        sys.stdout.write((found.receipt or "") + "\n")


def _state(version: PolicyVersion, current: set[UUID]) -> str:
    if version.is_open:
        return "proposed" + (" to retire" if version.is_retired else "")
    if version.approved_at is None:
        return f"rejected by {version.rejected_by}"
    return "in force" if version.id in current else "retired" if version.is_retired else "replaced"


def _report(version: PolicyVersion, *, json: bool) -> None:
    if json:
        return print_json(asdict(version))
    if version.approved_at:
        outcome = "is in force" if not version.is_retired else "no longer applies"
    else:
        outcome = "is rejected" if version.rejected_at else "is proposed: simulate it, then let it be approved"
    return console.print(f"{version.name}, version {version.number}, {outcome}.", markup=False)
