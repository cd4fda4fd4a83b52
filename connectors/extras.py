"""Packages that only some sources need, and that a small installation leaves out (the extras in pyproject.toml)."""

from __future__ import annotations

from importlib import import_module
from importlib.util import find_spec
from types import ModuleType
from typing import Any

from connectors.errors import ConnectorError

PACKAGES = {"google": ("google.auth", "googleapiclient"), "microsoft": ("msal",)}


class ExtraMissing(ConnectorError):
    """The packages of an extra are not installed."""


def missing_extra(extra: str | None) -> str | None:
    """What to tell the user if a package of this extra is not installed; None if everything is there."""
    if extra is None or all(_is_installed(name) for name in PACKAGES[extra]):
        return None
    return f"it needs packages that are not installed: install Archiver with the extra {extra!r} or 'all'"


def _is_installed(name: str) -> bool:
    try:
        return find_spec(name) is not None
    except ModuleNotFoundError:  # of a package around it
        return False


class LazyModule(ModuleType):
    """Loaded at the first use: most processes never talk to these sources."""

    def __init__(self, name: str, extra: str = "all") -> None:
        super().__init__(name)
        self._extra = extra

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        try:
            return getattr(import_module(self.__name__), name)
        except ModuleNotFoundError as error:
            raise ExtraMissing(
                f"the package {self.__name__} is not installed: install Archiver with the extra {self._extra!r}"
            ) from error
