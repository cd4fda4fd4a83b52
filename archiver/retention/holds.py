"""Legal holds: mail that nothing deletes, until the hold is released with a reason.

A hold names mailboxes, people, a query and single messages; mail is on hold if it fits any of them, whenever it arrives. A
trigger (archiver.db.tables.retention) refuses each deletion of mail on hold. Queries can't all be answered in SQL, so every
deletion compares its messages with them first (`find_held`), in its own transaction.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID
from zoneinfo import ZoneInfo

from sqlalchemy import Connection, Engine, text

from archiver.access import audit
from archiver.access.principal import Principal
from archiver.db.ids import uuid7
from archiver.errors import Conflict, NotFound, UsageError
from archiver.retention.mail_check import MailCheck, MailUnit
from archiver.retention.predicate import MailQuery, PredicateCompiler
from archiver.search.names import DatabaseNames
from archiver.search.service import MailSearch
from archiver.store.archive import Archive

MAX_SELECTED = 50_000
"""The messages that a person selects are in each snapshot of the configuration; a query has no such limit."""
_MAX_CHARS = 2_000
_OVERLAP = timedelta(hours=1)
"""Longer than a batch takes from its time to its commit."""

_COLUMNS = """id, name, reason, mailbox_ids, addresses, query, zone, created_by, created_by_id, created_at, evaluated_at,
    release_requested_at, release_requested_by, release_requested_by_id, release_reason, released_at, released_by"""
_LIST = text(f"SELECT {_COLUMNS} FROM holds WHERE CAST(:all AS boolean) OR released_at IS NULL ORDER BY created_at, id")  # noqa: S608
_FIND = text(f"SELECT {_COLUMNS} FROM holds WHERE CAST(id AS text) = :name OR lower(name) = :name"  # noqa: S608
             " ORDER BY released_at IS NOT NULL, created_at DESC LIMIT 1")  # fmt: skip
_INSERT = text("""
    INSERT INTO holds (id, name, reason, mailbox_ids, addresses, query, zone, created_by, created_by_id, created_at)
    VALUES (:id, :name, :reason, :mailbox_ids, :addresses, :query, :zone, :created_by, :created_by_id, :created_at)""")
_TAKEN = text("SELECT 1 FROM holds WHERE lower(name) = lower(:name) AND released_at IS NULL")
_SELECT_MESSAGES = text("""
    INSERT INTO hold_messages (hold_id, message_id, is_selected) SELECT :hold_id, m.id, true FROM messages m
    WHERE m.id = ANY(:ids) ON CONFLICT (hold_id, message_id) DO UPDATE SET is_selected = true RETURNING message_id""")
_ADD_FOUND = text("""
    INSERT INTO hold_messages (hold_id, message_id) SELECT :hold_id, unnest(CAST(:ids AS uuid[])) ON CONFLICT DO NOTHING""")
_EVALUATED = text("UPDATE holds SET evaluated_at = :at WHERE id = :id")
_REQUEST = text("""
    UPDATE holds SET release_requested_at = :at, release_requested_by = :name, release_requested_by_id = :user_id,
        release_reason = :reason WHERE id = :id AND released_at IS NULL""")
_WITHDRAW = text("""
    UPDATE holds SET release_requested_at = NULL, release_requested_by = NULL, release_requested_by_id = NULL,
        release_reason = NULL WHERE id = :id AND released_at IS NULL AND release_requested_at IS NOT NULL RETURNING id""")
_RELEASE = text("""
    UPDATE holds SET released_at = :at, released_by = :name, release_reason = :reason
    WHERE id = :id AND released_at IS NULL RETURNING id""")
_LOCK_ALL = text("SELECT pg_advisory_xact_lock(hashtextextended('archiver:holds', 0))")
_LOCK_SHARED = text("SELECT pg_advisory_xact_lock_shared(hashtextextended('archiver:holds', 0))")
_CHECKED = text("SELECT set_config('archiver.holds_checked', 'yes', true)")
REPLAYS = text("SELECT set_config('archiver.replays_deletions', 'yes', true)")
"""In a transaction that carries out deletions of the packs: they were committed before, when nothing stood against them."""
_HELD = text("""
    SELECT u.message_id, u.mailbox_id, h.id, h.name FROM unnest(CAST(:messages AS uuid[]), CAST(:mailboxes AS uuid[]))
        AS u(message_id, mailbox_id), LATERAL holds_on(u.message_id, u.mailbox_id) AS h""")
_ACTIVE = text(
    "SELECT count(*) FILTER (WHERE query IS NOT NULL) AS queries, count(*) AS holds FROM holds WHERE released_at IS NULL"
)
_ADD_SURE = """
    INSERT INTO hold_messages (hold_id, message_id)
    SELECT DISTINCT CAST(:hold_id AS uuid), m.id FROM message_copies c JOIN messages m ON m.id = c.message_id
    WHERE c.deleted_at IS NULL AND {lower} AND {more} ON CONFLICT DO NOTHING"""
_UNSURE = """
    SELECT DISTINCT c.message_id, c.mailbox_id FROM message_copies c JOIN messages m ON m.id = c.message_id
    WHERE c.deleted_at IS NULL AND {upper} AND {more}
        AND NOT EXISTS (SELECT 1 FROM hold_messages x WHERE x.hold_id = :hold_id AND x.message_id = m.id)"""
_OF_MESSAGE = text("""
    SELECT DISTINCT h.id, h.name FROM message_copies c, LATERAL holds_on(c.message_id, c.mailbox_id) AS h
    WHERE c.message_id = :id AND c.deleted_at IS NULL ORDER BY h.name""")
_COUNT = text("""
    SELECT count(*) FROM (
        SELECT x.message_id FROM hold_messages x WHERE x.hold_id = :id
        UNION SELECT c.message_id FROM message_copies c WHERE c.deleted_at IS NULL AND (c.mailbox_id = ANY(:mailbox_ids)
            OR c.mailbox_id IN (SELECT b.id FROM mailboxes b WHERE lower(b.address) = ANY(:addresses)))
        UNION SELECT p.message_id FROM participants p WHERE left(p.address, 320) COLLATE "C" = ANY(:addresses)) AS held""")


class OnHold(Conflict):
    """The mail is on hold: it can be deleted once the hold is released."""


@dataclass(frozen=True, slots=True)
class Hold:
    id: UUID
    name: str
    reason: str
    mailbox_ids: list[UUID]
    addresses: list[str]
    query: str | None
    zone: str
    created_by: str
    created_by_id: UUID | None
    created_at: datetime
    evaluated_at: datetime | None
    release_requested_at: datetime | None
    release_requested_by: str | None
    release_requested_by_id: UUID | None
    release_reason: str | None
    released_at: datetime | None
    released_by: str | None

    def parsed(self, now: datetime | None = None) -> MailQuery:
        """Relative dates count from the day on which the hold was placed: what is on hold does not move on with time."""
        return MailQuery.parse(self.query or "", now or self.created_at, ZoneInfo(self.zone))


@dataclass(frozen=True, slots=True)
class NewHold:
    name: str
    reason: str
    mailbox_ids: Sequence[UUID] = ()
    addresses: Sequence[str] = ()
    query: str | None = None
    message_ids: Sequence[UUID] = ()
    zone: str = "UTC"


def place(engine: Engine, principal: Principal, new: NewHold) -> Hold:
    """In force when this returns: deletions that began before have ended, and later ones respect it."""
    hold_id, at = uuid7(), datetime.now(UTC)
    values = _validated(engine, new, at)
    with engine.begin() as connection:
        connection.execute(_LOCK_ALL)
        if connection.execute(_TAKEN, {"name": values["name"]}).first():
            raise Conflict(f"there is already a hold named {values['name']}")
        by = {"created_by": principal.name, "created_by_id": principal.user_id, "created_at": at}
        connection.execute(_INSERT, {**values, "id": hold_id, **by})
        _select(connection, hold_id, new.message_ids)
        audit.record(connection, principal, "hold.placed", "hold", hold_id, **values, messages=len(set(new.message_ids)))
        return load(connection, str(hold_id))


def _validated(engine: Engine, new: NewHold, at: datetime) -> dict[str, Any]:
    name, reason = " ".join(new.name.split()), new.reason.strip()
    if not name or not reason or len(name) > 200 or len(reason) > _MAX_CHARS:
        raise UsageError("a hold needs a name (up to 200 characters) and a reason (up to 2,000)")
    addresses = sorted({address.strip().lower() for address in new.addresses if address.strip()})
    if wrong := next((address for address in addresses if "@" not in address or len(address) > 320), None):
        raise UsageError(f"{wrong}: expected the address of a person")
    query = (new.query or "").strip() or None
    if query is not None:
        MailQuery.parse(query, at, ZoneInfo(new.zone)).check_names(DatabaseNames(engine))
    if not (addresses or query or new.mailbox_ids or new.message_ids):
        raise UsageError("name what the hold is on: mailboxes, people, a query or messages")
    boxes = sorted(set(new.mailbox_ids))
    return {"name": name, "reason": reason, "mailbox_ids": boxes, "addresses": addresses, "query": query, "zone": new.zone}


def _select(connection: Connection, hold_id: UUID, message_ids: Sequence[UUID]) -> None:
    wanted = sorted(set(message_ids))
    if len(wanted) > MAX_SELECTED:
        raise UsageError(f"a hold can have up to {MAX_SELECTED:,} selected messages; use a query for more")
    found = set(connection.execute(_SELECT_MESSAGES, {"hold_id": hold_id, "ids": wanted}).scalars()) if wanted else set()
    if missing := next((one for one in wanted if one not in found), None):
        raise NotFound(f"there is no message {missing}")


def load(connection: Connection, name: str) -> Hold:
    """By id or by name; of several with one name, the one in force, or the newest."""
    row = connection.execute(_FIND, {"name": name.strip().lower()}).one_or_none()
    if row is None:
        raise NotFound(f"there is no hold {name}")
    return Hold(*row)


def list_holds(connection: Connection, *, released: bool = False) -> list[Hold]:
    return [Hold(*row) for row in connection.execute(_LIST, {"all": released})]


def add_messages(connection: Connection, principal: Principal, hold: Hold, message_ids: Sequence[UUID]) -> None:
    connection.execute(_LOCK_ALL)
    _refuse_released(hold)
    _select(connection, hold.id, message_ids)
    audit.record(connection, principal, "hold.extended", "hold", hold.id, name=hold.name, messages=len(message_ids))


def release(connection: Connection, principal: Principal, hold: Hold, reason: str, *, second_person: bool) -> Hold:
    """With `second_person`, the first call requests the release, and the call of another principal carries it out."""
    _refuse_released(hold)
    reason = reason.strip() or (hold.release_reason or "")
    if not reason or len(reason) > _MAX_CHARS:
        raise UsageError("a release needs a reason (up to 2,000 characters)")
    values = {"id": hold.id, "at": datetime.now(UTC), "name": principal.name, "reason": reason}
    if second_person and hold.release_requested_at is None:
        connection.execute(_REQUEST, {**values, "user_id": principal.user_id})
        audit.record(connection, principal, "hold.release_requested", "hold", hold.id, name=hold.name, reason=reason)
    else:
        if second_person and hold.release_requested_by == principal.name:
            raise Conflict(f"{principal.name} requested this release: another administrator has to approve it")
        if connection.execute(_RELEASE, {**values, "reason": hold.release_reason or reason}).first() is None:
            raise Conflict(f"the hold {hold.name} was released already")
        audit.record(
            connection, principal, "hold.released", "hold", hold.id, name=hold.name, reason=reason,
            requested_by=hold.release_requested_by,
        )  # fmt: skip
    return load(connection, str(hold.id))


def withdraw_release(connection: Connection, principal: Principal, hold: Hold) -> Hold:
    if connection.execute(_WITHDRAW, {"id": hold.id}).first() is None:
        raise Conflict(f"nobody has requested to release the hold {hold.name}")
    audit.record(connection, principal, "hold.release_withdrawn", "hold", hold.id, name=hold.name)
    return load(connection, str(hold.id))


def _refuse_released(hold: Hold) -> None:
    if hold.released_at is not None:
        raise Conflict(f"the hold {hold.name} was released on {hold.released_at:%Y-%m-%d}")


def count(connection: Connection, hold: Hold) -> int:
    """The messages on hold now; for a query, those that it has found so far."""
    values = {"id": hold.id, "mailbox_ids": hold.mailbox_ids, "addresses": hold.addresses}
    return int(connection.execute(_COUNT, values).scalar_one())


def names_on_message(connection: Connection, message_id: UUID) -> list[tuple[UUID, str]]:
    """The holds that a message is on, in any of its mailboxes."""
    return [(row.id, row.name) for row in connection.execute(_OF_MESSAGE, {"id": message_id})]


def find_held(connection: Connection, engine: Engine, archive: Archive, units: Sequence[MailUnit]) -> dict[MailUnit, list[str]]:
    """Those of the units that are on hold, and by which holds. Each transaction that deletes calls it first: until its
    end, no hold is placed."""
    connection.execute(_LOCK_SHARED)
    active = connection.execute(_ACTIVE).one()
    held: dict[MailUnit, list[str]] = {}
    if active.queries:
        held = _compare_with_queries(connection, engine, archive, units)
    if active.holds:
        values = {"messages": [unit.message_id for unit in units], "mailboxes": [unit.mailbox_id for unit in units]}
        for row in connection.execute(_HELD, values):
            held.setdefault(MailUnit(row.message_id, row.mailbox_id), []).append(f"on hold: {row.name}")
    connection.execute(_CHECKED)
    return held


def _compare_with_queries(
    connection: Connection, engine: Engine, archive: Archive, units: Sequence[MailUnit]
) -> dict[MailUnit, list[str]]:
    """Adds what the queries find to the messages on hold. Returns what can't be compared yet, which counts as held."""
    unclear: dict[MailUnit, list[str]] = {}
    ids = sorted({unit.message_id for unit in units})
    for hold in list_holds(connection):
        if hold.query is not None:
            for unit in _evaluate(connection, engine, archive, hold, "m.id = ANY(:ids)", {"ids": ids}):
                unclear.setdefault(unit, []).append(f"perhaps on hold: {hold.name}")
    return unclear


def _evaluate(
    connection: Connection, engine: Engine, archive: Archive, hold: Hold, more: str, values: dict[str, object]
) -> list[MailUnit]:
    """Returns the units for which it can't be known yet."""
    query, compiler = hold.parsed(), PredicateCompiler()
    bounds = compiler.compile(query.tree)
    values = {**compiler.values, "hold_id": hold.id, **values}
    connection.execute(text(_ADD_SURE.format(lower=bounds.lower, more=more)), values)
    if bounds.is_exact:
        return []
    rows = connection.execute(text(_UNSURE.format(upper=bounds.upper, more=more)), values).all()
    found: set[UUID] = set()
    unclear: list[MailUnit] = []
    for unit, matches in MailCheck(engine, archive).check(query, [MailUnit(*row) for row in rows]):
        if matches:
            found.add(unit.message_id)
        elif matches is None:
            unclear.append(unit)
    _add(connection, hold, found)
    return unclear


def refresh(engine: Engine, archive: Archive, search: MailSearch, hold: Hold) -> None:
    """Adds what the query of the hold finds by now to its messages, for lists and counts: deletions do not depend on it.

    The first time, the index narrows down what has to be read; later, only mail that has arrived since.
    """
    if hold.query is None or hold.released_at is not None:
        return
    at = datetime.now(UTC)
    more, values = "c.created_at >= :since", dict[str, object](since=(hold.evaluated_at or at) - _OVERLAP)
    if hold.evaluated_at is None:
        found = search.message_ids(hold.query, zone=ZoneInfo(hold.zone), now=hold.created_at)
        more, values = "(m.id = ANY(:ids) OR m.indexed_version = 0)", {"ids": list(found)}
    with engine.begin() as connection:
        _evaluate(connection, engine, archive, hold, more, values)
        connection.execute(_EVALUATED, {"id": hold.id, "at": at})


def refresh_all(engine: Engine, archive: Archive, search: MailSearch) -> None:
    with engine.connect() as connection:
        found = list_holds(connection)
    for hold in found:
        refresh(engine, archive, search, hold)


def _add(connection: Connection, hold: Hold, message_ids: Iterable[UUID]) -> None:
    if ids := sorted(message_ids):
        connection.execute(_ADD_FOUND, {"hold_id": hold.id, "ids": ids})
