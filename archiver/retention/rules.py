"""Policies as SQL, for a message in a mailbox (aliases `m` and `c`, as in archiver.retention.predicate).

What the database can't decide is read once and remembered in `policy_checks`. Until then, a policy that deletes does not apply
to it, and a policy that keeps does: nothing is deleted because something is not known.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from sqlalchemy import Connection, Engine, text

from archiver.db.states import AgeOrigin
from archiver.retention.mail_check import MailCheck, MailUnit
from archiver.retention.periods import Period
from archiver.retention.policies import PolicyVersion
from archiver.retention.predicate import FALSE, Bounds, MailQuery, PredicateCompiler
from archiver.search.names import DatabaseNames
from archiver.store.archive import Archive

_CHECKS_AT_ONCE = 5_000

# The latest of the copies in the mailbox, since all of them are deleted together.
_COPY_TIME = """(SELECT max({value}) FROM message_copies f WHERE f.message_id = m.id AND f.mailbox_id = c.mailbox_id
    AND f.deleted_at IS NULL)"""
_RECEIVED = _COPY_TIME.format(value="coalesce(f.received_at, f.created_at)")
_ARCHIVED = _COPY_TIME.format(value="f.created_at")
_SERVER = _COPY_TIME.format(value="f.received_at")
# A Date header is what its author wrote. It counts if the server that received the message agrees within two days, or if there
# is nothing else, and then never a future one; otherwise the server's time counts.
SENT_IS_DISPUTED = f"(m.sent_at IS NOT NULL AND abs(extract(epoch FROM m.sent_at - {_SERVER})) > 172800)"
SENT_IS_ALL = f"(m.sent_at IS NOT NULL AND {_SERVER} IS NULL)"
_SENT = f"""(CASE WHEN m.sent_at IS NULL THEN {_RECEIVED} WHEN {_SERVER} IS NULL THEN least(m.sent_at, {_ARCHIVED})
    WHEN {SENT_IS_DISPUTED} THEN {_SERVER} ELSE m.sent_at END)"""
_ORIGINS = {AgeOrigin.RECEIVED: _RECEIVED, AgeOrigin.SENT: _SENT, AgeOrigin.ARCHIVED: _ARCHIVED}

_LABEL_KEEPS = "EXISTS (SELECT 1 FROM message_labels kl WHERE kl.message_id = m.id AND kl.keep_until > :now)"
_LABEL_KEEPS_UNTIL = "(SELECT max(kl.keep_until) FROM message_labels kl WHERE kl.message_id = m.id)"

_CHECKED = """EXISTS (SELECT 1 FROM policy_checks k WHERE k.version_id = {id} AND k.message_id = m.id
    AND k.mailbox_id = c.mailbox_id AND k.index_version = m.index_version{matches})"""
_UNDECIDED = """
    SELECT DISTINCT c.message_id, c.mailbox_id, m.index_version FROM message_copies c JOIN messages m ON m.id = c.message_id
    WHERE c.deleted_at IS NULL AND {undecided} AND {within}"""
_REMEMBER = text("""
    INSERT INTO policy_checks (version_id, message_id, mailbox_id, index_version, matches)
    SELECT :version_id, u.m, u.b, u.v, u.f FROM unnest(CAST(:messages AS uuid[]), CAST(:mailboxes AS uuid[]),
        CAST(:versions AS bigint[]), CAST(:found AS boolean[])) AS u(m, b, v, f)
    WHERE EXISTS (SELECT 1 FROM messages WHERE id = u.m)
    ON CONFLICT (version_id, message_id, mailbox_id) DO UPDATE SET index_version = excluded.index_version,
        matches = excluded.matches""")


@dataclass(frozen=True, slots=True)
class RetentionRule:
    """One version of a policy, compiled."""

    version: PolicyVersion
    query: MailQuery
    bounds: Bounds
    matches: str
    """Known to match."""
    may_match: str
    """Not known not to match."""
    undecided: str
    kept_until: str | None
    deleted_from: str | None

    def keeps(self, now: str) -> str:
        return f"({self.may_match} AND {self.kept_until} > {now})" if self.kept_until else FALSE

    def deletes(self, now: str) -> str:
        return f"({self.matches} AND {self.deleted_from} <= {now})" if self.deleted_from else FALSE


@dataclass(slots=True)
class RuleBook:
    """The policies in force, compiled together, with the parameters of all their conditions."""

    now: datetime
    rules: list[RetentionRule] = field(default_factory=list)
    values: dict[str, Any] = field(default_factory=dict)

    @classmethod
    def compile(cls, engine: Engine, versions: Sequence[PolicyVersion], now: datetime) -> RuleBook:
        """Raises QueryError if a policy names a mailbox or source that does not exist any more: then nothing may be deleted."""
        book, names = cls(now, values={"now": now}), DatabaseNames(engine)
        for number, version in enumerate(versions):
            query = version.parsed(now)
            query.check_names(names)
            book.rules.append(book._rule(version, query, f"r{number}"))
        return book

    def _rule(self, version: PolicyVersion, query: MailQuery, prefix: str) -> RetentionRule:
        compiler = PredicateCompiler(prefix)
        bounds = compiler.compile(query.tree)
        self.values |= {**compiler.values, f"{prefix}_id": version.id, f"{prefix}_zone": version.zone}
        matches = may_match = bounds.upper
        undecided = FALSE
        if not bounds.is_exact:
            checked = _CHECKED.format(id=f":{prefix}_id", matches="")
            fits = _CHECKED.format(id=f":{prefix}_id", matches=" AND k.matches")
            misses = _CHECKED.format(id=f":{prefix}_id", matches=" AND NOT k.matches")
            matches = f"({bounds.lower} OR ({bounds.upper} AND {fits}))"
            may_match = f"({bounds.upper} AND NOT {misses})"
            undecided = f"({bounds.upper} AND NOT {bounds.lower} AND NOT {checked})"
        keep, delete = (_end(version, period, prefix) for period in (version.keep_for, version.delete_after))
        return RetentionRule(version, query, bounds, matches, may_match, undecided, keep, delete)

    @property
    def kept(self) -> str:
        """Some policy keeps it, or may keep it; or a label with a date does."""
        return _any([*(rule.keeps(":now") for rule in self.rules), _LABEL_KEEPS])

    @property
    def due(self) -> str:
        """Some policy deletes it, and none keeps it."""
        return f"({_any(rule.deletes(':now') for rule in self.rules)} AND NOT {self.kept})"

    @property
    def kept_until(self) -> str:
        """The latest end of what keeps it, labels included; null if nothing does."""
        ends = [f"CASE WHEN {rule.may_match} THEN {rule.kept_until} END" for rule in self.rules if rule.kept_until]
        return f"greatest({', '.join([*ends, _LABEL_KEEPS_UNTIL])})"

    @property
    def known_kept_until(self) -> str:
        """The same, without policies of which it is not known yet whether they apply."""
        ends = [f"CASE WHEN {rule.matches} THEN {rule.kept_until} END" for rule in self.rules if rule.kept_until]
        return f"greatest({', '.join([*ends, _LABEL_KEEPS_UNTIL])})"

    @property
    def deletes_something(self) -> bool:
        return any(rule.deleted_from for rule in self.rules)

    def decide(self, engine: Engine, archive: Archive, within: str, values: dict[str, Any]) -> int:
        """Reads what the database can't decide, within a condition. Returns how many could not be read, or not yet."""
        unclear = 0
        for rule in self.rules:
            if not rule.bounds.is_exact:
                unclear += self._decide(engine, archive, rule, within, values)
        return unclear

    def _decide(self, engine: Engine, archive: Archive, rule: RetentionRule, within: str, values: dict[str, Any]) -> int:
        with engine.connect() as connection:
            statement = text(_UNDECIDED.format(undecided=rule.undecided, within=within))
            rows = connection.execute(statement, {**self.values, **values}).all()
        unclear, check = 0, MailCheck(engine, archive)
        for start in range(0, len(rows), _CHECKS_AT_ONCE):
            some = {
                MailUnit(row.message_id, row.mailbox_id): row.index_version for row in rows[start : start + _CHECKS_AT_ONCE]
            }
            found = {unit: fits for unit, fits in check.check(rule.query, list(some)) if fits is not None}
            unclear += len(some) - len(found)
            with engine.begin() as connection:
                _remember(connection, rule, found, some)
        return unclear


def _remember(connection: Connection, rule: RetentionRule, found: dict[MailUnit, bool], versions: dict[MailUnit, int]) -> None:
    units = sorted(found)
    connection.execute(
        _REMEMBER,
        {
            "version_id": rule.version.id,
            "messages": [unit.message_id for unit in units],
            "mailboxes": [unit.mailbox_id for unit in units],
            "versions": [versions[unit] for unit in units],
            "found": [found[unit] for unit in units],
        },
    )


def _end(version: PolicyVersion, period: str | None, prefix: str) -> str | None:
    """The end of a period, counted in calendar days of the policy's time zone."""
    if period is None:
        return None
    zone = f":{prefix}_zone"
    start = f"{_ORIGINS[AgeOrigin(version.counted_from)]} AT TIME ZONE {zone}"
    if version.from_year_end:
        start = f"date_trunc('year', {start}) + interval '1 year'"
    return f"(({start} + {Period.parse(period).sql()}) AT TIME ZONE {zone})"


def _any(conditions: Any) -> str:
    found = [condition for condition in conditions if condition != FALSE]
    return f"({' OR '.join(found)})" if found else FALSE
