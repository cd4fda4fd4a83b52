"""Tells users about new mail in their saved searches, through their own channels."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime, timedelta

from sqlalchemy import Connection

from archiver.access import users
from archiver.access.scope import scope_of
from archiver.alerts import wording
from archiver.alerts.channels import AlertChannel
from archiver.alerts.deliveries import announce_text
from archiver.alerts.quiet_hours import zone_named
from archiver.db import sql
from archiver.db.states import NoticeEvent
from archiver.errors import NotAllowed, NotReady
from archiver.logs import get_logger
from archiver.search import news, saved
from archiver.search.service import MailSearch

_USERS = """
    SELECT id::text FROM users WHERE disabled_at IS NULL AND settings -> 'searches' @> '[{"notify": true}]' ORDER BY id"""
_HAS_PENDING = "SELECT EXISTS (SELECT 1 FROM messages WHERE indexed_version = 0)"

_SETTLED = timedelta(minutes=2)
"""A batch may commit rows whose ids are older; after this time none is under way."""

log = get_logger("alerts")


def announce_new(connection: Connection, search: MailSearch, channels: Iterable[AlertChannel], now: datetime) -> int:
    """One notice for each saved search with new mail, in the transaction that remembers it. Waits until new mail is indexed."""
    named = sql.query(connection, _USERS, str)
    if not named or sql.query_one(connection, _HAS_PENDING, bool):
        return 0
    own = [channel for channel in channels if channel.user_id is not None]
    return sum(
        _tell(connection, search, user_id, [one for one in own if str(one.user_id) == user_id], now) for user_id in named
    )


def _tell(connection: Connection, search: MailSearch, user_id: str, channels: list[AlertChannel], now: datetime) -> int:
    user = users.find(connection, user_id)
    told, until = 0, now - _SETTLED
    for one in saved.of(user):
        if not one.notify or not channels or one.told_until is None:
            continue
        try:
            scope = scope_of(connection, users.principal_of(connection, user.id))
            found = news.new_messages(connection, scope, one.told_until, until)
            count = news.count_new(search, scope, one.query, zone_named(user.settings.get("zone")), found)
        except (NotAllowed, NotReady) as error:
            log.warning("saved_search_not_counted", user=user_id, reason=str(error))
            return told
        saved.note_told(connection, user, one.query, max(until, one.told_until))
        for channel in channels if count else ():
            language = channel.wishes.language
            title = wording.notice("search", language, search=one.name)
            body = wording.notice("search_found", language, count=f"{count:,}", query=one.query)
            announce_text(connection, channel, NoticeEvent.SUMMARY, title, body, now)
        told += bool(count)
    return told
