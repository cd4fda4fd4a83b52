"""`archiver user …`: who can sign in, and which mail they can see."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Annotated, Any

import typer
from rich.table import Table
from rich.text import Text
from sqlalchemy import Connection

from archiver.access import grants, users
from archiver.access.login import first_start, totp
from archiver.access.principal import LOCAL_OPERATOR
from archiver.access.users import User
from archiver.cli.terminal.archive import archive_for
from archiver.cli.terminal.output import Json, console, messages, print_json
from archiver.db.states import UserRole
from archiver.errors import UsageError
from archiver.maintenance.snapshot import save_config

app = typer.Typer(no_args_is_help=True, help="Manage who can sign in, and which mail they can see.")

UserName = Annotated[str, typer.Argument(metavar="EMAIL", help="The user's address, or id.")]
_PASSWORD_HELP = "The password is read from a prompt or the first line of standard input, never from an argument."  # noqa: S105


def _password() -> str:
    if sys.stdin.isatty():
        return str(typer.prompt("password", hide_input=True, confirmation_prompt=True, err=True))
    password = sys.stdin.readline().rstrip("\n")
    if not password:
        raise UsageError("pass the password on standard input, or run this command in a terminal")
    return password


@contextmanager
def _transaction() -> Iterator[Connection]:
    with archive_for("user") as archive:
        with archive.engine.begin() as connection:
            yield connection
        save_config(archive.engine, archive.archive)


@app.command("add", help=f"Add a user. {_PASSWORD_HELP}")
def add(
    email: Annotated[str, typer.Argument(metavar="EMAIL", help="Their address. They can read the mailboxes of this address.")],
    name: Annotated[str | None, typer.Option(help="Their name.")] = None,
    role: Annotated[
        UserRole, typer.Option(help="administrator, auditor (reads all, changes nothing) or user.")
    ] = UserRole.USER,
    no_password: Annotated[bool, typer.Option("--no-password", help="Sign-in by OIDC only.")] = False,
    own_mail: Annotated[
        bool, typer.Option("--own-mail", help="An administrator of their own mail: they can read the sources they add.")
    ] = False,
    json: Json = False,
) -> None:
    password = None if no_password else _password()
    with archive_for("user") as archive:
        with archive.engine.begin() as connection:
            user = users.add(
                connection,
                LOCAL_OPERATOR,
                email,
                role=role,
                name=name,
                password=password,
                settings={"own_mail": own_mail} if own_mail else {},
            )
        first_start.delete_token(archive.settings)
        save_config(archive.engine, archive.archive)
    _report(json, user, f"{user.email} was added as {user.role}.")


@app.command("list")
def list_(json: Json = False) -> None:
    """List all users."""
    with archive_for("user") as archive, archive.engine.connect() as connection:
        found = users.list_users(connection, limit=10_000)
    if json:
        return print_json({"users": [_shape(user) for user in found]})
    if not found:
        return console.print("No users yet. `archiver user add EMAIL --role administrator` adds one.")
    table = Table(box=None, pad_edge=False, header_style="dim")
    for heading in ("email", "name", "role", "second factor", "last sign-in", ""):
        table.add_column(heading)
    for user in found:
        seen = f"{user.last_sign_in_at:%Y-%m-%d %H:%M}" if user.last_sign_in_at else "never"
        marks = [mark for mark, on in (("reads all", user.may_read_all), ("disabled", user.disabled_at)) if on]
        second = "on" if user.totp_confirmed_at else "off"
        table.add_row(user.email, user.name or "", user.role, second, seen, Text(", ".join(marks), style="yellow"))
    return console.print(table)


@app.command("show")
def show(email: UserName, json: Json = False) -> None:
    """Show one user and their grants."""
    with archive_for("user") as archive, archive.engine.connect() as connection:
        user = users.find(connection, email)
        found = grants.list_grants(connection, user.id)
    if json:
        return print_json(
            {**_shape(user), "grants": [{"id": grant.id, **grant.target, "may_ingest": grant.may_ingest} for grant in found]}
        )
    console.print(f"{user.email}  {user.role}", markup=False)
    for grant in found:
        kind, target = next(iter(grant.target.items()))
        console.print(f"  can read {kind} {target}", markup=False)
    return None


@app.command("reset-password", help=f"Set a new password and sign the user out everywhere. {_PASSWORD_HELP}")
def reset_password(
    email: UserName,
    second_factor: Annotated[bool, typer.Option("--second-factor", help="Turn off their second factor as well.")] = False,
    json: Json = False,
) -> None:
    password = _password()
    with _transaction() as connection:
        user = users.find(connection, email)
        users.set_password(connection, LOCAL_OPERATOR, user, password)
        if second_factor:
            totp.disable(connection, LOCAL_OPERATOR, user.id)
    _report(json, user, f"{user.email} has a new password and was signed out everywhere.")


@app.command("role")
def role(
    email: UserName, role: Annotated[UserRole, typer.Argument(help="administrator, auditor or user.")], json: Json = False
) -> None:
    """Change a user's role."""
    _change(json, email, f"is now {role}.", role=role)


@app.command("disable")
def disable(email: UserName, json: Json = False) -> None:
    """Disable a user: they are signed out and can't sign in. Their mail stays."""
    _change(json, email, "was disabled.", disabled=True)


@app.command("enable")
def enable(email: UserName, json: Json = False) -> None:
    """Enable a disabled user."""
    _change(json, email, "was enabled.", disabled=False)


@app.command("read-all")
def read_all(
    email: UserName, off: Annotated[bool, typer.Option("--off", help="Withdraw the right.")] = False, json: Json = False
) -> None:
    """Allow a user to read all mail in the archive."""
    _change(json, email, "can now read their own mail only." if off else "can now read all mail.", may_read_all=not off)


@app.command("restore")
def may_restore(
    email: UserName, off: Annotated[bool, typer.Option("--off", help="Withdraw the right.")] = False, json: Json = False
) -> None:
    """Allow a user to restore mail into their own mailboxes."""
    outcome = "can no longer restore mail." if off else "can now restore mail into their own mailboxes."
    _change(json, email, outcome, may_restore=not off)


@app.command("remove")
def remove(
    email: UserName,
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask for confirmation.")] = False,
    json: Json = False,
) -> None:
    """Remove a user with their login sessions, API keys and grants. Mail and sources stay."""
    if not yes:
        typer.confirm(f"Remove the user {email}?", abort=True, err=True)
    with _transaction() as connection:
        user = users.find(connection, email)
        users.remove(connection, LOCAL_OPERATOR, user)
    _report(json, user, f"{user.email} was removed.")


@app.command("grant")
def grant(
    email: UserName,
    mailbox: Annotated[str | None, typer.Option(help="A mailbox, by address or id.")] = None,
    pattern: Annotated[str | None, typer.Option(help="Addresses, such as *@sales.example.org.")] = None,
    source: Annotated[str | None, typer.Option(help="All mailboxes of a source, by name or id.")] = None,
    ingest: Annotated[bool, typer.Option("--ingest", help="Also allow them to submit messages (POST /messages).")] = False,
    json: Json = False,
) -> None:
    """Allow a user to read a mailbox, all mailboxes that match a pattern, or all mailboxes of a source."""
    outcome = "can read and submit to" if ingest else "can read"
    _grant(json, email, partial(grants.add, may_ingest=ingest), outcome, mailbox, pattern, source)


@app.command("revoke")
def revoke(
    email: UserName,
    mailbox: Annotated[str | None, typer.Option(help="A mailbox, by address or id.")] = None,
    pattern: Annotated[str | None, typer.Option(help="The address pattern that was granted.")] = None,
    source: Annotated[str | None, typer.Option(help="A source, by name or id.")] = None,
    json: Json = False,
) -> None:
    """Revoke a grant."""
    _grant(json, email, grants.remove_target, "can no longer read", mailbox, pattern, source)


def _grant(
    json: bool, email: str, act: Callable[..., Any], outcome: str, mailbox: str | None, pattern: str | None, source: str | None
) -> None:
    with _transaction() as connection:
        user = users.find(connection, email)
        target = grants.find_target(connection, mailbox=mailbox, pattern=pattern, source=source)
        act(connection, LOCAL_OPERATOR, user, target)
    _report(json, user, f"{user.email} {outcome} {mailbox or pattern or source}.")


def _change(json: bool, email: str, outcome: str, **changes: Any) -> None:
    with _transaction() as connection:
        user = users.change(connection, LOCAL_OPERATOR, users.find(connection, email), **changes)
    _report(json, user, f"{user.email} {outcome}")


def _shape(user: User) -> dict[str, Any]:
    shown = (
        "id",
        "email",
        "name",
        "role",
        "may_read_all",
        "may_restore",
        "address_verified_at",
        "created_at",
        "last_sign_in_at",
        "disabled_at",
    )
    return {**{field: getattr(user, field) for field in shown}, "second_factor": user.totp_confirmed_at is not None}


def _report(json: bool, user: User, sentence: str) -> None:
    print_json({"user": _shape(user), "message": sentence}) if json else messages.print(sentence, markup=False)
