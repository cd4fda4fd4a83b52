"""`archiver up`: everything, in one terminal."""

from __future__ import annotations

from typing import Annotated

import typer

from archiver.cli.output import console, messages
from archiver.config import load_settings


def up(
    while_used: Annotated[
        bool, typer.Option("--while-used", hidden=True, help="Servers only, and only as long as a command holds them.")
    ] = False,
) -> None:
    """Start everything and show how it goes. Ctrl-C stops it cleanly, a second one at once."""
    from archiver.stack.run import run_stack

    run_stack(load_settings(), console, messages, while_used=while_used)
