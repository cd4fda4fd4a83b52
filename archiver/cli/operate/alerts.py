"""`archiver alerts …`: what is wrong, which rules apply, and who is notified."""

from __future__ import annotations

import os
import sys
from dataclasses import asdict
from typing import Annotated, Any

import typer
from rich.table import Table
from rich.text import Text

from archiver.access.principal import LOCAL_OPERATOR
from archiver.alerts import channels, deliveries, environment, evaluation, history, rules
from archiver.alerts.channels import ChannelWishes
from archiver.cli.terminal.archive import archive_for
from archiver.cli.terminal.output import Json, console, messages, print_json
from archiver.db.states import AlertSeverity
from archiver.errors import UsageError
from archiver.maintenance.snapshot import save_config
from archiver.secrets import credentials_keyring

app = typer.Typer(no_args_is_help=True, help="Show alerts, change their rules, and choose who is notified and how.")
Channel = Annotated[str, typer.Argument(metavar="CHANNEL", help="Id or name, as `archiver alerts channels` shows it.")]


@app.command("list")
def list_(
    past: Annotated[bool, typer.Option("--past", help="Show resolved alerts instead of open ones.")] = False,
    limit: Annotated[int, typer.Option(min=1, max=10_000, help="With --past: show at most this many.")] = 100,
    json: Json = False,
) -> None:
    """List open alerts, the most urgent first. Exits with 3 if there are any."""
    with archive_for("alerts") as at, at.engine.connect() as connection:
        found = history.past_alerts(connection, limit) if past else history.open_alerts(connection)
    if json:
        print_json({"alerts": [{**asdict(one), "title": one.title(), "advice": one.advice()} for one in found]})
    elif not found:
        console.print("There are no past alerts." if past else "There are no open alerts.")
    for one in () if json else found:
        until = f" – {one.resolved_at:%Y-%m-%d %H:%M}" if one.resolved_at else ""
        style = "red" if one.severity == AlertSeverity.CRITICAL else "yellow"
        console.print(Text.assemble((one.severity, style), f" {one.raised_at:%Y-%m-%d %H:%M}{until}  {one.title()}"))
        if not past:
            console.print(Text(f"  {one.advice()}", style="dim"))
    raise typer.Exit(3 if found and not past else 0)


@app.command("check")
def check(json: Json = False) -> None:
    """Check all rules now, and send the notices that are due. Workers do this every minute."""
    with archive_for("alerts") as at:
        done = evaluation.evaluate(at.engine, at.settings, credentials_keyring(at.settings))
    if json:
        return print_json(asdict(done) if done else {"busy": True})
    if done is None:
        return messages.print("A worker is checking the rules right now.")
    return messages.print(f"{done.raised} raised, {done.resolved} resolved; notices: {done.sent} sent, {done.not_sent} failed.")


@app.command("rules")
def show_rules(json: Json = False) -> None:
    """List the rules with their thresholds."""
    with archive_for("alerts") as at, at.engine.connect() as connection:
        found = rules.load_rules(connection)
    if json:
        return print_json({"rules": [asdict(rule) for rule in found.values()]})
    table = Table(box=None, pad_edge=False, header_style="dim")
    for heading in ("rule", "severity", "threshold", "for", "enabled"):
        table.add_column(heading)
    for rule in found.values():
        threshold = f"{rule.threshold:g} {rule.unit}" if rule.threshold is not None else ""
        table.add_row(rule.name, rule.severity, threshold, f"{rule.for_minutes} min", "yes" if rule.enabled else "no")
    return console.print(table)


@app.command("set")
def set_rule(
    name: Annotated[str, typer.Argument(metavar="RULE", help="As `archiver alerts rules` shows it.")],
    threshold: Annotated[float | None, typer.Option(help="Raise from this value on. Default: that of the rule.")] = None,
    for_minutes: Annotated[int | None, typer.Option("--for", help="Minutes that it has to hold first.")] = None,
    off: Annotated[bool, typer.Option("--off", help="Switch the rule off.")] = False,
) -> None:
    """Change a rule. What is not given gets its default."""
    with archive_for("alerts") as at:
        changes: dict[str, Any] = {"enabled": not off, "threshold": threshold, "for_minutes": for_minutes}
        with at.engine.begin() as connection:
            rules.change_rule(connection, LOCAL_OPERATOR, name, **changes)
        save_config(at.engine, at.archive)
    messages.print(f"The rule {name} is {'off' if off else 'changed'}.")


@app.command("channels")
def show_channels(json: Json = False) -> None:
    """List the channels; passwords are never shown."""
    with archive_for("alerts") as at, at.engine.connect() as connection:
        found = channels.load_channels(connection, at.settings, credentials_keyring(at.settings))
        reports = channels.report_channels(connection)
        shown = [{**_shape(one), "to": one.parsed(at.settings).shown, **_report(reports.get(one.id))} for one in found]
    if json:
        return print_json({"channels": shown})
    if not shown:
        return console.print("There are no channels: add one with `archiver alerts add`, or set ALERT_URLS.")
    for one in shown:
        failed = f"  not sent: {one['error']}" if one["error"] else ""
        console.print(Text(f"{one['id']}  {one['name']}  {one['to']}{failed}"))
    return None


def _shape(channel: channels.AlertChannel) -> dict[str, Any]:
    wishes = asdict(channel.wishes)
    return {"id": channel.id, "name": channel.name, "owner": channel.owner, "configured": channel.is_configured, **wishes}


def _report(report: channels.ChannelReport | None) -> dict[str, Any]:
    return {"last_sent_at": report.last_sent_at if report else None, "error": report.error if report else None}


@app.command("add")
def add(
    name: Annotated[str, typer.Option(help="A name for the channel.")] = "",
    severity: Annotated[AlertSeverity, typer.Option(help="Report alerts from this severity on.")] = AlertSeverity.WARNING,
    mute: Annotated[list[str] | None, typer.Option(help="A rule that is not reported; can be repeated.")] = None,
    no_summary: Annotated[bool, typer.Option("--no-summary", help="No weekly summary.")] = False,
    quiet: Annotated[str | None, typer.Option(help="Quiet hours, such as 22:00-07:00; critical alerts come anyway.")] = None,
    zone: Annotated[str | None, typer.Option(help="The time zone of the quiet hours, such as Europe/Berlin.")] = None,
    language: Annotated[str | None, typer.Option(help="en or de.")] = None,
    json: Json = False,
) -> None:
    """Add a channel. Its address is read from ARCHIVER_ALERT_ADDRESS, a prompt, or a line of standard input, because it may
    contain a password: mailto:ADDRESS (with SMTP_URL), smtps://…, https://host/path#secret, or an address of Apprise."""
    begin, _, end = (quiet or "").partition("-")
    wishes = ChannelWishes(severity, tuple(mute or ()), not no_summary, language, zone, begin or None, end or None)
    address = _address()
    with archive_for("alerts") as at:
        keyring = credentials_keyring(at.settings)
        with at.engine.begin() as connection:
            added = channels.add_channel(connection, at.settings, keyring, LOCAL_OPERATOR, name, address, wishes)
        save_config(at.engine, at.archive)
    if json:
        return print_json(_shape(added))
    return messages.print(f"Added {added.name}. Send a test: archiver alerts test {added.id}")


def _address() -> str:
    given = os.environ.get("ARCHIVER_ALERT_ADDRESS")
    if given:
        return given
    if sys.stdin.isatty():
        return str(typer.prompt("address", hide_input=True, err=True))
    line = sys.stdin.readline().strip()
    if not line:
        raise UsageError("give the channel's address on standard input, or in ARCHIVER_ALERT_ADDRESS")
    return line


@app.command("remove")
def remove(channel: Channel) -> None:
    """Remove a channel."""
    with archive_for("alerts") as at:
        with at.engine.begin() as connection:
            found = channels.find_channel(connection, at.settings, credentials_keyring(at.settings), channel)
            channels.remove_channel(connection, LOCAL_OPERATOR, found)
        save_config(at.engine, at.archive)
    messages.print(f"Removed {found.name}.")


@app.command("test")
def test(channel: Channel) -> None:
    """Send a test through a channel, whatever its quiet hours."""
    with archive_for("alerts") as at:
        with at.engine.connect() as connection:
            found = channels.find_channel(connection, at.settings, credentials_keyring(at.settings), channel)
        deliveries.send_test(found, at.settings)
    messages.print(f"Sent to {found.name}.")


@app.command("confirm-keys")
def confirm_keys(json: Json = False) -> None:
    """Confirm that a copy of the encryption keys is stored in another place."""
    with archive_for("alerts") as at, at.engine.begin() as connection:
        keys = environment.confirm_keys(connection, at.settings, LOCAL_OPERATOR)
    if json:
        return print_json({"keys": keys})
    return messages.print(f"Confirmed for {', '.join(keys) or 'no key: all keys come from variables'}.")
