"""Texts for people who are not on the server: without the places where its files are."""

from __future__ import annotations

import os
import re
from functools import cache

_PATH = re.compile(r"""(?<![\w.:/-])/[^\s'"`<>|:;,()\[\]]+""")


def without_paths(text: str) -> str:
    """Each path of this server is shortened to its last name. Other words with a slash (folders of mail, routes) stay."""
    return _PATH.sub(_shortened, text)


def _shortened(match: re.Match[str]) -> str:
    path = match[0]
    return f"…/{path.rstrip('/').rpartition('/')[2]}" if path.split("/")[1] in _roots() else path


@cache
def _roots() -> frozenset[str]:
    """What paths of this server can begin with."""
    return frozenset(os.listdir("/"))  # noqa: PTH208  (names, not paths)
