"""Which mail the policies in force would delete within a time: for `expires:` in searches. Nothing is deleted because of it."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from uuid import UUID

from sqlalchemy import Engine, text
from sqlalchemy.exc import OperationalError

from archiver.errors import NotReady
from archiver.retention import policies
from archiver.retention.keeping import compile_rules

_SECONDS = 25
_TIMEOUT = text(f"SET LOCAL statement_timeout = '{_SECONDS}s'")
# Mail on hold does not expire. What only the mail itself can answer and was not read yet does not count.
_EXPIRING = """
    SELECT DISTINCT u.message_id FROM (
        SELECT c.message_id, c.mailbox_id, greatest({deleted}, {kept}) AS due_at
        FROM message_copies c JOIN messages m ON m.id = c.message_id
        WHERE c.deleted_at IS NULL AND {matches} AND (CAST(:boxes AS uuid[]) IS NULL OR c.mailbox_id = ANY(:boxes))) AS u
    WHERE u.due_at >= :since AND u.due_at < :until
        AND NOT (:has_holds AND EXISTS (SELECT 1 FROM holds_on(u.message_id, u.mailbox_id)))
    ORDER BY 1 LIMIT :limit"""
_HAS_HOLDS = text("SELECT EXISTS (SELECT 1 FROM holds WHERE released_at IS NULL)")


def find_expiring(
    engine: Engine, since: datetime, until: datetime, mailboxes: frozenset[UUID] | None, limit: int
) -> Sequence[UUID]:
    """Messages whose period ends then, in one of these mailboxes (None: in any)."""
    with engine.begin() as connection:
        versions = policies.in_force(connection)
        if not any(version.delete_after for version in versions):
            return []
        book = compile_rules(engine, versions, datetime.now(UTC))
        ending = [rule for rule in book.rules if rule.deleted_from]
        statement = _EXPIRING.format(
            deleted=f"least(NULL, {', '.join(f'CASE WHEN {rule.matches} THEN {rule.deleted_from} END' for rule in ending)})",
            kept=book.kept_until,
            matches=f"({' OR '.join(rule.matches for rule in ending)})",
        )
        boxes = None if mailboxes is None else sorted(mailboxes)
        values = {**book.values, "since": since, "until": until, "boxes": boxes, "limit": limit}
        values["has_holds"] = connection.execute(_HAS_HOLDS).scalar_one()
        connection.execute(_TIMEOUT)
        try:
            return list(connection.execute(text(statement), values).scalars())
        except OperationalError as error:
            if "statement timeout" not in str(error):
                raise
            reason = f"evaluating the policies took longer than {_SECONDS} s: simulate the policy to see what it deletes when"
            raise NotReady(reason) from error
