"""Several hundred queries made at random find exactly what a look at every message finds: nothing less, and nothing more."""

from __future__ import annotations

import random
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from uuid import UUID

import meilisearch
import pytest
from sqlalchemy import Engine, text

from archiver.access.scope import MailScope
from archiver.search.query.errors import QueryError
from tests.integration.search.mail_world import MailWorld, Place, mail, make_world
from tests.integration.search.naive_scan import Maker

MAILBOXES = ("ann@corp.com", "ben@corp.com", "cleo@example.org", "dora@example.org")
FOLDERS = ("INBOX", "Sent", "Archive/2024", "Archive/2025", "Wichtig & mehr", "受信箱")
LABELS = ("Work", "Private/Été", "100 %", 'Said "no"')
QUERIES = 200
"""For each set of mail, and a fifth of it once more with bare words."""


def places(chance: random.Random) -> list[Place]:
    boxes = chance.sample(MAILBOXES, chance.choice([1, 1, 1, 2, 3]))
    return [Place(box, chance.choice(FOLDERS), tuple(chance.sample(LABELS[:3], chance.randint(0, 2)))) for box in boxes]


def generated(count: int) -> Iterator[tuple[bytes, list[Place]]]:
    chance = random.Random(5)
    vocabulary = [
        f"{first}{second}" for first in ("al", "be", "ka", "mo", "zü") for second in ("na", "ron", "fix", "straße", "t7")
    ]
    people = [
        f"{name} {name} <{name}.x@{domain}>"
        for name in ("alna", "beron", "kafix")
        for domain in ("corp.com", "mail.corp.com", "b.org")
    ]
    for number in range(count):
        words = [chance.choice(vocabulary) for _ in range(chance.randint(3, 40))]
        body = " ".join(words[:15]) + "\r\n\r\n> " + " ".join(words[15:]) + "\r\n\r\n" + chance.choice(vocabulary)
        files = [
            (f"{chance.choice(vocabulary[:10])} {chance.choice(vocabulary[:10])}.{end}", kind)
            for end, kind in chance.sample([("pdf", "application/pdf"), ("png", "image/png")], chance.randint(0, 2))
        ]
        yield (
            mail(
                " ".join(chance.sample(vocabulary, chance.randint(1, 4))),
                body,
                chance.choice(people),
                ", ".join(chance.sample(people, chance.randint(1, 3))),
                datetime(2023, 1, 1, tzinfo=UTC) + timedelta(hours=chance.randint(0, 20_000)),
                f"Message-ID: <{number}@corp.com>\r\nIn-Reply-To: <0@corp.com>\r\nCc: {chance.choice(people)}\r\n"
                + (f"List-Id: <l{number % 3}.corp.com>\r\n" if chance.random() < 0.3 else ""),
                files,
            ),
            places(chance),
        )


def from_corpus(corpus: Path) -> Iterator[tuple[bytes, list[Place]]]:
    chance = random.Random(6)
    paths = sorted(
        path for folder in ("real", "torture", "bounces") for path in (corpus / "public" / folder).rglob("*") if path.is_file()
    )
    for path in chance.sample(paths, min(600, len(paths))):
        raw = path.read_bytes()
        if 0 < len(raw) < 200_000:
            yield raw, places(chance)


@pytest.fixture
def world(engine: Engine, client: meilisearch.Client) -> Iterator[MailWorld]:
    world = make_world(engine, client)
    yield world
    world.index.delete()


FACETS_SQL = {
    "sender": "SELECT lower(sender), count(*) FROM messages WHERE id = ANY(:ids) AND sender <> '' GROUP BY 1",
    "domain": """SELECT lower(substring(sender FROM '[^@]*$')), count(*) FROM messages
        WHERE id = ANY(:ids) AND sender LIKE '%@%' GROUP BY 1""",
    "year": "SELECT to_char(sort_at AT TIME ZONE 'UTC', 'YYYY'), count(*) FROM messages WHERE id = ANY(:ids) GROUP BY 1",
    "folder": "SELECT c.folder, count(DISTINCT c.message_id) FROM message_copies c WHERE {seen} GROUP BY 1",
    "label": "SELECT l, count(DISTINCT c.message_id) FROM message_copies c, unnest(c.labels) AS l WHERE {seen} GROUP BY 1",
    "mailbox": """SELECT b.address, count(DISTINCT c.message_id) FROM message_copies c JOIN mailboxes b ON b.id = c.mailbox_id
        WHERE {seen} GROUP BY 1""",
}
SEEN = "c.message_id = ANY(:ids) AND (CAST(:mailboxes AS uuid[]) IS NULL OR c.mailbox_id = ANY(:mailboxes))"


def spelled(value: str) -> str:
    """Case and white space do not count in a facet."""
    return " ".join(value.lower().split())


def compare_facets(world: MailWorld, query: str, scope: MailScope, expected: set[UUID]) -> None:
    values = {"ids": list(expected), "mailboxes": None if scope.mailboxes is None else list(scope.mailboxes)}
    results = world.search.search(query, scope, limit=0, facets=list(FACETS_SQL))
    with world.engine.connect() as connection:
        for name, statement in FACETS_SQL.items():
            rows = connection.execute(text(statement.format(seen=SEEN)), values).all()
            counts = {spelled(value): count for value, count in rows}
            shown = {spelled(one.value): one.count for one in results.facets[name]}
            best = sorted(counts.values(), reverse=True)[: len(shown)]
            assert len(shown) == (len(counts) if name == "year" else min(20, len(counts))), (query, name)
            assert sorted(shown.values(), reverse=True) == best, (query, name)
            assert all(counts.get(value) == count for value, count in shown.items()), (query, name)


def compare(world: MailWorld, seed: int, count: int, *, pages: bool) -> None:
    maker = Maker(world, seed)
    scopes = [None, frozenset(MAILBOXES[:1]), frozenset(MAILBOXES[1:3]), frozenset[str]()]
    compared = matched = 0
    for number in range(count):
        visible = scopes[number % 6] if number % 6 < 4 else None
        scope = MailScope(None if visible is None else frozenset(world.mailboxes[one] for one in visible))
        query = maker.exact(2)
        expected = maker.scan(query, visible)
        try:
            found = set(world.search.message_ids(query.text, scope))
        except QueryError as error:  # too many ORs, or a mailbox that this user may not see
            if "combinations" not in str(error) and "that you can see" not in str(error):
                raise
            continue
        assert found == expected, f"{query.text}: missing {expected - found}, extra {found - expected}"
        if pages and number % 3 == 0:
            results = world.search.search(query.text, scope, limit=1_000)
            assert (results.total, {hit.id for hit in results.hits}) == (len(expected), expected), query.text
        else:
            assert world.search.search(query.text, scope, limit=0).total == len(expected), query.text
        if number % 4 == 0:
            compare_facets(world, query.text, scope, expected)
        compared += 1
        matched += bool(expected)
    assert compared > count * 0.8
    assert matched > count * 0.4
    for _ in range(count // 5):
        ranked, limits = maker.ranked()
        results = world.search.search(ranked.text, sort="best", limit=1_000)
        hits = {hit.id for hit in results.hits}
        assert maker.scan(ranked) <= hits, ranked.text
        assert hits <= maker.scan(limits), ranked.text


def test_generated_mail(world: MailWorld) -> None:
    world.add(generated(120))
    compare(world, 1, QUERIES, pages=True)


def test_real_mail(world: MailWorld, corpus: Path) -> None:
    world.add(from_corpus(corpus))
    compare(world, 2, QUERIES, pages=False)
