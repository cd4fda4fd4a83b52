"""Retention policies: which mail is kept for how long, and which is deleted when.

Without a policy, everything is kept forever. A policy is never edited: each change is a version, with who, when and why. A
version that deletes, or that protects less than the one before it, is simulated first and approved by a second person.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID
from zoneinfo import ZoneInfo

from sqlalchemy import Connection, Engine, text

from archiver.access import audit
from archiver.access.principal import Principal
from archiver.db.ids import uuid7
from archiver.db.states import AgeOrigin
from archiver.errors import Conflict, NotFound, UsageError
from archiver.retention.periods import Period, is_shorter
from archiver.retention.predicate import MailQuery
from archiver.search.names import DatabaseNames

SIMULATION_LASTS = timedelta(days=1)
_MAX_CHARS = 2_000

_COLUMNS = """id, policy_id, number, name, query, zone, counted_from, from_year_end, keep_for, delete_after, is_retired, reason,
    created_by, created_at, simulation, simulation_started_at, simulated_at, approved_by, approved_at, rejected_by,
    rejected_at"""
_NEWEST = f"""
    SELECT DISTINCT ON (policy_id) {_COLUMNS} FROM policy_versions WHERE approved_at IS NOT NULL
    ORDER BY policy_id, number DESC"""  # noqa: S608
_IN_FORCE = text(f"SELECT * FROM ({_NEWEST}) AS newest WHERE NOT is_retired ORDER BY policy_id")  # noqa: S608
_ALL = text(f"SELECT {_COLUMNS} FROM policy_versions ORDER BY policy_id, number DESC")  # noqa: S608
_OF_POLICY = text(f"SELECT {_COLUMNS} FROM policy_versions WHERE policy_id = :id ORDER BY number DESC")  # noqa: S608
_VERSION = text(f"SELECT {_COLUMNS} FROM policy_versions WHERE id = :id")  # noqa: S608
_NAMED = text("""
    SELECT DISTINCT policy_id FROM policy_versions WHERE CAST(policy_id AS text) = :name OR CAST(id AS text) = :name
    OR lower(name) = :name""")
_TAKEN = text("""
    SELECT 1 FROM policy_versions v WHERE lower(name) = lower(:name) AND policy_id <> :policy_id AND NOT EXISTS (
        SELECT 1 FROM policy_versions r WHERE r.policy_id = v.policy_id AND r.is_retired AND r.approved_at IS NOT NULL)""")
_INSERT = text("""
    INSERT INTO policy_versions (id, policy_id, number, name, query, zone, counted_from, from_year_end, keep_for, delete_after,
        is_retired, reason, created_by, created_at)
    SELECT :id, :policy_id, coalesce(max(number), 0) + 1, :name, :query, :zone, :counted_from, :from_year_end, :keep_for,
        :delete_after, :is_retired, :reason, :by, :at FROM policy_versions WHERE policy_id = :policy_id""")
_APPROVE = text("""
    UPDATE policy_versions SET approved_by = :by, approved_at = :at
    WHERE id = :id AND approved_at IS NULL AND rejected_at IS NULL RETURNING id""")
_REJECT = text("""
    UPDATE policy_versions SET rejected_by = :by, rejected_at = :at
    WHERE id = :id AND approved_at IS NULL AND rejected_at IS NULL RETURNING id""")
_SUPERSEDE = text("""
    UPDATE policy_versions SET rejected_by = :by, rejected_at = :at
    WHERE policy_id = :policy_id AND id <> :id AND number < :number AND approved_at IS NULL AND rejected_at IS NULL""")
LOCK_ALL = text("SELECT pg_advisory_xact_lock(hashtextextended('archiver:policies', 0))")
LOCK_SHARED = text("SELECT pg_advisory_xact_lock_shared(hashtextextended('archiver:policies', 0))")
"""Held by each transaction that deletes because of policies: none of them changes until it ends."""


@dataclass(frozen=True, slots=True)
class PolicyVersion:
    id: UUID
    policy_id: UUID
    number: int
    name: str
    query: str
    zone: str
    counted_from: str
    from_year_end: bool
    keep_for: str | None
    delete_after: str | None
    is_retired: bool
    reason: str
    created_by: str
    created_at: datetime
    simulation: dict[str, Any] | None
    simulation_started_at: datetime | None
    simulated_at: datetime | None
    approved_by: str | None
    approved_at: datetime | None
    rejected_by: str | None
    rejected_at: datetime | None

    @property
    def is_open(self) -> bool:
        return self.approved_at is None and self.rejected_at is None

    def parsed(self, now: datetime) -> MailQuery:
        return MailQuery.parse(self.query, now, ZoneInfo(self.zone))


@dataclass(frozen=True, slots=True)
class NewPolicy:
    name: str
    reason: str
    query: str = ""
    counted_from: str = AgeOrigin.RECEIVED
    from_year_end: bool = False
    keep_for: str | None = None
    delete_after: str | None = None
    zone: str = "UTC"


def propose(
    engine: Engine, principal: Principal, new: NewPolicy, policy_id: UUID | None = None, now: datetime | None = None
) -> PolicyVersion:
    """A new policy, or a new version of one. It takes effect at once if it only protects more than before."""
    at = now or datetime.now(UTC)
    values = _validated(engine, new, at)
    return _add(engine, principal, policy_id or uuid7(), values, at, is_new=policy_id is None)


def retire(engine: Engine, principal: Principal, policy_id: UUID, reason: str, now: datetime | None = None) -> PolicyVersion:
    """Proposes that the policy no longer applies."""
    if not reason.strip() or len(reason) > _MAX_CHARS:
        raise UsageError("retiring a policy needs a reason (up to 2,000 characters)")
    with engine.connect() as connection:
        current = in_force_of(connection, policy_id)
    if current is None:
        raise Conflict("this policy is not in force")
    values = {field.name: getattr(current, field.name) for field in fields(NewPolicy)}
    values |= {"reason": reason.strip(), "is_retired": True}
    return _add(engine, principal, policy_id, values, now or datetime.now(UTC), is_new=False)


def _validated(engine: Engine, new: NewPolicy, at: datetime) -> dict[str, Any]:
    name, reason = " ".join(new.name.split()), new.reason.strip()
    if not name or not reason or len(name) > 200 or len(reason) > _MAX_CHARS:
        raise UsageError("a policy needs a name (up to 200 characters) and a reason (up to 2,000)")
    if new.counted_from not in set(AgeOrigin):
        raise UsageError(f"counted_from: {new.counted_from}: expected one of {', '.join(AgeOrigin)}")
    keep_for, delete_after = new.keep_for or None, new.delete_after or None
    for period in filter(None, (keep_for, delete_after)):
        Period.parse(period)
    if keep_for is None and delete_after is None:
        raise UsageError("a policy needs a period: how long mail is kept at least, after which it is deleted, or both")
    if keep_for and delete_after and is_shorter(delete_after, keep_for):
        raise UsageError(f"it can't delete after {delete_after} what it keeps for {keep_for}")
    query = MailQuery.parse(new.query.strip(), at, ZoneInfo(new.zone))
    query.check_names(DatabaseNames(engine))
    return {
        "name": name, "reason": reason, "query": query.text, "zone": new.zone, "counted_from": str(new.counted_from),
        "from_year_end": new.from_year_end, "keep_for": keep_for, "delete_after": delete_after, "is_retired": False,
    }  # fmt: skip


def _add(
    engine: Engine, principal: Principal, policy_id: UUID, values: dict[str, Any], at: datetime, *, is_new: bool
) -> PolicyVersion:
    version_id = uuid7()
    with engine.begin() as connection:
        connection.execute(LOCK_ALL)
        if not is_new and not versions_of(connection, policy_id):
            raise NotFound(f"there is no policy {policy_id}")
        if connection.execute(_TAKEN, {"name": values["name"], "policy_id": policy_id}).first():
            raise Conflict(f"there is already a policy named {values['name']}")
        before = in_force_of(connection, policy_id)
        connection.execute(_INSERT, {**values, "id": version_id, "policy_id": policy_id, "by": principal.name, "at": at})
        version = load_version(connection, version_id)
        connection.execute(_SUPERSEDE, {**_who(version, principal, at), "policy_id": policy_id, "number": version.number})
        if only_protects_more(version, before):
            connection.execute(_APPROVE, _who(version, principal, at))
        audit.record(connection, principal, "policy.proposed", "policy", policy_id, version=version.number, **values)
        return load_version(connection, version_id)


def _who(version: PolicyVersion, principal: Principal, at: datetime) -> dict[str, Any]:
    return {"id": version.id, "by": principal.name, "at": at}


def only_protects_more(version: PolicyVersion, before: PolicyVersion | None) -> bool:
    """Whether it deletes nothing, and whatever the version before it protects stays protected at least as long."""
    if version.delete_after is not None or version.is_retired:
        return False
    if before is None or before.keep_for is None:
        return True
    same = all(getattr(version, name) == getattr(before, name) for name in ("query", "zone", "counted_from"))
    is_longer = version.keep_for is not None and not is_shorter(version.keep_for, before.keep_for)
    return same and is_longer and version.from_year_end >= before.from_year_end


def approve(
    connection: Connection, principal: Principal, version: PolicyVersion, *, second_person: bool, now: datetime | None = None
) -> PolicyVersion:
    at = now or datetime.now(UTC)
    connection.execute(LOCK_ALL)
    if version.simulated_at is None or at - version.simulated_at > SIMULATION_LASTS:
        raise Conflict("simulate it first: an approval needs a simulation that is not older than a day")
    if second_person and principal.name == version.created_by:
        raise Conflict(f"{principal.name} proposed this version: another administrator has to approve it")
    if connection.execute(_APPROVE, _who(version, principal, at)).first() is None:
        raise Conflict("this version was approved, rejected or replaced already")
    audit.record(
        connection, principal, "policy.approved", "policy", version.policy_id, version=version.number, name=version.name,
        proposed_by=version.created_by,
    )  # fmt: skip
    return load_version(connection, version.id)


def reject(connection: Connection, principal: Principal, version: PolicyVersion, now: datetime | None = None) -> PolicyVersion:
    """Also for the one who proposed it."""
    if connection.execute(_REJECT, _who(version, principal, now or datetime.now(UTC))).first() is None:
        raise Conflict("this version was approved, rejected or replaced already")
    audit.record(
        connection, principal, "policy.rejected", "policy", version.policy_id, version=version.number, name=version.name
    )
    return load_version(connection, version.id)


def in_force(connection: Connection) -> list[PolicyVersion]:
    return [PolicyVersion(*row) for row in connection.execute(_IN_FORCE)]


def in_force_of(connection: Connection, policy_id: UUID) -> PolicyVersion | None:
    return next((version for version in in_force(connection) if version.policy_id == policy_id), None)


def versions_of(connection: Connection, policy_id: UUID) -> list[PolicyVersion]:
    """Newest first."""
    return [PolicyVersion(*row) for row in connection.execute(_OF_POLICY, {"id": policy_id})]


def list_versions(connection: Connection) -> list[list[PolicyVersion]]:
    """Of each policy, newest first; the policies by their names."""
    found: dict[UUID, list[PolicyVersion]] = {}
    for row in connection.execute(_ALL):
        version = PolicyVersion(*row)
        found.setdefault(version.policy_id, []).append(version)
    return sorted(found.values(), key=lambda versions: versions[0].name.lower())


def load_version(connection: Connection, version_id: UUID) -> PolicyVersion:
    row = connection.execute(_VERSION, {"id": version_id}).one_or_none()
    if row is None:
        raise NotFound(f"there is no version {version_id} of a policy")
    return PolicyVersion(*row)


def find(connection: Connection, name: str) -> Sequence[PolicyVersion]:
    """The versions of a policy, newest first, by its name, its id, or the id of a version."""
    found = connection.execute(_NAMED, {"name": name.strip().lower()}).scalars().all()
    if len(found) != 1:
        raise (
            NotFound(f"there is no policy {name}") if not found else Conflict(f"several policies are named {name}: use the id")
        )
    return versions_of(connection, found[0])
