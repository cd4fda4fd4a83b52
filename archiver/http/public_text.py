"""Removes server paths from texts that remote users see."""

from __future__ import annotations

import os
import re
from dataclasses import replace
from functools import cache
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

    Shown = TypeVar("Shown", bound=DataclassInstance)

_PATH = re.compile(r"""(?<![\w.:/-])/[^\s'"`<>|:;,()\[\]]+""")


def without_paths(text: str) -> str:
    """Shortens each server path to its last component. Other words with a slash (mail folders, routes) stay."""
    return _PATH.sub(_shorten, text)


def without_paths_in(item: Shown, field: str) -> Shown:
    """The same item, with that text of it for people."""
    text = getattr(item, field)
    return replace(item, **{field: without_paths(text)}) if text else item


def _shorten(match: re.Match[str]) -> str:
    path = match[0]
    return f"…/{path.rstrip('/').rpartition('/')[2]}" if path.split("/")[1] in _roots() else path


@cache
def _roots() -> frozenset[str]:
    """The first components that server paths can have."""
    return frozenset(os.listdir("/"))  # noqa: PTH208  (names, not paths)
