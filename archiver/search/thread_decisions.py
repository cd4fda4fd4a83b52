"""The parts of conversations that people split off: which messages they decided about."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from sqlalchemy import Connection

from archiver.db import sql
from archiver.mail.thread_groups import UNDECIDED, Decisions, Key, Threadable, hash_key, own_key, parents_of

_ANY = "SELECT EXISTS (SELECT 1 FROM thread_splits WHERE undone_at IS NULL)"
# Of several splits of one message the last one counts.
_DECISIONS = """
    SELECT DISTINCT ON (m.key) replace(m.key::text, '-', '') AS key, replace(m.split_id::text, '-', '') AS part
    FROM thread_split_members m JOIN thread_splits s ON s.id = m.split_id
    WHERE m.key = ANY(:keys::uuid[]) AND s.undone_at IS NULL ORDER BY m.key, s.created_at DESC, s.id DESC"""


class HexDecision(NamedTuple):
    """Both as hex digits."""

    key: Key
    part: Key


def load_decisions(connection: Connection, messages: Iterable[Threadable]) -> Decisions:
    """What was decided about these messages, and about those that they name."""
    return decisions_on(
        connection, (key for message in messages for key in (own_key(message), *map(hash_key, parents_of(message))))
    )


def decisions_on(connection: Connection, keys: Iterable[Key]) -> Decisions:
    if not sql.query_one(connection, _ANY, bool):
        return UNDECIDED
    return dict(sql.query(connection, _DECISIONS, HexDecision, keys=f"{{{','.join(set(keys))}}}"))
