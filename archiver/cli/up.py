"""`archiver up`: everything, in one terminal."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Annotated

import typer

from archiver.cli.output import console, messages
from archiver.config import load_settings
from archiver.errors import ArchiverError


def up(
    while_used: Annotated[
        bool, typer.Option("--while-used", hidden=True, help="Servers only, and only as long as a command holds them.")
    ] = False,
) -> None:
    """Start everything and show how it goes. Ctrl-C stops it cleanly, a second one at once."""
    from archiver.stack.run import run_stack

    run_stack(load_settings(), console, messages, while_used=while_used, when_ready=_welcome)


def _welcome(addresses: Mapping[str, str], page: str) -> str | None:
    """As long as there is no user: how to become the first one."""
    from archiver.db import make_engine
    from archiver.services import first_start, schema

    settings = load_settings({**os.environ, **addresses})
    assert settings.database_url is not None
    engine = make_engine(settings.database_url.get_secret_value(), "up", pool_size=1)
    try:
        with schema.connect(engine) as connection:
            if not first_start.needed(connection):
                return None
    except ArchiverError:
        return None  # it has just been ready; whatever it is, the supervisor sees it
    finally:
        engine.dispose()
    return (
        f"There is no user yet. Make the first administrator at {page}/welcome with this token, which works once:\n\n"
        f"    {first_start.new_token(settings)}\n\n"
        "or with `archiver user add EMAIL --role administrator`. Until then everything is closed.\n"
    )
