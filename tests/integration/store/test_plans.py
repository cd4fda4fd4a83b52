"""A mailbox that is new in a large archive, of which Postgres' statistics know nothing yet: work grows with what is asked for,
not with what the mailbox holds."""

from __future__ import annotations

from typing import Any

import psycopg
import pytest
from sqlalchemy import Connection, event, text

from archiver.db import sql
from archiver.sync import ledger
from archiver.sync.ingest import statements
from tests.integration.store.conftest import MAILBOX, SECOND, World

HELD = 3_000
ASKED = [f"INBOX␟1␟{number}" for number in range(HELD - 100, HELD + 100)]
_FILL = text("""
    INSERT INTO message_copies (id, message_id, mailbox_id, provider_key, folder)
    SELECT gen_random_uuid(), gen_random_uuid(), :mailbox, 'INBOX␟1␟' || n, 'INBOX' FROM generate_series(1, :count) AS n""")


@pytest.fixture
def connection(world: World) -> Any:
    with world.engine.connect() as connection:
        connection.execute(_FILL, {"mailbox": MAILBOX, "count": 30_000})
        connection.commit()
        connection.execute(text("ANALYZE message_copies"))
        connection.execute(_FILL, {"mailbox": SECOND, "count": HELD})
        connection.execute(text("SET LOCAL work_mem = '64kB'"))  # so that a few thousand keys are many
        yield connection


def test_a_batch_looks_only_at_its_own_keys(connection: Connection) -> None:
    changes = sql.rows([{"kind": "changed", "key": key, "flags": ["x"], "new_key": f"{key}n"} for key in ASKED])
    for statement, parameters in (
        (sql.driver_form(statements.FIND_COPIES), {"keys": sql.rows(ASKED)}),
        (sql.driver_form(statements.KNOWN), {"keys": ASKED}),
        (sql.driver_form(statements.CHANGE_COPIES), {"rows": changes, "at": None}),
    ):
        assert rows_looked_at(connection, statement, mailbox_id=SECOND, **parameters) < 4 * len(ASKED), statement


@pytest.mark.parametrize("few", [10_000, 1], ids=["as a parameter", "in a table"])
def test_a_listing_is_compared_in_one_pass(connection: Connection, monkeypatch: pytest.MonkeyPatch, few: int) -> None:
    monkeypatch.setattr(ledger, "_FEW_KEYS", few)
    looked_at: list[int] = []

    def look(cursor: Any, statement: str, parameters: Any) -> None:
        if "message_copies" in statement and "EXPLAIN" not in statement:
            looked_at.append(rows_looked_at(connection, statement, **parameters))

    event.listen(connection, "before_cursor_execute", lambda _, cursor, said, given, *__: look(cursor, said, given))
    listed = [f"INBOX␟1␟{number}" for number in range(1, 2 * HELD)]
    ledger.differences(connection, SECOND, "INBOX", listed, "#")
    connection.execute(text("DROP TABLE IF EXISTS listed_keys"))
    ledger.record_listings(connection, SECOND, [ledger.LedgerListing("INBOX", listed)])
    assert len(ledger.gap(connection, SECOND)) == HELD - 1
    assert len(looked_at) == 4
    assert max(looked_at) < 6 * HELD


def rows_looked_at(connection: Connection, statement: str, **parameters: Any) -> int:
    """As often as a row of a table or of a list was looked at, whether it was used or not."""
    raw = connection.connection.driver_connection
    assert isinstance(raw, psycopg.Connection)
    with raw.transaction(force_rollback=True), raw.cursor() as cursor:
        cursor.execute(f"EXPLAIN (ANALYZE, TIMING OFF, FORMAT JSON) {statement}".encode(), parameters)
        row = cursor.fetchone()
    assert row is not None
    return _rows(row[0][0]["Plan"])


def _rows(node: dict[str, Any]) -> int:
    per_loop = node.get("Rows Removed by Filter", 0) + node.get("Rows Removed by Join Filter", 0)
    own = (per_loop + (node["Actual Rows"] if "Scan" in node["Node Type"] else 0)) * node["Actual Loops"]
    return int(own) + sum(_rows(inner) for inner in node.get("Plans", ()))
