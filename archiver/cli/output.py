"""Printing: results to standard output (with `--json` one object and nothing else), everything else to standard error."""

from __future__ import annotations

import json
import sys
from typing import Annotated, Any

import typer
from rich.console import Console

Json = Annotated[bool, typer.Option("--json", help="Print one JSON object, and nothing else, on standard output.")]

console = Console(highlight=False)
messages = Console(stderr=True, highlight=False)


def print_json(value: Any) -> None:
    sys.stdout.write(json.dumps(value, indent=2 if sys.stdout.isatty() else None, default=str) + "\n")
    sys.stdout.flush()
