"""Groups the messages of a thread again, and splits it where they no longer belong together.

The group that has the message after which the thread is named keeps its name. The documents of all others are due again.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from uuid import UUID

from sqlalchemy import Connection

from archiver.db import sql
from archiver.indexing.rows import ThreadLink, ThreadMember
from archiver.mail.thread_groups import Decisions, Key, group_messages, linked_keys, own_key
from archiver.search.conversations import load_correspondents
from archiver.search.thread_decisions import load_decisions

# Messages that are assigned to a thread, but whose documents are still under way, do not have it in their row yet.
_MEMBERS = """
    SELECT m.id, m.thread_id, m.internet_message_id, m.in_reply_to, m.reference_ids, m.subject, m.sort_at,
        ARRAY(SELECT c.mailbox_id FROM message_copies c WHERE c.message_id = m.id AND c.deleted_at IS NULL) AS mailboxes
    FROM messages m WHERE m.thread_id = ANY(:threads::uuid[]) OR (m.thread_id IS NULL AND (m.id = ANY(:ids::uuid[])
        OR m.id IN (SELECT unnest(message_ids) FROM index_leases)))"""
_LARGE = """
    SELECT thread_id FROM messages WHERE thread_id = ANY(:threads::uuid[]) GROUP BY thread_id HAVING count(*) > :limit"""
_THREADS = "SELECT key, thread_id FROM thread_links WHERE key = ANY(:keys::uuid[])"
_SET_LINKS = """
    INSERT INTO thread_links (key, thread_id) SELECT k, t FROM json_to_recordset(:rows::json) AS x(k uuid, t uuid)
    ON CONFLICT (key) DO UPDATE SET thread_id = excluded.thread_id"""
_MOVE_MESSAGES = """
    UPDATE messages SET thread_id = moved.t, index_version = index_version + 1
    FROM (SELECT m.id, x.t FROM json_to_recordset(:rows::json) AS x(i uuid, t uuid) JOIN messages m ON m.id = x.i
          WHERE m.thread_id IS NOT NULL ORDER BY m.id FOR NO KEY UPDATE OF m) AS moved
    WHERE messages.id = moved.id"""


def regroup(connection: Connection, threads: Sequence[UUID], ids: Iterable[UUID] = (), *, limit: int) -> int:
    """The number of new threads. `ids` are messages that were just assigned to one. Threads over `limit` messages are left as
    they are. The caller holds the threads alone (`threads.hold_threads_alone`)."""
    large = set(sql.query(connection, _LARGE, UUID, threads=sql.uuids(threads), limit=limit))
    small = set(threads) - large
    if not small:
        return 0
    rows = sql.query(connection, _MEMBERS, ThreadMember, threads=sql.uuids(small), ids=sql.uuids(ids))
    decisions = load_decisions(connection, rows)
    by_thread = _by_thread(connection, rows, small)
    new = 0
    for thread, members in sorted(by_thread.items()):
        groups = group_messages(members, lambda ids: load_correspondents(connection, ids), decisions)
        if len(groups) > 1:
            _split(connection, thread, members, groups, decisions)
            new += len(groups) - 1
    return new


def _by_thread(
    connection: Connection, rows: Sequence[ThreadMember], threads: Collection[UUID]
) -> dict[UUID, list[ThreadMember]]:
    """`thread_links` says which thread a message is in."""
    keys = sql.uuids({UUID(own_key(row)) for row in rows})
    links: dict[Key, UUID] = {row.key.hex: row.thread_id for row in sql.query(connection, _THREADS, ThreadLink, keys=keys)}
    found: dict[UUID, list[ThreadMember]] = {}
    for row in rows:
        thread = links.get(own_key(row))
        if thread is not None and thread in threads:
            found.setdefault(thread, []).append(row)
    return found


def _split(
    connection: Connection,
    thread: UUID,
    members: Sequence[ThreadMember],
    groups: Sequence[Sequence[UUID]],
    decisions: Decisions,
) -> None:
    rows = {row.id: row for row in members}
    stays = next((group for group in groups if thread in group), None) or min(groups, key=min)
    moved, links = [], dict[Key, UUID]()
    for group in groups:
        if group is stays:
            continue
        name = min(group)
        for message_id in group:
            moved.append({"i": message_id, "t": name})
            links |= dict.fromkeys((own_key(rows[message_id]), *linked_keys(rows[message_id], decisions)), name)
    sql.run(connection, _SET_LINKS, rows=sql.rows([{"k": key, "t": name} for key, name in sorted(links.items())]))
    sql.run(connection, _MOVE_MESSAGES, rows=sql.rows(moved))
