"""What ties the database to the journal in the packs: its generation, and the numbers that it has given out."""

from __future__ import annotations

from sqlalchemy import Connection, text

from archiver.store.journal import Stamp

NEXT_STAMP = "SELECT generation, nextval('journal_numbers') AS number FROM archive_state"
"""Once the locks are held: whoever waits for them gets a later number."""

_LAST = text("""
    SELECT s.generation, CASE WHEN j.is_called THEN j.last_value ELSE 0 END AS number
    FROM archive_state s, journal_numbers j""")
_RAISE = text("UPDATE archive_state SET generation = greatest(generation, :generation) + 1")
# Never back: others may take numbers at the same time.
_GO_ON = text("SELECT setval('journal_numbers', :number) FROM journal_numbers WHERE last_value < :number")


def next_stamp(connection: Connection) -> Stamp:
    row = connection.exec_driver_sql(NEXT_STAMP).one()
    return Stamp(row.generation, row.number)


def last_stamp(connection: Connection) -> Stamp:
    """The newest that this database can have given out. A journal frame above it tells of another one: a later state of this
    database, which was lost, or of the one before a rebuild."""
    row = connection.execute(_LAST).one()
    return Stamp(row.generation, row.number)


def rise_above(connection: Connection, newest: Stamp) -> None:
    """A new generation, above everything that is in the packs."""
    raise_generation(connection, newest)
    go_on_above(connection, newest)


def raise_generation(connection: Connection, newest: Stamp) -> None:
    connection.execute(_RAISE, {"generation": newest.generation})


def go_on_above(connection: Connection, newest: Stamp) -> None:
    """Not rolled back with its transaction: for one whose other work is committed already, or would begin anew."""
    connection.execute(_GO_ON, {"number": newest.number})
