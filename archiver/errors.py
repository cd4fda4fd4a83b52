"""Errors that users see, ordered by what they should do about them."""


class ArchiverError(Exception):
    """Base class. The text is one complete line that names the cause, without secrets."""

    exit_code = 1


class UsageError(ArchiverError):
    """The request is invalid; changing it helps."""

    exit_code = 2


class ConfigError(UsageError):
    """A setting has to be changed. Names the variable, its value and the allowed values."""


class DataFolderError(ArchiverError):
    """The data folder can't be used in its current state."""


class InUse(ArchiverError):
    """Another process holds a required resource (a lock, a port). Names the holder if it is known."""


class NotReady(ArchiverError):
    """A required server does not respond; trying again later helps."""


class SchemaError(ArchiverError):
    """The database schema does not match this version of the program."""


class WrongKey(ArchiverError):
    """An encryption key is missing, or is not the one that the data was sealed with."""


class NotFound(UsageError):
    """The object does not exist, or the caller may not know that it does: both give the same error."""


class Conflict(UsageError):
    """The request conflicts with the current state; reloading that state helps."""


class NotSignedIn(ArchiverError):
    """The caller is not signed in, or no longer. Never reveals which of the credentials was wrong."""


class NotAllowed(ArchiverError):
    """The caller is signed in, but lacks the right for this."""


class TooMany(ArchiverError):
    """Too many requests, or no space: the same request may succeed after `retry_after_seconds`."""

    def __init__(self, text: str, retry_after_seconds: int) -> None:
        super().__init__(text)
        self.retry_after_seconds = max(1, retry_after_seconds)


def no_postgres(error: BaseException) -> NotReady:
    """libpq lists every address that it tried; the reason is in the last line."""
    return NotReady(f"postgres does not answer: {(str(error).strip().splitlines() or [type(error).__name__])[-1]}")
