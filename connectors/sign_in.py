"""Signing in with a browser, for sources that belong to one person."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol


class SignIn(Protocol):
    """One attempt. Raises the errors of connectors.errors."""

    def in_browser(self, redirect_uri: str) -> str:
        """The address to be opened. Afterwards the browser is sent to `redirect_uri`, with the answer in its query."""

    def answered(self, query: Mapping[str, str]) -> dict[str, str]:
        """The secrets of the source, for what the browser brought back. An answer to another question than ours is refused."""

    def close(self) -> None: ...


class DeviceSignIn(SignIn, Protocol):
    """One that also takes a code, entered on any device that has a browser."""

    def on_device(self) -> tuple[str, str]:
        """The address to be opened, and the code to be entered there."""

    def entered(self) -> dict[str, str]:
        """Waits until somebody has entered it, or it has expired: the secrets of the source."""
