"""Searches that somebody wants to have at hand, kept with their account."""

from __future__ import annotations

from sqlalchemy import Connection

from archiver.errors import UsageError
from archiver.services import users
from archiver.services.users import User

MOST = 50


def of(user: User) -> list[dict[str, str]]:
    return [{"name": str(one["name"]), "query": str(one["query"])} for one in user.settings.get("searches", [])]


def save(connection: Connection, user: User, query: str, name: str) -> None:
    """One name for a query; saving it again renames it."""
    kept = [one for one in of(user) if one["query"] != query]
    if len(kept) >= MOST:
        raise UsageError(f"at most {MOST} searches can be kept")
    users.change_settings(connection, user, searches=[*kept, {"name": name, "query": query}])


def forget(connection: Connection, user: User, query: str) -> None:
    users.change_settings(connection, user, searches=[one for one in of(user) if one["query"] != query])
