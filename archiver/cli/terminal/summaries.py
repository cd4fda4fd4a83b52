"""What each command is for, read from the text of its module: `archiver --help` imports none of them."""

from __future__ import annotations

import re
from pathlib import Path
from textwrap import dedent

_ROOT = Path(__file__).parents[3]
_FUNCTION = r'^def {name}\((?:(?!^def ).)*?\) -> [^\n]*:\n    """(.*?)"""'
_GROUP = r'^{name} = typer\.Typer\((?:[^)]*?)help="([^"]*)"'


def summary(target: str) -> str:
    """The help of `package.module:name`, which is a function or a group of commands."""
    module, _, name = target.partition(":")
    source = (_ROOT / f"{module.replace('.', '/')}.py").read_text()
    for pattern in (_FUNCTION, _GROUP):
        if found := re.search(pattern.format(name=name), source, re.DOTALL | re.MULTILINE):
            return dedent(f"    {found[1]}").strip()
    return ""
