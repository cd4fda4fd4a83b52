"""Whether what protects mail can be undone by one person, or needs a second one (TWO_PERSON_APPROVAL)."""

from __future__ import annotations

from sqlalchemy import Connection, text

from archiver.config import Settings

_ADMINISTRATORS = text("SELECT count(*) FROM users WHERE role = 'administrator' AND disabled_at IS NULL")


def needs_second_person(connection: Connection, settings: Settings) -> bool:
    """`auto`: as soon as there are two administrators."""
    if settings.two_person_approval != "auto":
        return settings.two_person_approval == "on"
    return bool(connection.execute(_ADMINISTRATORS).scalar_one() > 1)
