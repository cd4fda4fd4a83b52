"""Notices to the people that a legal hold is about: sent by mail on request, and acknowledged on a page.

A worker sends what was requested, and tries again after a failure. The link in the mail acknowledges one notice, and nothing
else; only the hash of its token is stored.
"""

from __future__ import annotations

import hashlib
import secrets
from dataclasses import dataclass
from datetime import UTC, datetime
from uuid import UUID

from sqlalchemy import Connection, Engine

from archiver.access import audit
from archiver.access.principal import Principal
from archiver.alerts.addresses import parse_address
from archiver.alerts.senders import Notice, NotSent, send
from archiver.config import Settings, page_address
from archiver.db import sql
from archiver.db.ids import uuid7
from archiver.errors import Conflict, NotFound, UsageError
from archiver.indexing.jobs import announce_once
from archiver.logs import get_logger
from archiver.queue.jobs import ApplyRetention
from archiver.retention.holds import Hold
from archiver.retention.runs import SYSTEM

_log = get_logger(__name__)
MAX_CHARS = 5_000
MOST_ATTEMPTS = 24

_COLUMNS = """n.id, n.hold_id, n.address, n.text, n.requested_by, n.requested_at, n.sent_at, n.attempts, n.error,
    n.acknowledged_at"""
_REQUEST = """
    INSERT INTO hold_notices (id, hold_id, address, text, requested_by, requested_at)
    VALUES (:id, :hold_id, :address, :text, :by, :at)
    ON CONFLICT (hold_id, address) DO UPDATE SET text = excluded.text, requested_by = excluded.requested_by,
        requested_at = excluded.requested_at, sent_at = NULL, attempts = 0, error = NULL, acknowledged_at = NULL"""
_OF_HOLD = f"SELECT {_COLUMNS} FROM hold_notices n WHERE n.hold_id = :hold_id ORDER BY n.address"  # noqa: S608
_PENDING = f"""
    SELECT {_COLUMNS} FROM hold_notices n JOIN holds h ON h.id = n.hold_id
    WHERE n.sent_at IS NULL AND n.attempts < :most AND h.released_at IS NULL ORDER BY n.id LIMIT 500"""  # noqa: S608
_TRY = "UPDATE hold_notices SET token_sha256 = :hash, attempts = attempts + 1 WHERE id = :id AND sent_at IS NULL RETURNING id"
_SENT = "UPDATE hold_notices SET sent_at = clock_timestamp(), error = NULL WHERE id = :id"
_FAILED = "UPDATE hold_notices SET error = :error WHERE id = :id"
_BY_TOKEN = f"SELECT {_COLUMNS} FROM hold_notices n WHERE n.token_sha256 = :hash"  # noqa: S608
_ACKNOWLEDGE = """
    UPDATE hold_notices SET acknowledged_at = clock_timestamp() WHERE id = :id AND acknowledged_at IS NULL RETURNING id"""


@dataclass(frozen=True, slots=True)
class HoldNotice:
    id: UUID
    hold_id: UUID
    address: str
    text: str
    requested_by: str
    requested_at: datetime
    sent_at: datetime | None
    attempts: int
    error: str | None
    acknowledged_at: datetime | None

    @property
    def state(self) -> str:
        if self.acknowledged_at is not None:
            return "acknowledged"
        if self.sent_at is not None:
            return "sent"
        return "failed" if self.attempts >= MOST_ATTEMPTS else "waiting"


def request_notices(
    connection: Connection, settings: Settings, principal: Principal, hold: Hold, text: str
) -> list[HoldNotice]:
    """To every person of the hold; to those who got one before, too, who have to acknowledge the new one."""
    text = text.strip()
    if not text or len(text) > MAX_CHARS:
        raise UsageError(f"a notice needs a text (up to {MAX_CHARS:,} characters)")
    if hold.released_at is not None:
        raise Conflict(f"the hold {hold.name} was released")
    if not hold.addresses:
        raise UsageError(f"the hold {hold.name} names no people")
    for address in hold.addresses:
        parse_address(f"mailto:{address}", settings)
    if settings.archiver_url is None:
        raise UsageError("notices need a link that people can open: set ARCHIVER_URL")
    at = datetime.now(UTC)
    for address in hold.addresses:
        sql.run(connection, _REQUEST, id=uuid7(), hold_id=hold.id, address=address, text=text, by=principal.name, at=at)
    audit.record(connection, principal, "hold.notices_requested", "hold", hold.id, name=hold.name, people=len(hold.addresses))
    announce_once(connection, ApplyRetention())
    return list_notices(connection, hold)


def list_notices(connection: Connection, hold: Hold) -> list[HoldNotice]:
    return sql.query(connection, _OF_HOLD, HoldNotice, hold_id=hold.id)


def send_pending(engine: Engine, settings: Settings) -> int:
    """Returns how many were sent. What can't be sent is tried again with the next run."""
    with engine.connect() as connection:
        waiting = sql.query(connection, _PENDING, HoldNotice, most=MOST_ATTEMPTS)
    return sum(_send(engine, settings, notice) for notice in waiting)


def _send(engine: Engine, settings: Settings, notice: HoldNotice) -> bool:
    token = secrets.token_urlsafe(24)
    with engine.begin() as connection:
        if not sql.query(connection, _TRY, UUID, id=notice.id, hash=_hash(token)):
            return False
    link = f"{page_address(settings)}/hold-notices/{token}"
    mail = Notice(
        notice.id, "hold.notice", "info", "hold", str(notice.hold_id), _SUBJECT, f"{notice.text}\n\n{_ASK}",
        datetime.now(UTC), link,
    )  # fmt: skip
    try:
        send(mail, parse_address(f"mailto:{notice.address}", settings))
    except (NotSent, UsageError) as error:
        _log.warning("hold_notice_not_sent", notice=str(notice.id), reason=str(error))
        with engine.begin() as connection:
            sql.run(connection, _FAILED, id=notice.id, error=str(error)[:500])
        return False
    with engine.begin() as connection:
        sql.run(connection, _SENT, id=notice.id)
        audit.record(connection, SYSTEM, "hold.notice_sent", "hold", notice.hold_id, address=notice.address)
    return True


_SUBJECT = "Legal hold: please keep your mail and documents"
_ASK = "Please confirm that you have read this:"


def find_by_token(connection: Connection, token: str) -> HoldNotice:
    found = sql.query_optional(connection, _BY_TOKEN, HoldNotice, hash=_hash(token))
    if found is None:
        raise NotFound("this link is not valid: a newer notice may have replaced it")
    return found


def acknowledge(connection: Connection, principal: Principal, token: str) -> HoldNotice:
    """Whoever has the link may: it was sent to one person."""
    notice = find_by_token(connection, token)
    if sql.query(connection, _ACKNOWLEDGE, UUID, id=notice.id):
        audit.record(connection, principal, "hold.notice_acknowledged", "hold", notice.hold_id, address=notice.address)
    return find_by_token(connection, token)


def _hash(token: str) -> bytes:
    return hashlib.sha256(token.encode()).digest()
