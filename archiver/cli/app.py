"""The commands and their order in `--help`."""

from __future__ import annotations

import sys
from typing import Annotated, Any

import typer

from archiver import __version__
from archiver.cli.backup import backup, restore
from archiver.cli.care import compact, keys_app, rebuild, verify
from archiver.cli.dead_letters import app as dead_letters_app
from archiver.cli.doctor import doctor
from archiver.cli.mail import delete, export, show
from archiver.cli.servers import migrate, search_server, web
from archiver.cli.source import app as source_app
from archiver.cli.status import status
from archiver.cli.up import up
from archiver.errors import ArchiverError

app = typer.Typer(
    name="archiver",
    no_args_is_help=True,
    rich_markup_mode="rich",
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
    epilog="Settings come from environment variables and .env; .env.example lists them all.",
)
for function in (
    up, status, show, export, delete, verify, rebuild, compact, backup,
    restore, doctor, migrate, web, search_server,
):  # fmt: skip
    app.command(function.__name__.replace("_", "-"))(function)

app.add_typer(source_app, name="source")
app.add_typer(dead_letters_app, name="dead-letters")
app.add_typer(keys_app)


def _version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"archiver {__version__}")
        raise typer.Exit


@app.callback()
def _root(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Show the version and leave.")
    ] = False,
) -> None:
    """A self-hosted email archive: nothing lost silently, every message kept byte for byte, found in milliseconds."""


def main() -> Any:
    try:
        return app()
    except ArchiverError as error:
        for line in str(error).splitlines():
            sys.stderr.write(f"archiver: {line}\n")
        sys.exit(error.exit_code)
    except BrokenPipeError:  # `archiver … | head`
        sys.stderr.close()
        sys.exit(0)
