"""The commands and their order in `--help`.

Only the module of the command that was asked for is imported: what `archiver status` needs should not wait for what
`archiver rebuild` needs.
"""

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import Iterable
from typing import Annotated, Any

import typer

from archiver import __version__
from archiver.errors import ArchiverError, NotReady

COMMANDS = {
    "up": "archiver.cli.up:up",
    "demo": "archiver.cli.demo:demo",
    "status": "archiver.cli.status:status",
    "import": "archiver.cli.import_:import_",
    "imports": "archiver.cli.imports:app",
    "source": "archiver.cli.source:app",
    "search": "archiver.cli.search:search",
    "show": "archiver.cli.mail:show",
    "export": "archiver.cli.mail:export",
    "delete": "archiver.cli.mail:delete",
    "dead-letters": "archiver.cli.dead_letters:app",
    "user": "archiver.cli.user:app",
    "audit": "archiver.cli.audit:app",
    "verify": "archiver.cli.care:verify",
    "rebuild": "archiver.cli.care:rebuild",
    "reindex": "archiver.cli.reindex:reindex",
    "compact": "archiver.cli.care:compact",
    "backup": "archiver.cli.backup:backup",
    "restore": "archiver.cli.backup:restore",
    "keys": "archiver.cli.care:keys_app",
    "doctor": "archiver.cli.doctor:doctor",
    "migrate": "archiver.cli.servers:migrate",
    "web": "archiver.cli.servers:web",
    "search-server": "archiver.cli.servers:search_server",
}


def build(names: Iterable[str] = tuple(COMMANDS)) -> typer.Typer:
    app = typer.Typer(
        name="archiver",
        no_args_is_help=True,
        rich_markup_mode="rich",
        pretty_exceptions_enable=False,
        context_settings={"help_option_names": ["-h", "--help"]},
        epilog="Settings come from environment variables and .env; .env.example lists them all.",
    )
    app.callback()(_root)
    for name in names:
        module, attribute = COMMANDS[name].split(":")
        found = getattr(importlib.import_module(module), attribute)
        app.add_typer(found, name=name) if isinstance(found, typer.Typer) else app.command(name)(found)
    return app


def _version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"archiver {__version__}")
        raise typer.Exit


def _root(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Show the version and leave.")
    ] = False,
) -> None:
    """A self-hosted email archive: nothing lost silently, every message kept byte for byte, found in milliseconds."""


def main() -> Any:
    os.umask(0o077)  # whatever we or the servers that we start write is for our own user only
    asked = next((word for word in sys.argv[1:] if not word.startswith("-")), None)
    if asked in COMMANDS and "_ARCHIVER_COMPLETE" not in os.environ:
        names: tuple[str, ...] = (asked,)
    else:
        names = () if sys.argv[1:] == ["--version"] else tuple(COMMANDS)
    try:
        return build(names)()
    except ArchiverError as error:
        for line in str(error).splitlines():
            sys.stderr.write(f"archiver: {line}\n")
        sys.exit(error.exit_code)
    except BrokenPipeError:  # `archiver … | head`
        sys.stderr.close()
        sys.exit(0)
    except Exception as error:
        if not _is_lost_database(error):
            raise
        first = str(getattr(error, "orig", error)).strip().splitlines()[0]
        sys.stderr.write(f"archiver: the database went away ({first}). What was begun goes on when it is back.\n")
        sys.exit(NotReady.exit_code)


def _is_lost_database(error: Exception) -> bool:
    """(By name: SQLAlchemy is not imported for commands that do without it.)"""
    return type(error).__module__.startswith("sqlalchemy") and type(error).__name__ in ("OperationalError", "InterfaceError")
