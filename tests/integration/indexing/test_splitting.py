"""A conversation that a person splits stays split: whatever arrives, is grouped again, or is rebuilt."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from uuid import UUID

import pytest
from sqlalchemy import text

from archiver.access.principal import LOCAL_OPERATOR, Principal, Right
from archiver.access.scope import EVERYTHING, MailScope
from archiver.db.states import UserRole
from archiver.errors import Conflict, NotAllowed, NotFound
from archiver.indexing import splitting
from archiver.indexing.rethread import rethread
from archiver.maintenance import snapshot
from archiver.search import conversations
from archiver.store.journal import Config
from archiver.sync.ingest.archive_state import next_stamp
from tests.integration.indexing.conftest import IndexWorld
from tests.integration.store.conftest import MAILBOX, SECOND


def letter(name: str, *references: str, day: int = 0, subject: str = "Lamp") -> bytes:
    fields = {
        "Message-ID": f"<{name}@x>",
        **({"From": "bob@x", "To": "ann@x"} if subject.startswith("Re:") else {"From": "ann@x", "To": "bob@x"}),
        "Subject": subject,
        "Date": format_datetime(datetime(2024, 3, 1, 10, tzinfo=UTC) + timedelta(days=day)),
        **({"References": " ".join(f"<{one}@x>" for one in references)} if references else {}),
    }
    return "".join(f"{key}: {value}\r\n" for key, value in fields.items()).encode() + f"\r\ntext {name}\r\n".encode()


def grouped(at: IndexWorld) -> list[str]:
    rows = at.rows(
        "SELECT string_agg(left(internet_message_id, -2), '' ORDER BY sort_at) AS ids FROM messages GROUP BY thread_id"
    )
    return sorted(row.ids for row in rows)


def id_of(at: IndexWorld, name: str) -> UUID:
    found: UUID = at.value("SELECT id FROM messages WHERE internet_message_id = :id", id=f"{name}@x")
    return found


def split(at: IndexWorld, name: str, scope: MailScope = EVERYTHING, principal: Principal = LOCAL_OPERATOR) -> int:
    message_id = id_of(at, name)
    with at.engine.begin() as connection:
        return splitting.split(connection, principal, scope, message_id)


def rejoin(at: IndexWorld, name: str) -> None:
    message_id = id_of(at, name)
    with at.engine.begin() as connection:
        splitting.rejoin(connection, LOCAL_OPERATOR, EVERYTHING, message_id)


@pytest.fixture
def talk(at: IndexWorld) -> IndexWorld:
    """a, its answer b; c, which somebody wrote as an answer about something else, and its answer d."""
    at.put(letter("a"), letter("b", "a", day=1), letter("c", "a", "b", day=2), letter("d", "a", "b", "c", day=3))
    at.index()
    assert grouped(at) == ["abcd"]
    return at


def test_a_message_takes_its_answers_with_it_and_later_ones_follow(talk: IndexWorld) -> None:
    assert split(talk, "c") == 2
    talk.index()
    assert grouped(talk) == ["ab", "cd"]
    talk.put(letter("e", "a", "b", "c", "d", day=4), letter("f", "a", "b", day=5))
    talk.index()
    assert grouped(talk) == ["abf", "cde"]
    talk.put(letter("g", "a", "e", day=6))  # a client that shortens the list to the first and the last
    talk.index()
    assert grouped(talk) == ["abf", "cdeg"]
    talk.assert_agrees()


def test_it_stays_split_after_the_rules_are_applied_again(talk: IndexWorld) -> None:
    split(talk, "c")
    with talk.engine.begin() as connection:
        connection.execute(text("UPDATE thread_rules SET version = 1"))
    assert rethread(talk.engine)
    talk.index()
    assert grouped(talk) == ["ab", "cd"]
    talk.assert_agrees()


def test_it_stays_split_when_only_the_packs_are_left(talk: IndexWorld) -> None:
    split(talk, "c")
    with talk.engine.begin() as connection:
        tables = {table: snapshot._read(connection, table) for table in snapshot._COLUMNS}
        connection.execute(text("DELETE FROM thread_splits"))
        connection.execute(text("DELETE FROM thread_links"))
        connection.execute(text("UPDATE messages SET thread_id = NULL, index_version = index_version + 1"))
        snapshot.restore_config(connection, Config(datetime.now(UTC), tables, next_stamp(connection), None))
    talk.index(batch=1)
    assert grouped(talk) == ["ab", "cd"]


def test_a_split_is_undone(talk: IndexWorld) -> None:
    split(talk, "c")
    talk.index()
    split(talk, "d")
    talk.index()
    assert grouped(talk) == ["ab", "c", "d"]
    rejoin(talk, "d")
    talk.index()
    assert grouped(talk) == ["ab", "cd"]
    rejoin(talk, "d")
    talk.index()
    assert grouped(talk) == ["abcd"]
    with pytest.raises(Conflict, match="was not split"):
        rejoin(talk, "d")
    talk.assert_agrees()


def test_a_reply_that_was_joined_by_its_subject_alone(at: IndexWorld) -> None:
    at.put(letter("a"), letter("b", subject="Re: Lamp", day=1))
    at.index()
    assert grouped(at) == ["ab"]
    split(at, "b")
    at.index()
    assert grouped(at) == ["a", "b"]
    at.put(letter("c", day=2, subject="Lamp"))
    at.index()
    assert grouped(at) == ["a", "b", "c"]
    rejoin(at, "b")
    at.index()
    assert grouped(at) == ["ab", "c"]


def test_readers_of_one_mailbox_see_it_split(talk: IndexWorld) -> None:
    split(talk, "c")
    talk.index()
    scope = MailScope(frozenset({MAILBOX}))
    with talk.engine.connect() as connection:
        found = conversations.conversation(connection, scope, id_of(talk, "d"))
    assert found is not None
    assert set(found.members) == {id_of(talk, "c"), id_of(talk, "d")}


def test_who_may_split_and_what_can_not_be(talk: IndexWorld) -> None:
    with pytest.raises(Conflict, match="begins with this message"):
        split(talk, "a")
    with pytest.raises(NotFound):
        split(talk, "c", MailScope(frozenset({SECOND})))
    reader = Principal("bob@x", UserRole.USER, frozenset({Right.READ, Right.SEARCH}))
    with pytest.raises(NotAllowed):
        split(talk, "c", principal=reader)
    assert grouped(talk) == ["abcd"]
    assert talk.value("SELECT count(*) FROM thread_splits") == 0
    split(talk, "c")
    assert talk.value("SELECT count(*) FROM audit_log WHERE action = 'conversation.split'") == 1
