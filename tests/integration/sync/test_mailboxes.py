"""The mailboxes that a source lists, in a real Postgres: all are synced, those that vanish are told, none inherits another."""

from __future__ import annotations

from uuid import UUID

import pytest
from sqlalchemy import Engine, text

from archiver.access import grants, scope, users
from archiver.access.grants import GrantTarget
from archiver.access.principal import LOCAL_OPERATOR, Principal
from archiver.access.scope import EVERYTHING, MailScope
from archiver.db.states import RunOutcome, UserRole
from archiver.db.tables import uuid7
from archiver.sources import runs
from archiver.sources import view as source_view
from archiver.sync import cycle, listings, mailboxes, sessions
from archiver.sync.sessions import ListedMailbox, SyncSession
from tests.integration.sync.test_sessions import add_source, announced, begin, rows

Box = tuple[str, str | None]


def cycle_over(engine: Engine, source_id: UUID, *boxes: Box, is_whole: bool = True) -> RunOutcome:
    """One cycle in which every mailbox is done, and nothing comes."""
    with engine.begin() as connection:
        connection.execute(text("UPDATE ingestion_sources SET status = 'syncing' WHERE id = :id"), {"id": source_id})
        session = sessions.claim(connection, source_id, is_initial_import=False)
        listed = [ListedMailbox(address, None, provider_id) for address, provider_id in boxes]
        sessions.publish(connection, session, listed, None, is_whole=is_whole)
    return end_all(engine, source_id, session)


def end_all(engine: Engine, source_id: UUID, session: SyncSession) -> RunOutcome:
    for row_id, job in announced(engine):
        held = begin(engine, row_id, job)
        assert held is not None
        with engine.begin() as connection:
            assert sessions.end_mailbox(connection, held, source_id)
    with engine.begin() as connection:
        ended = cycle.finish(connection, session.id)
    assert ended is not None
    return ended.outcome


def last_run(engine: Engine, source_id: UUID) -> runs.Run:
    with engine.connect() as connection:
        return runs.last_runs(connection, source_id, 1)[0]


def mailbox_id(engine: Engine, address: str) -> UUID:
    ((found,),) = rows(engine, "SELECT id FROM mailboxes WHERE address = :address", address=address)
    return UUID(str(found))


@pytest.mark.parametrize(
    "address",
    ["ΑΡΧΕΙΟΣ@example.org", "İnfo@example.org", "STRASSE@EXAMPLE.ORG", "Σ@x.org", "ǅ@x.org", "K@x.org"],
    ids=["final sigma", "dotted I", "ascii", "sigma", "titlecase", "kelvin"],
)
def test_a_mailbox_is_synced_however_its_address_is_lowered(engine: Engine, address: str) -> None:
    source_id = add_source(engine)
    for _ in range(2):
        assert cycle_over(engine, source_id, (address, None), ("plain@example.org", None)) is RunOutcome.SUCCESS
        assert last_run(engine, source_id).mailboxes == 2
    assert len(rows(engine, "SELECT 1 FROM mailboxes")) == 2


def test_a_mailbox_that_is_not_listed_any_more_is_gone_until_it_is_back(engine: Engine) -> None:
    source_id = add_source(engine)
    cycle_over(engine, source_id, ("a@example.org", None), ("b@example.org", None))
    assert cycle_over(engine, source_id, ("a@example.org", None)) is RunOutcome.SUCCESS
    run = last_run(engine, source_id)
    assert (run.mailboxes, run.gone_mailboxes, run.gone_addresses) == (1, 1, ["b@example.org"])
    with engine.connect() as connection:
        shown = source_view.mailboxes(connection, EVERYTHING, source_id, "", 10)
    assert [(box.address, box.gone_at is not None) for box in shown] == [("a@example.org", False), ("b@example.org", True)]
    cycle_over(engine, source_id, ("a@example.org", None))
    assert last_run(engine, source_id).gone_mailboxes == 0, "it is told once"
    gone = mailbox_id(engine, "b@example.org")
    cycle_over(engine, source_id, ("a@example.org", None), ("B@example.org", None))
    assert rows(engine, "SELECT id FROM mailboxes WHERE gone_at IS NULL AND id = :id", id=gone) == [(gone,)]


def test_a_run_that_tells_of_a_gone_mailbox_is_not_forgotten(engine: Engine) -> None:
    source_id = add_source(engine)
    cycle_over(engine, source_id, ("a@example.org", None), ("b@example.org", None))
    cycle_over(engine, source_id, ("a@example.org", None))
    with engine.begin() as connection:
        connection.execute(text("UPDATE sync_runs SET finished_at = finished_at - interval '2 days'"))
    cycle_over(engine, source_id, ("a@example.org", None))
    with engine.connect() as connection:
        kept = runs.last_runs(connection, source_id, 10)
    assert [run.gone_mailboxes for run in kept] == [0, 1]


def test_a_cycle_over_some_mailboxes_says_nothing_about_the_others(engine: Engine) -> None:
    source_id = add_source(engine)
    cycle_over(engine, source_id, ("a@example.org", None), ("b@example.org", None))
    cycle_over(engine, source_id, ("a@example.org", None), is_whole=False)
    assert rows(engine, "SELECT 1 FROM mailboxes WHERE gone_at IS NOT NULL") == []
    with engine.connect() as connection:
        assert listings.load_last(connection, source_id).mailboxes == 2, "the last full listing"


def test_a_mailbox_that_is_gone_is_not_synced_because_of_old_news(engine: Engine) -> None:
    source_id = add_source(engine)
    cycle_over(engine, source_id, ("a@example.org", None), ("b@example.org", None))
    ids = [mailbox_id(engine, "a@example.org"), mailbox_id(engine, "b@example.org")]
    cycle_over(engine, source_id, ("a@example.org", None))
    with engine.connect() as connection:
        assert [box.address for box in mailboxes.load_listed(connection, source_id, ids)] == ["a@example.org"]


def test_an_empty_listing_after_a_full_one_is_doubted(engine: Engine) -> None:
    source_id = add_source(engine)
    cycle_over(engine, source_id, ("a@example.org", None))
    for _ in range(2):
        assert cycle_over(engine, source_id) is RunOutcome.INCOMPLETE
    assert rows(engine, "SELECT 1 FROM mailboxes WHERE gone_at IS NOT NULL") == []
    ((message,),) = rows(engine, "SELECT status_message FROM ingestion_sources")
    assert "listed no mailboxes" in message
    assert cycle_over(engine, add_source(engine, "another")) is RunOutcome.SUCCESS, "it never had one"


def test_a_reused_address_inherits_neither_rows_nor_state(engine: Engine) -> None:
    source_id = add_source(engine)
    cycle_over(engine, source_id, ("alice@example.org", "1"))
    old = mailbox_id(engine, "alice@example.org")
    with engine.begin() as connection:
        connection.execute(text("UPDATE mailboxes SET sync_state = '{\"google:alice@example.org\": 1}'"))
    assert cycle_over(engine, source_id, ("alice@example.org", "2")) is RunOutcome.SUCCESS
    new = mailbox_id(engine, "alice@example.org")
    assert new != old
    ((state, replaces),) = rows(engine, "SELECT sync_state, replaces_id FROM mailboxes WHERE id = :id", id=new)
    assert (state, replaces) == ({}, old)
    ((address, former, is_gone, state),) = rows(
        engine, "SELECT address, former_address, gone_at IS NOT NULL, sync_state FROM mailboxes WHERE id = :id", id=old
    )
    assert (address, former, is_gone) == (f"alice@example.org (former {str(old)[-12:]})", "alice@example.org", True)
    assert state, "what was archived, and how far, stays"
    assert last_run(engine, source_id).gone_addresses == ["alice@example.org"]
    cycle_over(engine, source_id, ("alice@example.org", "2"))
    assert mailbox_id(engine, "alice@example.org") == new
    cycle_over(engine, source_id, ("alice@example.org", "3"))
    assert len(rows(engine, "SELECT 1 FROM mailboxes")) == 3


def _user(engine: Engine, email: str, *, verified: bool = False) -> users.User:
    with engine.begin() as connection:
        connection.execute(
            text("INSERT INTO users (id, email, address_verified_at) VALUES (:id, :email, CASE WHEN :verified THEN now() END)"),
            {"id": uuid7(), "email": email, "verified": verified},
        )
        return users.find(connection, email)


def _scope(engine: Engine, user: users.User) -> MailScope:
    with engine.connect() as connection:
        return scope.scope_of(connection, Principal(user.email, UserRole.USER, frozenset(), user.id))


def test_a_reused_address_inherits_no_readers(engine: Engine) -> None:
    source_id = add_source(engine)
    cycle_over(engine, source_id, ("alice@example.org", "1"))
    old = mailbox_id(engine, "alice@example.org")
    owner, by_id = _user(engine, "alice@example.org", verified=True), _user(engine, "by-id@example.org")
    by_address, by_pattern = _user(engine, "by-address@example.org"), _user(engine, "by-pattern@example.org")
    with engine.begin() as connection:
        grants.add(connection, LOCAL_OPERATOR, by_id, GrantTarget(mailbox_id=old))
        grants.add(connection, LOCAL_OPERATOR, by_address, GrantTarget(address_pattern="alice@example.org"))
        grants.add(connection, LOCAL_OPERATOR, by_pattern, GrantTarget(address_pattern="*@example.org"))
    assert all(_scope(engine, user).mailboxes == {old} for user in (owner, by_id, by_address, by_pattern))

    cycle_over(engine, source_id, ("alice@example.org", "2"))
    new = mailbox_id(engine, "alice@example.org")
    assert _scope(engine, by_id).mailboxes == {old}
    assert _scope(engine, by_address).mailboxes == {old}, "the grant was for the one who had the address then"
    assert _scope(engine, by_pattern).mailboxes == {old, new}, "a pattern is for whoever has such an address"
    assert _scope(engine, owner).mailboxes == set(), "whose the address is now has to be verified again"

    later = _user(engine, "later@example.org")
    with engine.begin() as connection:
        grants.add(connection, LOCAL_OPERATOR, later, GrantTarget(address_pattern="alice@example.org"))
        connection.execute(text("UPDATE users SET address_verified_at = now() WHERE id = :id"), {"id": owner.id})
    assert _scope(engine, later).mailboxes == {new}
    assert _scope(engine, owner).mailboxes == {new}


def test_the_state_of_a_source_is_its_last_listing_and_not_its_mailboxes(engine: Engine) -> None:
    source_id = add_source(engine)
    with engine.begin() as connection:
        session = sessions.claim(connection, source_id, is_initial_import=False)
        listed = [ListedMailbox(f"user{number}@example.org", None, None) for number in range(3)]
        sessions.publish(connection, session, listed, None, is_whole=True, left_out={"mailboxes_out": 2})
        connection.execute(text('UPDATE mailboxes SET sync_state = \'{"imap:user:INBOX": {"uid": 1}}\''))
        connection.execute(text("UPDATE ingestion_sources SET sync_state = '{\"cursor\": 5}'"))
    end_all(engine, source_id, session)
    ((state,),) = rows(engine, "SELECT sync_state FROM ingestion_sources")
    assert set(state) == {"cursor", "last_listing"}, "merged, and no state of a mailbox in it"
    with engine.connect() as connection:
        last = listings.load_last(connection, source_id)
    assert (last.mailboxes, last.new, last.left_out) == (3, 3, {"mailboxes_out": 2})


def test_mailboxes_that_have_not_changed_are_not_written_again(engine: Engine) -> None:
    source_id = add_source(engine)
    boxes = [(f"user{number}@example.org", f"id-{number}") for number in range(50)]
    cycle_over(engine, source_id, *boxes)
    versions = "SELECT id, xmin FROM mailboxes ORDER BY id"
    before = rows(engine, versions)
    cycle_over(engine, source_id, *boxes)
    assert rows(engine, versions) == before
    ((size,),) = rows(engine, "SELECT max(octet_length(CAST(sync_state AS text))) FROM ingestion_sources")
    assert size < 1000


def test_a_mailbox_that_waits_is_counted_as_listed(engine: Engine) -> None:
    source_id = add_source(engine)
    boxes = [(f"user{number}@example.org", None) for number in range(3)]
    cycle_over(engine, source_id, *boxes)
    with engine.begin() as connection:
        connection.execute(
            text("UPDATE mailboxes SET next_due_at = now() + interval '1 hour' WHERE address = 'user0@example.org'")
        )
    assert cycle_over(engine, source_id, *boxes) is RunOutcome.INCOMPLETE
    with engine.connect() as connection:
        last = listings.load_last(connection, source_id)
    assert (last.mailboxes, last_run(engine, source_id).mailboxes) == (3, 2)
