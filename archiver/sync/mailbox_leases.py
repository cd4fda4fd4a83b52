"""Leases that decide which process watches a mailbox for new mail: the one that holds its advisory lock.

The locks belong to a transaction on a connection of their own, because a pooler may share connections between transactions.
When the process or the connection dies, another process can take them.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from uuid import UUID

import psycopg

_LEASE = "SELECT pg_try_advisory_xact_lock(hashtextextended('archiver:watch:' || %s, 0))"
_ALLOW_IDLE = "SET LOCAL idle_in_transaction_session_timeout = 0"


class MailboxLeases:
    def __init__(self, connection: psycopg.Connection[Any]) -> None:
        self._connection = connection

    def check(self) -> None:
        """Raises if the connection, and every lease with it, is lost."""
        self._connection.execute(_ALLOW_IDLE)

    def take(self, mailbox_id: UUID) -> bool:
        """False if another process watches this mailbox."""
        row = self._connection.execute(_LEASE, (str(mailbox_id),)).fetchone()
        return row is not None and bool(row[0])

    def release_all(self) -> None:
        self._connection.rollback()


@contextmanager
def open_leases(database_url: str) -> Iterator[MailboxLeases]:
    with psycopg.connect(database_url, prepare_threshold=None, application_name="archiver-watcher") as connection:
        yield MailboxLeases(connection)
