"""Threads come out the same in any order of arrival, in batches of any size, and across mailboxes and sources."""

from __future__ import annotations

import hashlib
import random
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from typing import Any
from uuid import UUID

from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from sqlalchemy import Engine, text

from archiver.db.ids import message_uuid, uuid7
from archiver.indexing.reconcile import reconcile
from archiver.indexing.rethread import needs_rethreading, rethread
from archiver.indexing.threads import hold_threads, join_threads
from archiver.mail.thread_groups import group_messages, thread_subject
from archiver.mail.threads import Correspondents, normalise_subject
from tests.integration.indexing.conftest import IndexWorld
from tests.integration.store.conftest import MAILBOX, SECOND
from tests.support.store_world import mail

_START = datetime(2024, 3, 1, tzinfo=UTC)
_ADD = text("""
    INSERT INTO messages (id, sha256, canonical_sha256, internet_message_id, in_reply_to, reference_ids, sort_at, date_origin,
        subject, size_bytes, thread_subject)
    VALUES (:id, :sha256, :sha256, :mid, :parent, :references, :at, 'header', :subject, 1, :key)""")
_ROWS = text("""
    SELECT id, internet_message_id, in_reply_to, reference_ids, subject, sort_at FROM messages
    WHERE id = ANY(:ids) ORDER BY id""")

Mail = tuple[int, str | None, tuple[str, ...], str, tuple[str, str], int]
"""Number, Message-ID, parents, subject, sender and recipient, day."""


def _forest(draw: Any) -> list[Mail]:
    count = draw(st.integers(2, 14))
    mails: list[Mail] = []
    for number in range(count):
        parents = draw(st.lists(st.integers(0, count - 1), max_size=2)) if draw(st.booleans()) else []
        subject = draw(st.sampled_from(["Lunch", "Re: Lunch", "Dinner", "Re: Dinner", ""]))
        people = tuple(draw(st.permutations(["ann@x", "bob@x", "list@x"]))[:2])
        mid = f"m{number}@x" if draw(st.integers(0, 9)) else None
        mails.append((number, mid, tuple(f"m{parent}@x" for parent in parents), subject, people, draw(st.integers(0, 90))))
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
            for number, mid, parents, subject, people, day in portion:
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
                    text("""INSERT INTO participants (message_id, position, role, address)
                        VALUES (:i, 0, 'from', :sender), (:i, 1, 'to', :recipient)"""),
                    {"i": ids[number], "sender": people[0], "recipient": people[1]},
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


@dataclass(frozen=True)
class _Visible:
    id: UUID
    internet_message_id: str | None
    in_reply_to: str | None
    reference_ids: list[str]
    subject: str
    sort_at: datetime
    mailboxes: list[UUID]


def _grouped(mails: Iterable[Mail]) -> set[frozenset[int]]:
    """The same by what is in the messages alone, without a database."""
    numbers = {message_uuid(hashlib.sha256(number.to_bytes(4)).digest()): number for number, *_ in mails}
    ids = {number: message_id for message_id, number in numbers.items()}
    rows = [
        _Visible(
            ids[number], mid, parents[0] if parents else None, list(parents), subject, _START + timedelta(days=day), [MAILBOX]
        )
        for number, mid, parents, subject, _, day in mails
    ]
    people = {
        ids[number]: Correspondents(frozenset({sender}), frozenset({recipient}))
        for number, _, _, _, (sender, recipient), _ in mails
    }
    return {frozenset(numbers[one] for one in group) for group in group_messages(rows, lambda ids: people)}


_NAMED_BEFORE_IT_ARRIVES: list[Mail] = [
    (0, "m0@x", (), "Lunch", ("ann@x", "bob@x"), 0),
    (1, "m1@x", (), "Lunch", ("ann@x", "bob@x"), 5),
    (2, "m2@x", (), "Re: Lunch", ("bob@x", "ann@x"), 10),
    (3, "m3@x", ("m1@x",), "", ("ann@x", "bob@x"), 6),
]
"""The answer goes to the second question, which arrives last (seed 8), when another message has already named it."""


@example(mails=_NAMED_BEFORE_IT_ARRIVES, seed=8, batch=1)
@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(mails=forests, seed=st.integers(0, 1000), batch=st.integers(1, 15))
def test_any_order_gives_the_same_threads(engine: Engine, mails: list[Mail], seed: int, batch: int) -> None:
    shuffled = mails.copy()
    random.Random(seed).shuffle(shuffled)
    in_order = _threads(engine, mails, len(mails))
    assert in_order == _grouped(mails)
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


def about_lunch(number: int, subject: str, at: datetime) -> bytes:
    people = ["From: bob@x", "To: ann@x"] if subject.startswith("Re:") else ["From: ann@x", "To: bob@x"]
    head = [f"Message-ID: <{number}@example.org>", *people, f"Subject: {subject}"]
    lines = "\r\n".join([*head, f"Date: {at:%d %b %Y %H:%M:%S} +0000"])
    return f"{lines}\r\n\r\nlunch {number}\r\n".encode()


def test_mail_of_others_with_the_same_subject_crowds_nothing_out(at: IndexWorld) -> None:
    """Hundreds of them between a question and its answer."""
    crowd = [
        about_lunch(number, "Lunch" if number % 2 else "Re: Lunch", _START + timedelta(minutes=number)) for number in range(500)
    ]
    at.put(*crowd, mailbox=SECOND)
    at.index()
    own = [
        about_lunch(1001, "Lunch", _START - timedelta(hours=1)),
        about_lunch(1002, "Re: Lunch", _START + timedelta(days=1)),
    ]
    at.put(*own)
    at.index()
    threads = "SELECT count(DISTINCT thread_id) FROM messages WHERE internet_message_id = ANY(:ids)"
    assert at.value(threads, ids=["1001@example.org", "1002@example.org"]) == 1
    together = (
        "SELECT count(*) FROM messages WHERE thread_id = (SELECT thread_id FROM messages WHERE internet_message_id = :id)"
    )
    assert at.value(together, id="1001@example.org") == 2, "the others have nothing to do with it"
    at.assert_agrees()


def test_many_references_join_few_threads(at: IndexWorld) -> None:
    at.put(reply(5000, *range(1, 1000)))
    at.index()
    assert at.value("SELECT count(*) FROM thread_links") <= 52


def weekly(week: int, *, answer: bool = False, named: bool = True, subject: str = "Weekly report") -> bytes:
    """A report of ann's to bob, or bob's answer on the day after it, which may or may not name what it answers to."""
    day = datetime(2024, 1, 1, 10, tzinfo=UTC) + timedelta(days=7 * week + answer)
    people = ("bob@x", "ann@x") if answer else ("ann@x", "bob@x")
    fields = {
        "Message-ID": f"<{'answer' if answer else 'report'}-{week}@x>",
        "From": people[0],
        "To": people[1],
        "Subject": f"Re: {subject}" if answer else subject,
        "Date": format_datetime(day),
        **({"In-Reply-To": f"<report-{week}@x>"} if answer and named else {}),
    }
    return "".join(f"{name}: {value}\r\n" for name, value in fields.items()).encode() + b"\r\ntext\r\n"


def conversations(at: IndexWorld) -> list[list[str]]:
    rows = at.rows("SELECT thread_id, array_agg(internet_message_id ORDER BY sort_at) AS ids FROM messages GROUP BY 1")
    return sorted(row.ids for row in rows)


def pairs(*weeks: int) -> list[list[str]]:
    return sorted([f"report-{week}@x", f"answer-{week}@x"] for week in weeks)


def test_weekly_reports_with_answers_are_as_many_conversations(at: IndexWorld) -> None:
    at.put(*(weekly(week, answer=answer) for week in range(20) for answer in (False, True)))
    at.index(batch=7)
    assert conversations(at) == pairs(*range(20))
    at.assert_agrees()


def test_a_late_message_splits_what_was_joined_in_its_absence(at: IndexWorld) -> None:
    at.put(weekly(1), weekly(1, answer=True), weekly(2, answer=True, named=False))
    at.index()
    assert conversations(at) == [["report-1@x", "answer-1@x", "answer-2@x"]], "the second answer has nothing nearer"
    at.put(weekly(2))
    at.index()
    assert conversations(at) == pairs(1, 2)
    at.assert_agrees()


def test_a_split_reaches_messages_whose_documents_are_under_way(at: IndexWorld) -> None:
    at.put(weekly(1), weekly(2, answer=True, named=False))
    slow = at.indexer()
    lease = slow.lease()
    assert lease is not None
    assert len(set(lease.threads.values())) == 1
    at.put(weekly(2))
    at.index()
    slow.index(lease, lambda unread: None)
    at.index()
    assert conversations(at) == [["report-1@x"], *pairs(2)] or conversations(at) == [*pairs(2), ["report-1@x"]]
    at.assert_agrees()


def _as_older_rules_left_it(at: IndexWorld) -> None:
    """All in one thread, with keys of subjects that leave away whatever is in brackets."""
    key = thread_subject("fix leak", is_reply=False)
    with at.engine.begin() as connection:
        thread = connection.execute(text("SELECT min(thread_id::text)::uuid FROM messages")).scalar_one()
        connection.execute(text("UPDATE thread_links SET thread_id = :t"), {"t": thread})
        connection.execute(text("UPDATE messages SET thread_id = :t, index_version = index_version + 1"), {"t": thread})
        connection.execute(text("UPDATE messages SET thread_subject = :k WHERE subject LIKE '[PATCH%'"), {"k": key})
        connection.execute(text("UPDATE thread_rules SET version = 1"))


def test_an_existing_archive_is_rethreaded(at: IndexWorld) -> None:
    patches = [weekly(week, subject=f"[PATCH {week}/4] fix leak") for week in range(1, 5)]
    at.put(*(weekly(week, answer=answer) for week in range(5, 10) for answer in (False, True)), *patches)
    at.index()
    _as_older_rules_left_it(at)
    at.index()
    assert len(conversations(at)) == 1
    with at.engine.connect() as connection:
        assert needs_rethreading(connection)
    reconcile(at.engine, at.server)
    assert at.value("SELECT count(*) FROM outbox WHERE job = 'rethread'") == 1
    stops = iter([False, True])
    assert not rethread(at.engine, lambda: next(stops)), "stopped after the first step"
    assert rethread(at.engine)
    assert at.value("SELECT count(*) FROM outbox WHERE job = 'index-email-batch' AND sent_at IS NULL") >= 1
    at.index()
    assert conversations(at) == sorted([*pairs(*range(5, 10)), *([f"report-{week}@x"] for week in range(1, 5))])
    assert at.value("SELECT count(DISTINCT thread_subject) FROM messages WHERE subject LIKE '[PATCH%'") == 4
    at.assert_agrees()
    with at.engine.connect() as connection:
        assert not needs_rethreading(connection)
    at.put(weekly(6, answer=True, named=False, subject="[PATCH 2/4] fix leak"))
    at.index()
    at.assert_agrees()
