"""`archiver up`: runs everything in one terminal."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Annotated

import typer

from archiver.cli.terminal.output import console, messages
from archiver.config import load_settings


def up(
    while_used: Annotated[
        bool, typer.Option("--while-used", hidden=True, help="Only the servers, as long as a command uses them.")
    ] = False,
) -> None:
    """Start everything and show its state. Ctrl-C stops it cleanly, a second Ctrl-C kills it."""
    from archiver.supervisor.run import run_stack

    run_stack(load_settings(), console, messages, while_used=while_used, when_ready=_welcome)


def _welcome(addresses: Mapping[str, str], page: str) -> str | None:
    """While there is no user: how to create the first one."""
    from archiver.access.login import first_start
    from archiver.db.engine import DATABASE_ERRORS, make_engine

    settings = load_settings({**os.environ, **addresses})
    assert settings.database_url is not None
    engine = make_engine(settings.database_url.get_secret_value(), "up", pool_size=1)
    try:
        notice = first_start.announcement(engine, settings, page)
    except DATABASE_ERRORS:
        return None  # Postgres was ready a moment ago; whatever it is, the supervisor reports it
    finally:
        engine.dispose()
    return notice and f"{notice}\n"
