"""A user's saved searches, stored with the account: what is new in them, and who wants to be told."""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from datetime import datetime, timedelta
from typing import Any

from sqlalchemy import Connection

from archiver.access import users
from archiver.access.users import User
from archiver.errors import NotFound, UsageError

MOST = 50
_ONE_VISIT = timedelta(minutes=10)
"""Who comes back within this time still sees as new what was new before."""


@dataclass(frozen=True, slots=True)
class SavedSearch:
    name: str
    query: str
    new_since: datetime | None = None
    """Mail that was archived later is new."""
    opened_at: datetime | None = None
    notify: bool = False
    told_until: datetime | None = None
    """Of mail that was archived until then the user has been told."""


def of(user: User) -> list[SavedSearch]:
    return [
        SavedSearch(
            str(one["name"]),
            str(one["query"]),
            _moment(one.get("new_since")),
            _moment(one.get("opened_at")),
            one.get("notify") is True,
            _moment(one.get("told_until")),
        )
        for one in user.settings.get("searches", [])
    ]


def save(connection: Connection, user: User, query: str, name: str, now: datetime) -> None:
    """A query has one name; saving it again renames it."""
    known = of(user)
    kept = [one for one in known if one.query != query]
    if len(kept) >= MOST:
        raise UsageError(f"you can save at most {MOST} searches: remove one first")
    before = next((one for one in known if one.query == query), SavedSearch(name, query, now, now))
    _store(connection, user, [*kept, replace(before, name=name)])


def forget(connection: Connection, user: User, query: str) -> None:
    _store(connection, user, [one for one in of(user) if one.query != query])


def change_notice(connection: Connection, user: User, query: str, now: datetime, *, notify: bool) -> None:
    """Whether the user is told about mail that is archived from now on."""
    if all(one.query != query for one in of(user)):
        raise NotFound("save the search first")
    _replace(connection, user, query, notify=notify, told_until=now)


def note_told(connection: Connection, user: User, query: str, until: datetime) -> None:
    _replace(connection, user, query, told_until=until)


def visit(connection: Connection, user: User, query: str, now: datetime) -> datetime | None:
    """The user looks at this search: since when mail is new to them. None if they never looked at it, or did not save it."""
    found = next((one for one in of(user) if one.query == query), None)
    if found is None:
        return None
    if found.opened_at is None or now - found.opened_at > _ONE_VISIT:
        found = replace(found, new_since=found.opened_at, opened_at=now)
        _replace(connection, user, query, new_since=found.new_since, opened_at=now)
    return found.new_since


def _replace(connection: Connection, user: User, query: str, **changes: Any) -> None:
    fresh = users.load(connection, user.id)  # another tab may have saved or removed one since
    _store(connection, fresh, [replace(one, **changes) if one.query == query else one for one in of(fresh)])


def _store(connection: Connection, user: User, searches: list[SavedSearch]) -> None:
    users.change_settings(connection, user, searches=[_plain(one) for one in searches])


def _plain(search: SavedSearch) -> dict[str, Any]:
    values = {key: value.isoformat() if isinstance(value, datetime) else value for key, value in asdict(search).items()}
    return {key: value for key, value in values.items() if value not in (None, False)}


def _moment(value: object) -> datetime | None:
    return datetime.fromisoformat(value) if isinstance(value, str) else None
