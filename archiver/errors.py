"""Errors that a person sees, ordered by what the one who sees them should do."""


class ArchiverError(Exception):
    """Something failed and is named. The text is one line, complete, and free of secrets."""

    exit_code = 1


class UsageError(ArchiverError):
    """The caller asked for something that makes no sense; asking differently helps."""

    exit_code = 2


class ConfigError(UsageError):
    """A setting has to be changed. Names the variable, what was given and what is allowed."""


class DataFolderError(ArchiverError):
    """The data folder can't be used as it is."""


class InUse(ArchiverError):
    """Somebody else holds what we need (a lock, a port). Names the holder where it is known."""


class NotReady(ArchiverError):
    """A server that we need does not answer; trying again later helps."""


class SchemaError(ArchiverError):
    """The database's schema and this version of the program do not fit."""


class WrongKey(ArchiverError):
    """An encryption key is missing or is not the one that the data was sealed with."""


class NotFound(UsageError):
    """There is no such thing, or the one who asks may not know of it: both are told alike."""


class Conflict(UsageError):
    """It can't be done as things stand; looking at them again helps."""


class NotSignedIn(ArchiverError):
    """Nobody is signed in, or not any more. Never says which of the given things was wrong."""


class NotAllowed(ArchiverError):
    """The one who asks is known, and may not do this."""


class TooMany(ArchiverError):
    """Asked too often, or there is no room: the same again after `retry_after_seconds` may work."""

    def __init__(self, text: str, retry_after_seconds: int) -> None:
        super().__init__(text)
        self.retry_after_seconds = max(1, retry_after_seconds)
