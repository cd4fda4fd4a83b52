"""`archiver user …`: who may sign in, and what they may see."""

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

from archiver.cli.archive import opened
from archiver.cli.output import Json, console, messages, print_json
from archiver.errors import UsageError
from archiver.models.states import Role
from archiver.services import first_start, grants, totp, users
from archiver.services.principal import LOCAL_OPERATOR
from archiver.services.snapshot import save_config
from archiver.services.users import User

app = typer.Typer(no_args_is_help=True, help="Who may sign in, and what they may see.")

Who = Annotated[str, typer.Argument(metavar="EMAIL", help="The user's address, or id.")]
_PASSWORD_HELP = "Asked for, or the first line of standard input. Never given as an argument."  # noqa: S105


def _password() -> str:
    if sys.stdin.isatty():
        return str(typer.prompt("password", hide_input=True, confirmation_prompt=True, err=True))
    password = sys.stdin.readline().rstrip("\n")
    if not password:
        raise UsageError("give the password on standard input, or run this in a terminal")
    return password


@contextmanager
def _changing() -> Iterator[Connection]:
    with opened("user") as archive:
        with archive.engine.begin() as connection:
            yield connection
        save_config(archive.engine, archive.archive)


@app.command("add", help=f"Add a user. The password: {_PASSWORD_HELP}")
def add(
    email: Annotated[str, typer.Argument(metavar="EMAIL", help="Their address. Mailboxes of this address are theirs to read.")],
    name: Annotated[str | None, typer.Option(help="Their name.")] = None,
    role: Annotated[Role, typer.Option(help="administrator, auditor (reads all, changes nothing) or user.")] = Role.USER,
    no_password: Annotated[bool, typer.Option("--no-password", help="They sign in by OIDC only.")] = False,
    own_mail: Annotated[
        bool, typer.Option("--own-mail", help="An administrator of their own mail: sources they add are theirs to read.")
    ] = False,
    json: Json = False,
) -> None:
    password = None if no_password else _password()
    with opened("user") as archive:
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
        first_start.forget_token(archive.settings)
        save_config(archive.engine, archive.archive)
    _tell(json, user, f"{user.email} was added as {user.role}.")


@app.command("list")
def list_(json: Json = False) -> None:
    """All users."""
    with opened("user") as archive, archive.engine.connect() as connection:
        found = users.listed(connection, most=10_000)
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
def show(email: Who, json: Json = False) -> None:
    """One user and what was granted to them."""
    with opened("user") as archive, archive.engine.connect() as connection:
        user = users.find(connection, email)
        given = grants.listed(connection, user.id)
    if json:
        return print_json(
            {**_shape(user), "grants": [{"id": one.id, **one.target, "may_ingest": one.may_ingest} for one in given]}
        )
    console.print(f"{user.email}  {user.role}", markup=False)
    for one in given:
        kind, target = next(iter(one.target.items()))
        console.print(f"  may read the {kind} {target}", markup=False)
    return None


@app.command("reset-password", help=f"Set a new password, and end all their sign-ins. {_PASSWORD_HELP}")
def reset_password(
    email: Who,
    second_factor: Annotated[bool, typer.Option("--second-factor", help="Turn their second factor off as well.")] = False,
    json: Json = False,
) -> None:
    password = _password()
    with _changing() as connection:
        user = users.find(connection, email)
        users.set_password(connection, LOCAL_OPERATOR, user, password)
        if second_factor:
            totp.disable(connection, LOCAL_OPERATOR, user.id)
    _tell(json, user, f"{user.email} has a new password, and was signed out everywhere.")


@app.command("role")
def role(email: Who, role: Annotated[Role, typer.Argument(help="administrator, auditor or user.")], json: Json = False) -> None:
    """Give another role."""
    _change(json, email, f"is {role} now.", role=role)


@app.command("disable")
def disable(email: Who, json: Json = False) -> None:
    """Let them in no more, from now on. Their mail stays."""
    _change(json, email, "is disabled.", disabled=True)


@app.command("enable")
def enable(email: Who, json: Json = False) -> None:
    """Let them in again."""
    _change(json, email, "is enabled.", disabled=False)


@app.command("read-all")
def read_all(
    email: Who, off: Annotated[bool, typer.Option("--off", help="Take the right away.")] = False, json: Json = False
) -> None:
    """Give the right to read all mail of the archive."""
    _change(json, email, "may read their own mail only." if off else "may read all mail.", may_read_all=not off)


@app.command("remove")
def remove(email: Who, yes: Annotated[bool, typer.Option("--yes", help="Do not ask.")] = False, json: Json = False) -> None:
    """Remove a user with their sessions, keys and grants. Mail and sources stay."""
    if not yes:
        typer.confirm(f"Remove the user {email}?", abort=True, err=True)
    with _changing() as connection:
        user = users.find(connection, email)
        users.remove(connection, LOCAL_OPERATOR, user)
    _tell(json, user, f"{user.email} was removed.")


@app.command("grant")
def grant(
    email: Who,
    mailbox: Annotated[str | None, typer.Option(help="A mailbox, by address or id.")] = None,
    pattern: Annotated[str | None, typer.Option(help="Addresses, such as *@sales.example.org.")] = None,
    source: Annotated[str | None, typer.Option(help="All mailboxes of a source, by name or id.")] = None,
    ingest: Annotated[bool, typer.Option("--ingest", help="Let them hand messages in, too (POST /messages).")] = False,
    json: Json = False,
) -> None:
    """Let a user read a mailbox, all whose address fits a pattern, or all of a source."""
    said = "may read and hand in for" if ingest else "may read"
    _grant(json, email, partial(grants.add, may_ingest=ingest), said, mailbox, pattern, source)


@app.command("revoke")
def revoke(
    email: Who,
    mailbox: Annotated[str | None, typer.Option(help="A mailbox, by address or id.")] = None,
    pattern: Annotated[str | None, typer.Option(help="Addresses, as they were granted.")] = None,
    source: Annotated[str | None, typer.Option(help="A source, by name or id.")] = None,
    json: Json = False,
) -> None:
    """Take a grant back."""
    _grant(json, email, grants.remove_target, "may no longer read", mailbox, pattern, source)


def _grant(
    json: bool, email: str, act: Callable[..., Any], said: str, mailbox: str | None, pattern: str | None, source: str | None
) -> None:
    with _changing() as connection:
        user = users.find(connection, email)
        target = grants.find_target(connection, mailbox=mailbox, pattern=pattern, source=source)
        act(connection, LOCAL_OPERATOR, user, target)
    _tell(json, user, f"{user.email} {said} {mailbox or pattern or source}.")


def _change(json: bool, email: str, said: str, **changes: Any) -> None:
    with _changing() as connection:
        user = users.change(connection, LOCAL_OPERATOR, users.find(connection, email), **changes)
    _tell(json, user, f"{user.email} {said}")


def _shape(user: User) -> dict[str, Any]:
    shown = (
        "id",
        "email",
        "name",
        "role",
        "may_read_all",
        "address_verified_at",
        "created_at",
        "last_sign_in_at",
        "disabled_at",
    )
    return {**{field: getattr(user, field) for field in shown}, "second_factor": user.totp_confirmed_at is not None}


def _tell(json: bool, user: User, sentence: str) -> None:
    print_json({"user": _shape(user), "message": sentence}) if json else messages.print(sentence, markup=False)
