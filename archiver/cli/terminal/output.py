"""Printing: results to standard output (with `--json` one object and nothing else), everything else to standard error."""

from __future__ import annotations

import json
import sys
from typing import Annotated, Any

import typer
from rich.console import Console

Json = Annotated[bool, typer.Option("--json", help="Print a single JSON object to standard output.")]

_PIPED_WIDTH = 200  # output to a pipe or a file is not wrapped to the width of a terminal
console = Console(highlight=False, width=None if sys.stdout.isatty() else _PIPED_WIDTH)
messages = Console(stderr=True, highlight=False, width=None if sys.stderr.isatty() else _PIPED_WIDTH)


def print_json(value: Any) -> None:
    sys.stdout.write(json.dumps(value, indent=2 if sys.stdout.isatty() else None, default=str) + "\n")
    sys.stdout.flush()
