"""What can go wrong at a source, ordered by what the caller should do about it."""

from __future__ import annotations


class ConnectorError(Exception):
    """Base of all. The text is one line, for the one who owns the source, and free of secrets."""


class AuthFailed(ConnectorError):
    """The server refuses the credentials. Trying again with the same ones may lock the account: somebody has to edit them."""


class Throttled(ConnectorError):
    """The server asks for a pause. Go on after `retry_after_seconds`."""

    def __init__(self, message: str, retry_after_seconds: float) -> None:
        super().__init__(message)
        self.retry_after_seconds = retry_after_seconds


class Unavailable(ConnectorError):
    """No connection, a time-out, a server error. Later it may work."""


class StateLost(ConnectorError):
    """The server no longer accepts where we were. Start this folder (or, with `folder` None, this mailbox) again."""

    def __init__(self, message: str, folder: str | None = None) -> None:
        super().__init__(message)
        self.folder = folder
