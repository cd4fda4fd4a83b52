"""What ties the database to the journal in the packs: its generation, and the journal numbers it has issued."""

from __future__ import annotations

from uuid import UUID

from sqlalchemy import Connection

from archiver.db.sql import query_one, query_optional, run
from archiver.store.journal import Stamp
from archiver.sync.ingest.statements import NEXT_STAMP

_LAST = """
    SELECT s.generation, CASE WHEN j.is_called THEN j.last_value ELSE 0 END AS number
    FROM archive_state s, journal_numbers j"""
_RAISE = "UPDATE archive_state SET generation = greatest(generation, :generation) + 1"
_ID = "SELECT archive_id FROM archive_state"
_OWN_ID = "SELECT archive_id FROM archive_state WHERE EXISTS (SELECT 1 FROM packs)"
_TAKE_ID = "UPDATE archive_state SET archive_id = :id"
# Never backwards: other transactions may take numbers at the same time.
_GO_ON = "SELECT setval('journal_numbers', :number) FROM journal_numbers WHERE last_value < :number"


def next_stamp(connection: Connection) -> Stamp:
    return query_one(connection, NEXT_STAMP, Stamp)


def last_stamp(connection: Connection) -> Stamp:
    """The newest stamp this database can have issued. A journal frame above it comes from another state: a later one of this
    database, which was lost, or the database before a rebuild."""
    return query_one(connection, _LAST, Stamp)


def rise_above(connection: Connection, newest: Stamp) -> None:
    """Starts a new generation, above everything in the packs."""
    raise_generation(connection, newest)
    go_on_above(connection, newest)


def raise_generation(connection: Connection, newest: Stamp) -> None:
    run(connection, _RAISE, generation=newest.generation)


def go_on_above(connection: Connection, newest: Stamp) -> None:
    """Not rolled back with its transaction: for callers whose other work is committed already, or would start over."""
    run(connection, _GO_ON, number=newest.number)


def archive_id(connection: Connection) -> UUID:
    """Which archive this database is of. It is in the packs, too, with what is set up."""
    return query_one(connection, _ID, UUID)


def own_archive_id(connection: Connection) -> UUID | None:
    """None for a database that knows no pack yet: it becomes part of whichever archive it is rebuilt from."""
    return query_optional(connection, _OWN_ID, UUID)


def take_archive_id(connection: Connection, given: UUID) -> None:
    run(connection, _TAKE_ID, id=given)
