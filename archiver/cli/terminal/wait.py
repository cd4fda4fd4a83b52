"""`--wait` and `--wait=full`: an option whose value may be left out, which Typer has no word for."""

from __future__ import annotations

from typing import Annotated, Any

import typer
from typer.core import TyperCommand, TyperOption

from archiver.errors import UsageError

_OPTION, _BODY, _FULL = "--wait", "body", "full"

Wait = Annotated[
    str,
    typer.Option(
        _OPTION,
        metavar="[=full]",
        help="Follow it until its mail can be found, with a bar and a report; with --wait=full until its attachments can, too.",
    ),
]


class CommandWithWait(TyperCommand):
    """Reads a bare `--wait` as `--wait=body`, for commands whose `--wait` takes a value."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        if any(isinstance(option, TyperOption) and _OPTION in option.opts and not option.is_flag for option in self.params):
            end = args.index("--") if "--" in args else len(args)
            args = [f"{_OPTION}={_BODY}" if word == _OPTION else word for word in args[:end]] + args[end:]
        return super().parse_args(ctx, args)


def is_full(wait: str) -> bool:
    """Whether attachments are waited for, too."""
    if wait not in ("", _BODY, _FULL):
        raise UsageError(f"--wait={wait}: expected --wait or --wait=full")
    return wait == _FULL
