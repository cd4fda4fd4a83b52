"""The predicate of policies and holds: SQL, the index, the matcher of documents and a naive scan select the same messages."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from uuid import UUID

import meilisearch
import pytest
from sqlalchemy import Engine, text

from archiver.access.scope import MailScope
from archiver.retention.matching import DocumentMatcher
from archiver.retention.predicate import MailQuery, PredicateCompiler
from archiver.search.names import DatabaseNames
from archiver.search.query.errors import QueryError
from tests.integration.search.conftest import client, server_url
from tests.integration.search.mail_world import MailWorld, make_world
from tests.integration.search.naive_scan import Maker
from tests.integration.search.test_queries_against_scan import MAILBOXES, generated

__all__ = ["client", "server_url"]
QUERIES = 300
NOW = datetime(2026, 1, 1, tzinfo=UTC)


@pytest.fixture
def world(engine: Engine, client: meilisearch.Client) -> Iterator[MailWorld]:
    world = make_world(engine, client)
    yield world
    world.index.delete()


def select(engine: Engine, condition: str, values: dict[str, object], mailbox: UUID) -> set[UUID]:
    statement = text(f"""SELECT DISTINCT m.id FROM message_copies c JOIN messages m ON m.id = c.message_id
        WHERE c.deleted_at IS NULL AND c.mailbox_id = :mailbox AND {condition}""")
    with engine.connect() as connection:
        return set(connection.execute(statement, {**values, "mailbox": mailbox}).scalars())


def test_sql_index_documents_and_a_scan_agree(world: MailWorld, engine: Engine) -> None:
    world.add(generated(120))
    with engine.begin() as connection:
        connection.execute(text("UPDATE messages SET indexed_version = index_version"))
        rows = [
            {"m": kept.id, "n": number, "h": file.sha256, "s": len(file.name), "t": file.content_type, "f": file.name}
            for kept in world.kept.values()
            for number, file in enumerate(kept.mail.attachments)
        ]
        connection.execute(
            text("INSERT INTO attachments (sha256, size_bytes, media_type) VALUES (:h, :s, :t) ON CONFLICT DO NOTHING"), rows
        )
        connection.execute(
            text("""INSERT INTO message_attachments (message_id, position, attachment_sha256, name, media_type)
                VALUES (:m, :n, :h, :f, :t)"""),
            rows,
        )
    documents = {kept.id: world.document(kept) for kept in world.kept.values()}
    maker, matcher = Maker(world, 29), DocumentMatcher(DatabaseNames(engine))
    exact = asked = matched = 0
    for number in range(QUERIES):
        query = maker.exact(2)
        try:
            parsed = MailQuery.parse(query.text, NOW, UTC)
        except QueryError as error:
            if "thread:" not in str(error):
                raise
            continue
        address = MAILBOXES[number % len(MAILBOXES)]
        mailbox = world.mailboxes[address]
        expected = maker.scan(query, frozenset({address}))
        compiler = PredicateCompiler()
        bounds = compiler.compile(parsed.tree)
        upper, lower = (select(engine, one, compiler.values, mailbox) for one in (bounds.upper, bounds.lower))
        assert lower <= expected <= upper, f"{query.text} in {address}: {lower - expected} {expected - upper}"
        assert not bounds.is_exact or lower == upper
        here = {kept.id for kept in world.kept.values() if any(place.mailbox == address for place in kept.places)}
        found = {one for one in here if matcher.matches(parsed.tree, documents[one], mailbox)}
        assert found == expected, f"{query.text} in {address}: missing {expected - found}, extra {found - expected}"
        try:
            indexed = set(world.search.message_ids(query.text, MailScope(frozenset({mailbox})), now=NOW))
        except QueryError as error:  # a mailbox that a reader of this one may not see, or too many ORs
            if "combinations" not in str(error) and "that you can see" not in str(error):
                raise
        else:
            assert indexed == expected, query.text
            asked += 1
        exact += bounds.is_exact
        matched += bool(expected)
    assert exact > QUERIES * 0.1
    assert asked > QUERIES * 0.6
    assert matched > QUERIES * 0.3
