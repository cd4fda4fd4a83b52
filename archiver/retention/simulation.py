"""What a version of a policy would do, together with the others in force: counted before it takes effect. Changes nothing."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any
from uuid import UUID

from sqlalchemy import Engine, text

from archiver.access import audit
from archiver.access.principal import Principal
from archiver.db import sql
from archiver.db.values import json_text
from archiver.errors import ArchiverError
from archiver.indexing.jobs import announce_once
from archiver.logs import get_logger
from archiver.queue.jobs import ApplyRetention
from archiver.retention import policies
from archiver.retention.keeping import compile_rules
from archiver.retention.policies import PolicyVersion
from archiver.retention.rules import SENT_IS_ALL, SENT_IS_DISPUTED, RetentionRule, RuleBook
from archiver.store.archive import Archive

_log = get_logger(__name__)
_SAMPLES = 20
_TOP = 20
_MONTHS = 240

# A message in a mailbox once, with the moment from which it would be deleted: the end of the period or, if that is later, of
# whatever keeps it.
_UNITS = """
    units AS MATERIALIZED (
        SELECT DISTINCT ON (c.message_id, c.mailbox_id) c.message_id, c.mailbox_id, m.size_bytes, m.sender,
            {deleted} AS period_ends, {kept} AS kept_until, greatest({deleted}, {kept}) AS due_at,
            {sent_disputed} AS is_disputed, {sent_alone} AS is_date_only
        FROM message_copies c JOIN messages m ON m.id = c.message_id WHERE c.deleted_at IS NULL AND {matches}),
    due AS (SELECT * FROM units WHERE due_at <= :now)"""
_FIGURES = """
    WITH {units},
    months AS (
        SELECT to_char(greatest(due_at, :now) AT TIME ZONE :zone, 'YYYY-MM') AS month, count(*) AS n, sum(size_bytes) AS b
        FROM units WHERE due_at IS NOT NULL GROUP BY 1 ORDER BY 1 LIMIT :months),
    boxes AS (
        SELECT b.address AS name, count(*) AS n, sum(d.size_bytes) AS b FROM due d JOIN mailboxes b ON b.id = d.mailbox_id
        GROUP BY 1 ORDER BY 2 DESC, 1),
    senders AS (SELECT sender AS name, count(*) AS n, sum(size_bytes) AS b FROM due GROUP BY 1 ORDER BY 2 DESC, 1 LIMIT :top),
    held AS (
        SELECT h.name, count(*) AS n, sum(d.size_bytes) AS b FROM due d, LATERAL holds_on(d.message_id, d.mailbox_id) AS h
        WHERE :has_holds GROUP BY 1 ORDER BY 2 DESC, 1)
    SELECT (SELECT count(*) FROM units) AS messages, (SELECT coalesce(sum(size_bytes), 0) FROM units) AS bytes,
        (SELECT count(*) FROM due) AS due, (SELECT coalesce(sum(size_bytes), 0) FROM due) AS due_bytes,
        (SELECT count(*) FROM units WHERE period_ends <= :now AND kept_until > :now) AS kept_longer,
        (SELECT count(*) FROM units WHERE is_disputed) AS disputed_dates,
        (SELECT count(*) FROM units WHERE is_date_only) AS date_only,
        (SELECT coalesce(json_agg(json_build_array(month, n, b)), '[]') FROM months) AS months,
        (SELECT coalesce(json_agg(json_build_array(name, n, b)), '[]') FROM boxes) AS mailboxes,
        (SELECT coalesce(json_agg(json_build_array(name, n, b)), '[]') FROM senders) AS senders,
        (SELECT coalesce(json_agg(json_build_array(name, n, b)), '[]') FROM held) AS held,
        (SELECT coalesce(json_agg(message_id), '[]') FROM (
            SELECT DISTINCT message_id, due_at FROM due ORDER BY due_at, message_id LIMIT :samples) AS s) AS samples"""
_HAS_HOLDS = text("SELECT EXISTS (SELECT 1 FROM holds WHERE released_at IS NULL)")
_STARTED = text("UPDATE policy_versions SET simulation_started_at = :at WHERE id = :id")
_REQUESTED = """
    SELECT id FROM policy_versions WHERE simulation_started_at IS NOT NULL AND approved_at IS NULL AND rejected_at IS NULL
    ORDER BY id"""
_STORE = text("""
    UPDATE policy_versions SET simulation = CAST(:figures AS jsonb), simulated_at = :at, simulation_started_at = NULL
    WHERE id = :id""")
_FAILED = text("UPDATE policy_versions SET simulation_started_at = NULL WHERE id = :id")


def simulate(
    engine: Engine, archive: Archive, principal: Principal, version: PolicyVersion, now: datetime | None = None
) -> PolicyVersion:
    """Stores the figures with the version. An approval needs them, not older than a day."""
    at = now or datetime.now(UTC)
    mark_started(engine, version, at)
    with engine.connect() as connection:
        others = [one for one in policies.in_force(connection) if one.policy_id != version.policy_id]
    try:
        figures = _figures(engine, archive, version, others, at)
    except BaseException:
        with engine.begin() as connection:
            connection.execute(_FAILED, {"id": version.id})
        raise
    with engine.begin() as connection:
        connection.execute(_STORE, {"id": version.id, "at": at, "figures": json_text(figures, default=str)})
        audit.record(
            connection, principal, "policy.simulated", "policy", version.policy_id, version=version.number, due=figures["due"]
        )
        return policies.load_version(connection, version.id)


def request(engine: Engine, principal: Principal, version: PolicyVersion) -> None:
    """A worker simulates it next (`run_requested`)."""
    with engine.begin() as connection:
        connection.execute(_STARTED, {"id": version.id, "at": datetime.now(UTC)})
        audit.record(
            connection, principal, "policy.simulation_requested", "policy", version.policy_id, version=version.number
        )  # fmt: skip
        announce_once(connection, ApplyRetention())


def run_requested(engine: Engine, archive: Archive, principal: Principal) -> int:
    """Simulates what was requested, or what a killed process has begun. What can't be simulated stays without figures."""
    with engine.connect() as connection:
        waiting = [policies.load_version(connection, one) for one in sql.query(connection, _REQUESTED, UUID)]
    for version in waiting:
        try:
            simulate(engine, archive, principal, version)
        except ArchiverError as error:
            _log.error("simulation_failed", policy=version.name, version=version.number, error=str(error))
    return len(waiting)


def mark_started(engine: Engine, version: PolicyVersion, now: datetime | None = None) -> None:
    with engine.begin() as connection:
        connection.execute(_STARTED, {"id": version.id, "at": now or datetime.now(UTC)})


def _figures(
    engine: Engine, archive: Archive, version: PolicyVersion, others: list[PolicyVersion], at: datetime
) -> dict[str, Any]:
    """Of the version; if it retires the policy, of what the others would delete then."""
    versions = others if version.is_retired else [version, *others]
    book = compile_rules(engine, versions, at)
    counted = [rule for rule in book.rules if rule.deleted_from] if version.is_retired else book.rules[:1]
    if not counted:
        return _nothing(at)
    unclear = book.decide(engine, archive, "true", {})
    with engine.connect() as connection:
        values = {**book.values, "zone": version.zone, "months": _MONTHS, "top": _TOP, "samples": _SAMPLES}
        values["has_holds"] = connection.execute(_HAS_HOLDS).scalar_one()
        row = connection.execute(text(_FIGURES.format(units=_units(book, counted))), values).one()
    found = dict(row._mapping)
    numbers = {"bytes": int(found["bytes"]), "due_bytes": int(found["due_bytes"])}
    return {**found, **numbers, "unclear": unclear, "at": at.isoformat()}


def _units(book: RuleBook, counted: list[RetentionRule]) -> str:
    sent = any(rule.version.counted_from == "sent" for rule in counted)
    ends = [f"CASE WHEN {rule.matches} THEN {rule.deleted_from} END" for rule in counted if rule.deleted_from]
    return _UNITS.format(
        deleted=f"least(NULL, {', '.join(ends)})" if ends else "CAST(NULL AS timestamptz)",
        kept=book.kept_until,
        matches=f"({' OR '.join(rule.matches for rule in counted)})",
        sent_disputed=SENT_IS_DISPUTED if sent else "false",
        sent_alone=SENT_IS_ALL if sent else "false",
    )


def _nothing(at: datetime) -> dict[str, Any]:
    counts = dict.fromkeys(
        ("messages", "bytes", "due", "due_bytes", "kept_longer", "disputed_dates", "date_only", "unclear"), 0
    )
    return {**counts, "months": [], "mailboxes": [], "senders": [], "held": [], "samples": [], "at": at.isoformat()}


def as_csv(version: PolicyVersion) -> Iterator[str]:
    """The stored figures, one row each."""
    figures = version.simulation or {}
    yield _line("figure", "value", "messages", "bytes")
    yield _line("matched", "", figures.get("messages", 0), figures.get("bytes", 0))
    yield _line("due now", "", figures.get("due", 0), figures.get("due_bytes", 0))
    for name, label in (("kept_longer", "kept longer by another policy"), ("unclear", "unreadable, or not read yet"),
                        ("disputed_dates", "date disagrees with the server"), ("date_only", "only a date header")):  # fmt: skip
        yield _line(label, "", figures.get(name, 0), "")
    for name, label in (("months", "month"), ("mailboxes", "mailbox"), ("senders", "sender"), ("held", "on hold")):
        for value, messages, size in figures.get(name, ()):
            yield _line(label, value, messages, size)


def _line(*values: object) -> str:
    """A cell that a spreadsheet would take for a formula gets an apostrophe."""
    cells = [f"'{value}" if isinstance(value, str) and value[:1] in ("=", "+", "-", "@") else value for value in values]
    buffer = io.StringIO()
    csv.writer(buffer).writerow(["" if cell is None else cell for cell in cells])
    return buffer.getvalue()


def samples(version: PolicyVersion) -> list[UUID]:
    return [UUID(one) for one in (version.simulation or {}).get("samples", ())]


def is_running(version: PolicyVersion, now: datetime) -> bool:
    started = version.simulation_started_at
    return started is not None and (now - started).total_seconds() < 3600
