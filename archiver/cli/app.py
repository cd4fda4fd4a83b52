"""The commands and their order in `--help`.

Only the module of the requested command is imported, so that `archiver status` does not wait for the libraries of
`archiver rebuild`.
"""

from __future__ import annotations

import gc
import importlib
import os
import sys
from collections.abc import Sequence
from typing import Annotated, Any

import typer

from archiver import __version__
from archiver.cli.terminal.summaries import summary
from archiver.cli.terminal.wait import CommandWithWait
from archiver.errors import ArchiverError, NotReady

COMMANDS = {
    "up": "archiver.cli.start.up:up",
    "demo": "archiver.cli.start.demo:demo",
    "status": "archiver.cli.operate.status:status",
    "import": "archiver.cli.sources.import_:import_",
    "imports": "archiver.cli.sources.imports:app",
    "source": "archiver.cli.sources.source:app",
    "search": "archiver.cli.mail.search:search",
    "show": "archiver.cli.mail.messages:show",
    "export": "archiver.cli.mail.messages:export",
    "verify-export": "archiver.cli.mail.exports:verify_export",
    "signing-key": "archiver.cli.mail.exports:signing_key",
    "conversation": "archiver.cli.mail.conversation:app",
    "delete": "archiver.cli.mail.messages:delete",
    "hold": "archiver.cli.rules.hold:app",
    "label": "archiver.cli.rules.label:app",
    "policy": "archiver.cli.rules.policy:app",
    "erasure": "archiver.cli.rules.erasure:app",
    "dead-letters": "archiver.cli.operate.dead_letters:app",
    "queue": "archiver.cli.operate.queue:app",
    "alerts": "archiver.cli.operate.alerts:app",
    "user": "archiver.cli.rules.user:app",
    "audit": "archiver.cli.rules.audit:app",
    "verify": "archiver.cli.maintenance.store:verify",
    "rebuild": "archiver.cli.maintenance.store:rebuild",
    "reindex": "archiver.cli.maintenance.reindex:reindex",
    "compact": "archiver.cli.maintenance.store:compact",
    "backup": "archiver.cli.maintenance.backup:backup",
    "drill": "archiver.cli.maintenance.drill:drill",
    "restore": "archiver.cli.maintenance.backup:restore",
    "keys": "archiver.cli.maintenance.store:keys_app",
    "doctor": "archiver.cli.operate.doctor:doctor",
    "support-bundle": "archiver.cli.operate.support_bundle:support_bundle",
    "init": "archiver.cli.start.init:init",
    "service": "archiver.cli.start.service:app",
    "migrate": "archiver.cli.start.servers:migrate",
    "web": "archiver.cli.start.servers:web",
    "worker": "archiver.cli.start.servers:worker",
    "journal": "archiver.cli.start.servers:journal",
    "search-server": "archiver.cli.start.servers:search_server",
}
_SHORT = frozenset({"search", "show"})


def build(names: Sequence[str] = tuple(COMMANDS)) -> typer.Typer:
    """The commands of these names; without names all of them, but only with what `--help` says of each."""
    app = typer.Typer(
        name="archiver",
        no_args_is_help=True,
        rich_markup_mode="rich",
        pretty_exceptions_enable=False,
        context_settings={"help_option_names": ["-h", "--help"]},
        epilog="Settings come from environment variables and .env; .env.example lists them all.",
    )
    app.callback()(_root)
    for name in () if names else COMMANDS:
        app.command(name, help=summary(COMMANDS[name]))(lambda: None)
    for name in names:
        module, attribute = COMMANDS[name].split(":")
        found = getattr(importlib.import_module(module), attribute)
        app.add_typer(found, name=name) if isinstance(found, typer.Typer) else app.command(name, cls=CommandWithWait)(found)
    return app


def _version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"archiver {__version__}")
        raise typer.Exit


def _root(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version and exit.")
    ] = False,
) -> None:
    """A self-hosted email archive: nothing lost silently, every message stored byte for byte and found in milliseconds."""


def main() -> Any:
    os.umask(0o077)  # files that this process or the servers it starts write are for their owner only
    requested = next((word for word in sys.argv[1:] if not word.startswith("-")), None)
    names: tuple[str, ...] = (requested,) if requested in COMMANDS else ()
    if "_ARCHIVER_COMPLETE" in os.environ:
        names = tuple(COMMANDS)
    if requested in _SHORT or not names:
        gc.disable()  # they end before there is anything to collect, and load many modules: a tenth of their time
    if names and requested not in _SHORT:
        from archiver.logs import log_problems_only

        log_problems_only()
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
        from connectors.errors import first_line

        first = first_line(getattr(error, "orig", error))
        sys.stderr.write(
            f"archiver: lost the connection to the database ({first}). Run the command again when the database is back.\n"
        )
        sys.exit(NotReady.exit_code)


def _is_lost_database(error: Exception) -> bool:
    """By name, because commands that need no database do not import SQLAlchemy."""
    return type(error).__module__.startswith("sqlalchemy") and type(error).__name__ in ("OperationalError", "InterfaceError")
