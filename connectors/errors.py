"""The errors of a source, ordered by what the caller should do about them."""

from __future__ import annotations

_MAX_CHARS = 300


class ConnectorError(Exception):
    """Base class. The text is one line, written for the owner of the source, and contains no secrets."""


class AuthFailed(ConnectorError):
    """The server rejects the credentials. Retrying with the same ones may lock the account: the owner has to change them."""


class Throttled(ConnectorError):
    """The server asks for a pause. Continue after `retry_after_seconds`."""

    def __init__(self, message: str, retry_after_seconds: float) -> None:
        super().__init__(message)
        self.retry_after_seconds = retry_after_seconds


class Unavailable(ConnectorError):
    """No connection, a timeout, or a server error. A later attempt may succeed."""


class StateLost(ConnectorError):
    """The server no longer accepts our cursor. Restart this folder or, if `folder` is None, this mailbox."""

    def __init__(self, message: str, folder: str | None = None) -> None:
        super().__init__(message)
        self.folder = folder


def first_line(error: BaseException) -> str:
    """What an error says, in one line of at most 300 characters; the name of its class if it says nothing."""
    text = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
    lines = text.strip().splitlines()
    return lines[0][:_MAX_CHARS] if lines else type(error).__name__
