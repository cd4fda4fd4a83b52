"""The SQL of restores: requests, the frozen selection, and what became of each copy."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any
from uuid import UUID

from sqlalchemy import Connection

from archiver.access.scope import MailScope
from archiver.db.sql import query, query_one, query_optional, run
from archiver.db.values import json_text
from archiver.restores.rows import (
    PendingCopy,
    ReportedCopy,
    RestoreAccount,
    RestoreCounts,
    RestoreJob,
    RestoreTotal,
    SealedPassword,
)
from connectors.target import DeliveredCopy, DeliveryResult

_COLUMNS = """
    r.id, r.user_id, r.requested_by, r.selection, r.destination, r.destination_name,
    CASE WHEN r.state IN ('checking', 'restoring') AND w.state IN ('failed', 'cancelled') THEN w.state ELSE r.state END
        AS state,
    r.messages, r.bytes, r.restored, r.present, r.absent, r.refused, coalesce(r.error, w.error) AS error, r.created_at,
    r.started_at, r.finished_at, coalesce(p.done, 0) AS done, coalesce(p.total, 0) AS total"""
_FROM = """
    FROM restores r LEFT JOIN workflow_runs w ON w.id = r.run_id LEFT JOIN LATERAL (
        SELECT CAST(sum(s.progress_done) AS bigint) AS done, CAST(sum(s.progress_total) AS bigint) AS total
        FROM workflow_steps s WHERE s.run_id = r.run_id AND r.state IN ('checking', 'restoring')
        GROUP BY s.group_number ORDER BY s.group_number DESC LIMIT 1) AS p ON true"""
_LOAD = f"SELECT {_COLUMNS} {_FROM} WHERE r.id = :id"
_LIST = f"""SELECT {_COLUMNS} {_FROM} WHERE (CAST(:user_id AS uuid) IS NULL OR r.user_id = :user_id)
    ORDER BY r.id DESC LIMIT :limit"""
_INSERT = """
    INSERT INTO restores (id, user_id, requested_by, selection, destination, destination_name, credentials, run_id)
    VALUES (:id, :user_id, :requested_by, CAST(:selection AS jsonb), CAST(:destination AS jsonb), :destination_name,
        :credentials, :run_id)"""

# The current folders of a message; if it is gone from its mailbox, the last ones.
_FREEZE = """
    INSERT INTO restore_messages (restore_id, number, account_id, message_id, size_bytes, folder, flags, labels, received_at)
    SELECT :restore_id, (SELECT coalesce(max(number), 0) FROM restore_messages WHERE restore_id = :restore_id)
            + row_number() OVER (ORDER BY f.account_id, f.folder, f.received_at, f.id),
        f.account_id, f.id, f.size_bytes, f.folder, f.flags, f.labels, f.received_at
    FROM (
        SELECT DISTINCT ON (account_id, m.id, c.folder) a.account_id, m.id, m.size_bytes, c.folder, c.flags, c.labels,
            coalesce(c.received_at, m.sort_at) AS received_at
        FROM messages m JOIN message_copies c ON c.message_id = m.id,
            LATERAL (SELECT coalesce(CAST(:account_id AS uuid), c.mailbox_id) AS account_id) AS a
        WHERE {which} AND {seen}{folder} AND (c.gone_at IS NULL OR NOT EXISTS (
            SELECT 1 FROM message_copies o WHERE o.message_id = m.id AND o.mailbox_id = c.mailbox_id
            AND o.gone_at IS NULL AND o.deleted_at IS NULL))
        ORDER BY account_id, m.id, c.folder, c.gone_at IS NOT NULL, c.id) AS f"""
_TOTAL = """
    SELECT count(*) AS messages, CAST(coalesce(sum(size_bytes), 0) AS bigint) AS bytes
    FROM restore_messages WHERE restore_id = :id"""
_ACCOUNTS = "SELECT DISTINCT account_id FROM restore_messages WHERE restore_id = :id ORDER BY account_id"
_ACCOUNT = "SELECT id, address, provider_id, source_id FROM mailboxes WHERE id = :id"
_PENDING = """
    SELECT r.number, r.message_id, m.sha256, {visible} AS is_visible, r.folder, r.flags, r.labels, r.received_at, o.pack_id,
        o.position, o.stored_bytes
    FROM restore_messages r LEFT JOIN messages m ON m.id = r.message_id
        LEFT JOIN objects o ON o.sha256 = m.sha256 AND o.kind = 'message'
    WHERE r.restore_id = :id AND r.account_id = :account_id AND r.number > :after AND r.outcome IS NULL
    ORDER BY r.number LIMIT :limit"""
_RECORD = """
    WITH changed AS (
        UPDATE restore_messages r SET outcome = g.outcome, reason = nullif(g.reason, '')
        FROM unnest(CAST(:numbers AS bigint[]), CAST(:outcomes AS text[]), CAST(:reasons AS text[]))
            AS g(number, outcome, reason)
        WHERE r.restore_id = :id AND r.number = g.number AND r.outcome IS NULL RETURNING r.outcome)
    SELECT outcome, count(*) AS copies FROM changed GROUP BY outcome"""
_COUNT = """
    UPDATE restores SET restored = restored + :restored, present = present + :present, absent = absent + :absent,
        refused = refused + :refused WHERE id = :id"""
_REFUSE_ACCOUNT = """
    UPDATE restore_messages SET outcome = 'refused', reason = :reason
    WHERE restore_id = :id AND account_id = :account_id AND outcome IS NULL"""
_FORGET_OUTCOMES = """
    UPDATE restore_messages SET outcome = NULL, reason = NULL WHERE restore_id = :id AND outcome <> 'restored'
    AND outcome IS NOT NULL"""
_RECOUNT = """
    UPDATE restores SET present = 0, absent = 0, refused = 0, error = NULL, finished_at = NULL,
        restored = (SELECT count(*) FROM restore_messages WHERE restore_id = :id AND outcome = 'restored') WHERE id = :id"""
_REPORT = """
    SELECT r.number, r.message_id, m.subject, r.folder, r.outcome, r.reason
    FROM restore_messages r LEFT JOIN messages m ON m.id = r.message_id AND {visible}
    WHERE r.restore_id = :id AND r.number > :after AND r.outcome IS NOT NULL
        AND (CAST(:outcome AS text) IS NULL OR r.outcome = :outcome)
    ORDER BY r.number LIMIT :limit"""
_END = """
    UPDATE restores r SET state = CASE WHEN w.cancel_requested_at IS NULL THEN 'failed' ELSE 'cancelled' END,
        error = w.error, finished_at = now()
    FROM workflow_runs w WHERE w.id = r.run_id AND r.state IN ('checking', 'restoring')"""
_TIDY = """
    DELETE FROM restores WHERE coalesce(finished_at, created_at) < now() - make_interval(days => :days)
    AND state NOT IN ('checking', 'restoring')"""
_SECRETS = "UPDATE restores SET credentials = NULL WHERE id = :id"
_OUTCOMES = {
    DeliveryResult.DELIVERED: "restored",
    DeliveryResult.PRESENT: "present",
    DeliveryResult.ABSENT: "absent",
    DeliveryResult.REFUSED: "refused",
}


def insert(connection: Connection, values: dict[str, Any]) -> None:
    selection, destination = json_text(values["selection"], default=str), json_text(values["destination"], default=str)
    run(connection, _INSERT, **{**values, "selection": selection, "destination": destination})


def load(connection: Connection, restore_id: UUID) -> RestoreJob | None:
    return query_optional(connection, _LOAD, RestoreJob, id=restore_id)


def listed(connection: Connection, user_id: UUID | None, limit: int) -> list[RestoreJob]:
    return query(connection, _LIST, RestoreJob, user_id=user_id, limit=limit)


def credentials(connection: Connection, restore_id: UUID) -> bytes | None:
    return query_one(connection, "SELECT credentials FROM restores WHERE id = :id", SealedPassword, id=restore_id).credentials


def forget_credentials(connection: Connection, restore_id: UUID) -> None:
    run(connection, _SECRETS, id=restore_id)


def unfreeze(connection: Connection, restore_id: UUID) -> None:
    run(connection, "DELETE FROM restore_messages WHERE restore_id = :id", id=restore_id)


def freeze(
    connection: Connection, restore_id: UUID, account_id: UUID | None, scope: MailScope, which: str, values: dict[str, Any]
) -> None:
    """Without an account, each copy goes back to its own mailbox."""
    folder = " AND c.folder = :folder" if "folder" in values else ""
    statement = _FREEZE.format(seen=scope.copies(), folder=folder, which=which)
    run(connection, statement, restore_id=restore_id, account_id=account_id, **values, **scope.values())


def total(connection: Connection, restore_id: UUID) -> RestoreTotal:
    return query_one(connection, _TOTAL, RestoreTotal, id=restore_id)


def accounts(connection: Connection, restore_id: UUID) -> list[UUID]:
    return query(connection, _ACCOUNTS, UUID, id=restore_id)


def load_account(connection: Connection, mailbox_id: UUID) -> RestoreAccount | None:
    return query_optional(connection, _ACCOUNT, RestoreAccount, id=mailbox_id)


def pending(
    connection: Connection, restore_id: UUID, account_id: UUID, scope: MailScope, after: int, limit: int
) -> list[PendingCopy]:
    statement = _PENDING.format(visible=scope.messages("m"))
    values = {"id": restore_id, "account_id": account_id, "after": after, "limit": limit}
    return query(connection, statement, PendingCopy, **values, **scope.values())


def record(connection: Connection, restore_id: UUID, deliveries: Sequence[DeliveredCopy]) -> None:
    """Each copy once: of two workers, the second changes nothing."""
    values = {
        "numbers": [int(one.id) for one in deliveries],
        "outcomes": [_OUTCOMES[one.result] for one in deliveries],
        "reasons": [one.reason[:1000] for one in deliveries],
    }
    found = {one.outcome: one.copies for one in query(connection, _RECORD, RestoreCounts, id=restore_id, **values)}
    run(connection, _COUNT, id=restore_id, **{name: found.get(name, 0) for name in _OUTCOMES.values()})  # type: ignore[call-overload]


def refuse_account(connection: Connection, restore_id: UUID, account_id: UUID, reason: str) -> int:
    refused = run(connection, _REFUSE_ACCOUNT, id=restore_id, account_id=account_id, reason=reason[:1000])
    run(connection, _COUNT, id=restore_id, restored=0, present=0, absent=0, refused=refused)
    return refused


def forget_outcomes(connection: Connection, restore_id: UUID) -> None:
    """Of the dry run, and of an earlier attempt except what it restored."""
    run(connection, _FORGET_OUTCOMES, id=restore_id)
    run(connection, _RECOUNT, id=restore_id)


def report(
    connection: Connection, restore_id: UUID, scope: MailScope, outcome: str | None, after: int, limit: int
) -> list[ReportedCopy]:
    """Subjects only of messages that the reader may see."""
    statement = _REPORT.format(visible=scope.messages("m"))
    values = {"id": restore_id, "outcome": outcome, "after": after, "limit": limit}
    return query(connection, statement, ReportedCopy, **values, **scope.values())


def end_failed(connection: Connection, run_id: UUID) -> None:
    run(connection, f"{_END} AND w.id = :run_id", run_id=run_id)


def tidy(connection: Connection, days: int) -> None:
    """Removes old restores, and ends those whose run was given up without a rollback."""
    run(connection, f"{_END} AND w.state IN ('failed', 'cancelled')")
    run(connection, _TIDY, days=days)


def set_state(connection: Connection, restore_id: UUID, state: str, run_id: UUID | None = None) -> None:
    finished = state in ("ready", "done")
    statement = """
        UPDATE restores SET state = :state, run_id = coalesce(CAST(:run_id AS uuid), run_id),
            started_at = CASE WHEN :state = 'restoring' THEN now() ELSE started_at END,
            finished_at = CASE WHEN :finished THEN now() END WHERE id = :id"""
    run(connection, statement, id=restore_id, state=state, run_id=run_id, finished=finished)


def set_total(connection: Connection, restore_id: UUID, found: RestoreTotal) -> None:
    statement = "UPDATE restores SET messages = :messages, bytes = :bytes WHERE id = :id"
    run(connection, statement, id=restore_id, messages=found.messages, bytes=found.bytes)
