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
