"""What policies keep: until when, and why. Deletions respect it, and the message shows it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from uuid import UUID

from sqlalchemy import Connection, Engine, text

from archiver.errors import Conflict
from archiver.retention import policies
from archiver.retention.labels import on_messages
from archiver.retention.mail_check import MailUnit
from archiver.retention.policies import PolicyVersion
from archiver.retention.rules import RuleBook
from archiver.search.query.errors import QueryError
from archiver.store.archive import Archive

_OF_MESSAGES = "m.id = ANY(:ids)"
_KEPT = """
    SELECT DISTINCT c.message_id, c.mailbox_id, {until} AS until FROM message_copies c JOIN messages m ON m.id = c.message_id
    WHERE c.deleted_at IS NULL AND m.id = ANY(:ids) AND {keeps}"""
_ENDS = """
    SELECT max({kept}) AS kept_until, min({deleted}) AS deleted_from, bool_or({open}) AS is_unclear
    FROM message_copies c JOIN messages m ON m.id = c.message_id
    WHERE c.deleted_at IS NULL AND m.id = :id AND {matches}
        AND (CAST(:boxes AS uuid[]) IS NULL OR c.mailbox_id = ANY(:boxes))"""


@dataclass(frozen=True, slots=True)
class KeptBy:
    """A policy that applies to a message, and what it means for it."""

    policy_id: UUID
    name: str
    kept_until: datetime | None
    deleted_from: datetime | None
    is_unclear: bool
    """The mail has to be read to know whether the policy applies; until then it counts as kept."""


def compile_rules(engine: Engine, versions: Sequence[PolicyVersion], now: datetime) -> RuleBook:
    """Raises Conflict if a policy can't be understood any more, such as one about a mailbox that does not exist: as long as
    that is so, nothing may be deleted."""
    try:
        return RuleBook.compile(engine, versions, now)
    except QueryError as error:
        raise Conflict(
            f"a retention policy can't be applied any more, so that nothing can be deleted: {error.reason}"
        ) from None


def find_kept(
    connection: Connection, engine: Engine, archive: Archive, units: Sequence[MailUnit], now: datetime | None = None
) -> dict[MailUnit, list[str]]:
    """Those of the units that a policy keeps, with the reasons. Until the transaction ends, no policy changes."""
    connection.execute(policies.LOCK_SHARED)
    at = now or datetime.now(UTC)
    ids = sorted({unit.message_id for unit in units})
    kept = _kept_by_labels(connection, units, ids, at)
    versions = [version for version in policies.in_force(connection) if version.keep_for]
    if not versions:
        return kept
    book = compile_rules(engine, versions, at)
    values = {**book.values, "ids": ids}
    book.decide(engine, archive, _OF_MESSAGES, {"ids": ids})
    for rule in book.rules:
        statement = text(_KEPT.format(until=rule.kept_until, keeps=rule.keeps(":now")))
        for row in connection.execute(statement, values):
            reason = f"kept until {row.until:%Y-%m-%d} by {rule.version.name}"
            kept.setdefault(MailUnit(row.message_id, row.mailbox_id), []).append(reason)
    return kept


def _kept_by_labels(
    connection: Connection, units: Sequence[MailUnit], ids: Sequence[UUID], at: datetime
) -> dict[MailUnit, list[str]]:
    labels = {
        one.message_id: f"kept until {one.keep_until:%Y-%m-%d} by {one.set_by} (label {one.name})"
        for one in on_messages(connection, ids)
        if one.keep_until is not None and one.keep_until > at
    }
    return {unit: [labels[unit.message_id]] for unit in units if unit.message_id in labels}


def explain(
    connection: Connection, engine: Engine, message_id: UUID, mailboxes: frozenset[UUID] | None, now: datetime | None = None
) -> list[KeptBy]:
    """The policies that apply to a message in these mailboxes (None: in all), without reading the mail."""
    versions = policies.in_force(connection)
    book = compile_rules(engine, versions, now or datetime.now(UTC)) if versions else RuleBook(datetime.now(UTC))
    boxes = None if mailboxes is None else sorted(mailboxes)
    found = []
    for rule in book.rules:
        empty = "CAST(NULL AS timestamptz)"
        statement = _ENDS.format(
            kept=rule.kept_until or empty, deleted=rule.deleted_from or empty, open=rule.undecided, matches=rule.may_match
        )
        row = connection.execute(text(statement), {**book.values, "id": message_id, "boxes": boxes}).one()
        if row.kept_until or row.deleted_from:
            policy = rule.version
            found.append(KeptBy(policy.policy_id, policy.name, row.kept_until, row.deleted_from, bool(row.is_unclear)))
    return found
