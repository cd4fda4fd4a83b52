"""Browser sign-in, for sources that belong to one person."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol


class BrowserSignIn(Protocol):
    """One sign-in attempt. Raises the errors of connectors.errors."""

    def start_in_browser(self, redirect_uri: str) -> str:
        """The URL to open. Afterwards the browser is redirected to `redirect_uri`, with the result in its query."""

    def complete_in_browser(self, query: Mapping[str, str]) -> dict[str, str]:
        """The secrets of the source, for the query of the redirect. The redirect of another sign-in is rejected."""

    def save(self) -> dict[str, Any]:
        """What another process needs to complete it, as JSON. Contains secrets, and `state`, which the redirect returns."""

    def restore(self, saved: Mapping[str, Any]) -> None: ...

    def close(self) -> None: ...


class DeviceSignIn(BrowserSignIn, Protocol):
    """A sign-in that also works with a code entered on any device with a browser."""

    def start_on_device(self) -> tuple[str, str]:
        """The URL to open, and the code to enter there."""

    def poll_on_device(self) -> dict[str, str] | None:
        """The secrets of the source; None while the code has not been entered yet."""

    def complete_on_device(self) -> dict[str, str]:
        """Waits until the code has been entered, or has expired, and returns the secrets of the source."""
