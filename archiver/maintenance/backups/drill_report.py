"""What a drill found."""

from __future__ import annotations

from dataclasses import dataclass

from archiver.errors import ArchiverError


@dataclass(frozen=True, slots=True)
class DrillCheck:
    name: str
    ok: bool
    detail: str
    """For people: what was compared, or what is wrong."""


class DrillFailed(ArchiverError):
    """The backup could not be restored as it should; the report says what is wrong."""
