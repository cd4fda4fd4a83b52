"""A user's saved searches, stored with the account."""

from __future__ import annotations

from sqlalchemy import Connection

from archiver.access import users
from archiver.access.users import User
from archiver.errors import UsageError

MOST = 50


def of(user: User) -> list[dict[str, str]]:
    return [{"name": str(one["name"]), "query": str(one["query"])} for one in user.settings.get("searches", [])]


def save(connection: Connection, user: User, query: str, name: str) -> None:
    """A query has one name; saving it again renames it."""
    kept = [one for one in of(user) if one["query"] != query]
    if len(kept) >= MOST:
        raise UsageError(f"you can save at most {MOST} searches: remove one first")
    users.change_settings(connection, user, searches=[*kept, {"name": name, "query": query}])


def forget(connection: Connection, user: User, query: str) -> None:
    users.change_settings(connection, user, searches=[one for one in of(user) if one["query"] != query])
