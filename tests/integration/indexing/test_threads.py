"""Threads come out the same in any order of arrival, in batches of any size, and across mailboxes and sources."""

from __future__ import annotations

import hashlib
import random
from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from sqlalchemy import Engine, text

from archiver.mail.threads import normalise_subject
from archiver.models.ids import message_uuid, uuid7
from archiver.services.threads import hold_threads, join_threads, thread_subject
from tests.integration.indexing.conftest import IndexWorld
from tests.integration.store.conftest import MAILBOX, SECOND
from tests.store_world import mail

_START = datetime(2024, 3, 1, tzinfo=UTC)
_ADD = text("""
    INSERT INTO messages (id, sha256, canonical_sha256, internet_message_id, in_reply_to, reference_ids, sort_at, date_origin,
        subject, size_bytes, thread_subject)
    VALUES (:id, :sha256, :sha256, :mid, :parent, :references, :at, 'header', :subject, 1, :key)""")
_ROWS = text("""
    SELECT id, internet_message_id, in_reply_to, reference_ids, subject, sort_at FROM messages
    WHERE id = ANY(:ids) ORDER BY id""")

Mail = tuple[int, str | None, tuple[str, ...], str, str, int]
"""Number, Message-ID, parents, subject, sender, day."""


def _forest(draw: Any) -> list[Mail]:
    count = draw(st.integers(2, 14))
    mails: list[Mail] = []
    for number in range(count):
        parents = draw(st.lists(st.integers(0, count - 1), max_size=2)) if draw(st.booleans()) else []
        subject = draw(st.sampled_from(["Lunch", "Re: Lunch", "Dinner", "Re: Dinner", ""]))
        sender = draw(st.sampled_from(["ann@x", "bob@x", "eve@x"]))
        mid = f"m{number}@x" if draw(st.integers(0, 9)) else None
        mails.append((number, mid, tuple(f"m{parent}@x" for parent in parents), subject, sender, draw(st.integers(0, 90))))
    return mails


forests = st.composite(_forest)()


def _threads(engine: Engine, mails: Iterable[Mail], batch: int) -> set[frozenset[int]]:
    """Which numbers are together when they arrive in this order. The database is empty before and after."""
    listed = list(mails)
    hashes = {number: hashlib.sha256(number.to_bytes(4)).digest() for number, *_ in listed}
    ids = {number: message_uuid(sha256) for number, sha256 in hashes.items()}
    numbers = {message_id: number for number, message_id in ids.items()}
    with engine.begin() as connection:
        for start in range(0, len(listed), batch):
            portion = listed[start : start + batch]
            for number, mid, parents, subject, sender, day in portion:
                values = {
                    "id": ids[number],
                    "sha256": hashes[number],
                    "mid": mid,
                    "parent": parents[0] if parents else None,
                }
                at = _START + timedelta(days=day)
                values |= {
                    "references": list(parents),
                    "at": at,
                    "subject": subject,
                    "key": thread_subject(*normalise_subject(subject or "")),
                }
                connection.execute(_ADD, values)
                connection.execute(
                    text("INSERT INTO participants (message_id, position, role, address) VALUES (:i, 0, 'from', :a)"),
                    {"i": ids[number], "a": sender},
                )
                connection.execute(
                    text("INSERT INTO message_copies (id, message_id, mailbox_id, provider_key) VALUES (:c, :i, :m, :k)"),
                    {"c": uuid7(), "i": ids[number], "m": MAILBOX, "k": str(number)},
                )
            rows = connection.execute(_ROWS, {"ids": [ids[number] for number, *_ in portion]}).all()
            found = join_threads(connection, rows)
            for message_id, thread in found.items():
                connection.execute(text("UPDATE messages SET thread_id = :t WHERE id = :i"), {"t": thread, "i": message_id})
        hold_threads(connection)
        groups: dict[UUID, set[int]] = {}
        for row in connection.execute(text("SELECT thread_id, id FROM messages")):
            groups.setdefault(row.thread_id, set()).add(numbers[row.id])
        connection.rollback()
    return {frozenset(group) for group in groups.values()}


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(mails=forests, seed=st.integers(0, 1000), batch=st.integers(1, 15))
def test_any_order_gives_the_same_threads(engine: Engine, mails: list[Mail], seed: int, batch: int) -> None:
    shuffled = mails.copy()
    random.Random(seed).shuffle(shuffled)
    in_order = _threads(engine, mails, len(mails))
    assert _threads(engine, shuffled, batch) == in_order
    together = {number: group for group in in_order for number in group}
    by_id = {mid: number for number, mid, *_ in mails if mid}
    for number, _, parents, *_ in mails:
        for parent in parents:
            if parent in by_id:
                assert together[by_id[parent]] == together[number]


def reply(number: int, *parents: int, subject: str = "") -> bytes:
    references = " ".join(f"<{parent}@example.org>" for parent in parents)
    lines = (
        f"Message-ID: <{number}@example.org>\r\nReferences: {references}\r\nFrom: a{number}@x\r\nSubject: {subject or number}"
    )
    return f"{lines}\r\nDate: Tue, 05 Mar 2024 10:00:00 +0000\r\n\r\nanswer {number}\r\n".encode()


def test_a_late_parent_joins_two_threads_and_their_documents_follow(at: IndexWorld) -> None:
    at.put(reply(102, 1))
    at.put(reply(103, 2), mailbox=SECOND)
    at.index()
    assert len({found["thread"] for found in at.documents().values()}) == 2
    at.put(reply(104, 1, 2), mailbox=SECOND)
    assert at.index().indexed >= 2  # the new one, and those of the thread that was taken in
    assert len({found["thread"] for found in at.documents().values()}) == 1
    at.assert_agrees()


def test_one_thread_goes_across_mailboxes(at: IndexWorld) -> None:
    at.put(mail(1))
    at.put(reply(200, 1), mailbox=SECOND)
    at.index(batch=1)
    assert at.value("SELECT count(DISTINCT thread_id) FROM messages") == 1
    at.assert_agrees()


def test_many_references_join_few_threads(at: IndexWorld) -> None:
    at.put(reply(5000, *range(1, 1000)))
    at.index()
    assert at.value("SELECT count(*) FROM thread_links") <= 52
