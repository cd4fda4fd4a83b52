"""Searching as a user: what is found, in which order, with what around it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from uuid import UUID
from zoneinfo import ZoneInfo

import meilisearch
import pytest
from sqlalchemy import Engine, text

from archiver.access.scope import MailScope
from archiver.errors import UsageError
from archiver.extract.extraction import TextPage
from archiver.search.query.errors import QueryError
from tests.integration.search.mail_world import MailWorld, Place, in_mbox, mail, make_world
from tests.integration.search.search_process import finished

ALICE, BOB = "alice@corp.com", "bob@example.org"


@pytest.fixture
def world(engine: Engine, client: meilisearch.Client) -> Iterator[MailWorld]:
    world = make_world(engine, client)
    yield world
    world.index.delete()


def found(world: MailWorld, query: str, scope: MailScope | None = None, **more: object) -> list[str]:
    results = world.search.search(query, scope or MailScope(), **more)  # type: ignore[arg-type]
    assert results.total == len(results.hits)
    return sorted(hit.subject.text for hit in results.hits)


def test_words_phrases_and_operators(world: MailWorld) -> None:
    world.add(
        [
            (mail("Invoice May", "The total is due.", files=[("invoice 7.pdf", "application/pdf")]), [Place(ALICE)]),
            (mail("Re: Invoice May", "Total eclipse, due later.", sender="Bob <bob@example.org>"), [Place(BOB, "Sent")]),
            (mail("Lunch", "The invoice is not due", more="List-Id: Dev <dev.lists.corp.com>\r\n"), [Place(ALICE, "Lists")]),
        ]
    )
    assert found(world, "invoice") == ["Invoice May", "Lunch", "Re: Invoice May"]
    assert found(world, "invioce") == ["Invoice May", "Lunch", "Re: Invoice May"]
    assert found(world, '"total is"') == ["Invoice May"]
    assert found(world, "subject:invoice -total") == []
    assert found(world, "invoice -total") == ["Lunch"]
    assert found(world, "eclipse OR lunch") == ["Lunch", "Re: Invoice May"]
    assert found(world, 'subject:"invoice may" eclipse') == ["Re: Invoice May"]
    assert found(world, '-subject:"invoice may" invoice') == ["Lunch"]
    assert found(world, "from:@corp.com") == ["Invoice May", "Lunch"]
    assert found(world, "from:*example*") == ["Re: Invoice May"]
    assert found(world, "from:alice has:attachment") == ["Invoice May"]
    assert found(world, "filename:*.pdf type:pdf") == ["Invoice May"]
    assert found(world, 'filename:"invoice 7.pdf"') == ["Invoice May"]
    assert found(world, "list:dev") == ["Lunch"]
    assert found(world, "list:dev@lists.corp.com") == ["Lunch"]
    assert found(world, "in:inbox") == ["Invoice May"]
    assert found(world, "in:s* OR in:lists") == ["Lunch", "Re: Invoice May"]
    assert found(world, 'source:"source of corp.com"') == ["Invoice May", "Lunch"]
    assert found(world, "mailbox:bob") == ["Re: Invoice May"]
    assert found(world, "") == ["Invoice May", "Lunch", "Re: Invoice May"]


def test_by_date_exact_words_are_not_hidden_by_similar_ones(world: MailWorld) -> None:
    start = datetime(2024, 1, 1, tzinfo=UTC)
    bodies = ["their offer"] * 40 + ["thier offer"] + ["thieries of offers"] * 5
    world.add(
        [(mail(f"{body} {n}", body, at=start + timedelta(days=n)), [Place(ALICE)]) for n, body in enumerate(["x", *bodies])]
    )
    for sort in ("newest", "oldest"):
        results = world.search.search("thier", sort=sort, facets=["mailbox"])
        assert [hit.subject.text for hit in results.hits] == ["thier offer 41"]
        assert (results.total, results.similar, results.has_similar) == (1, 45, False)
        assert [value.count for value in results.facets["mailbox"]] == [1]
    everything = world.search.search("thier", similar=True, limit=100)
    assert (everything.total, everything.similar, everything.has_similar) == (46, 0, True)
    best = world.search.search("thier", sort="best")
    assert best.hits[0].subject.text == "thier offer 41"
    assert (best.total, best.similar, best.has_similar) == (46, 0, True)
    assert found(world, "thier offer") == ["thier offer 41"], "of several words all are exact, or none"
    only_similar = world.search.search("theri")
    assert (only_similar.total, only_similar.similar, only_similar.has_similar) == (45, 0, True)
    for query in ('"thier"', "subject:thier", "-their", "mailbox:alice"):
        results = world.search.search(query, limit=100)
        assert (results.similar, results.has_similar) == (0, False), query


def test_copies_are_asked_together(world: MailWorld) -> None:
    world.add([(mail("Both"), [Place(ALICE, "Trash"), Place(BOB, "INBOX")]), (mail("One"), [Place(ALICE, "INBOX")])])
    assert found(world, "mailbox:alice in:inbox") == ["One"]
    assert found(world, "mailbox:alice in:trash") == ["Both"]
    assert found(world, "mailbox:bob in:trash") == []


def test_nobody_finds_by_what_only_others_may_see(world: MailWorld) -> None:
    world.add(
        [
            (mail("Shared"), [Place(ALICE, "Secret project", ("Layoffs",)), Place(BOB, "INBOX", ("Work",))]),
            (mail("Private", "hush"), [Place(ALICE, "INBOX")]),
        ]
    )
    bob = MailScope(frozenset({world.mailboxes[BOB]}))
    nobody = MailScope(frozenset())
    hostile = [
        'hush" OR mailbox EXISTS OR "',
        "hush OR -hush",
        "-nothing",
        "(hush OR subject:private) OR in:inbox",
        'in:"INBOX\\" OR mailbox EXISTS OR folder = \\"x"',
        f'in:"{world.mailboxes[ALICE]}/INBOX"',
        'label:"x" OR in:"*"',
        "from:*",
        "NOT (in:inbox)",
        "in:* OR label:*",
        "subject:* participant:*",
        f"thread:{world.mailboxes[ALICE]} OR larger:0",
    ]
    for query in hostile:
        try:
            assert set(found(world, query, bob)) <= {"Shared"}, query
            assert found(world, query, nobody) == [], query
        except QueryError:
            continue
    assert found(world, 'in:"Secret project"', bob) == []
    assert found(world, "in:secret*", bob) == []
    assert found(world, "label:layoffs", bob) == []
    assert found(world, "-label:layoffs", bob) == ["Shared"]
    for query in ("mailbox:alice", 'source:"source of corp.com"', f"mailbox:{world.mailboxes[ALICE]}"):
        with pytest.raises(QueryError, match="that you can see"):
            world.search.search(query, bob)
    results = world.search.search("", bob, facets=["folder", "label", "mailbox"])
    shown = {name: [(one.value, one.count) for one in values] for name, values in results.facets.items()}
    assert shown == {"folder": [("INBOX", 1)], "label": [("Work", 1)], "mailbox": [(BOB, 1)]}
    assert [copy["folder"] for copy in results.hits[0].copies] == ["INBOX"]


def test_rows_are_asked_again(world: MailWorld) -> None:
    """The index may be behind: a copy that was deleted since shows nothing more."""
    world.add([(mail("Shared"), [Place(ALICE), Place(BOB)])])
    with world.engine.begin() as connection:
        connection.execute(
            text("UPDATE message_copies SET deleted_at = now() WHERE mailbox_id = :id"), {"id": world.mailboxes[BOB]}
        )
    bob, alice = (MailScope(frozenset({world.mailboxes[one]})) for one in (BOB, ALICE))
    assert found(world, "shared", bob) == []
    assert list(world.search.message_ids("shared", bob)) == []
    assert found(world, "shared", alice) == ["Shared"]


def test_newest_and_oldest_are_strict_and_pages_reach_the_end(world: MailWorld) -> None:
    start = datetime(2024, 1, 1, tzinfo=UTC)
    mails = [
        (mail(f"Number {number}", f"word{number % 3} common", at=start + timedelta(hours=number % 40)), [Place(ALICE)])
        for number in range(90)
    ]
    world.add(mails)
    for query in ("common", "word0 OR word1 OR word2", "", "(word0 OR common) -nothing"):
        for sort in ("newest", "oldest", "best"):
            pages = [world.search.search(query, sort=sort, offset=offset, limit=7) for offset in range(0, 98, 7)]
            dates = [hit.date for page in pages for hit in page.hits]
            assert {page.total for page in pages} == {90}
            assert len({hit.id for page in pages for hit in page.hits}) == 90, (query, sort)
            if sort != "best":
                assert dates == sorted(dates, reverse=sort == "newest")
        assert set(world.search.message_ids(query)) == set(world.kept)


def test_variants_of_one_mail_are_one_hit(world: MailWorld) -> None:
    raw = mail("Lunch", "noon")
    both = world.add([(raw, [Place(ALICE, "INBOX", ("Work",)), Place(BOB)]), (in_mbox(raw), [Place(ALICE, "Old"), Place(BOB)])])
    other, *_ = world.add([(mail("Lunch", "noon!"), [Place(ALICE)])])
    for sort in ("newest", "oldest", "best"):
        results = world.search.search("noon", sort=sort)
        assert (results.total, len(results.hits), results.next_offset) == (2, 2, None)
        (hit,) = (hit for hit in results.hits if hit.id != other)
        assert {hit.id, *hit.variants} == set(both)
        places = [(copy["mailbox"], copy["folder"], *copy["labels"]) for copy in hit.copies]
        assert sorted(places) == [(ALICE, "INBOX", "Work"), (ALICE, "Old"), (BOB, "INBOX")]
    (found_one,) = world.search.search('"noon" in:old').hits
    assert (found_one.id, found_one.variants) == (both[1], ()), "what is not found is not named"
    assert set(world.search.message_ids("noon")) == {*both, other}, "stored each, exported and deleted each"


def test_nobody_learns_of_a_variant_that_only_others_may_see(world: MailWorld) -> None:
    raw = mail("Lunch", "noon")
    mine, theirs = world.add([(raw, [Place(ALICE)]), (in_mbox(raw), [Place(BOB)])])
    for address, seen in ((ALICE, mine), (BOB, theirs)):
        results = world.search.search("noon", MailScope(frozenset({world.mailboxes[address]})))
        (hit,) = results.hits
        assert (results.total, hit.id, hit.variants) == (1, seen, ())
        assert [copy["mailbox"] for copy in hit.copies] == [address]


def test_a_variant_beyond_the_page_is_shown_there(world: MailWorld) -> None:
    """However somebody asks on: every message is shown, or named by the one that is shown in its place."""
    start = datetime(2024, 1, 1, tzinfo=UTC)
    mails = [mail(f"Number {number}", "common", at=start + timedelta(hours=number)) for number in range(9)]
    world.add([(one, [Place(ALICE)]) for raw in mails for one in (raw, in_mbox(raw))])
    world.add([(mail("Last", "common", at=start - timedelta(days=1)), [Place(ALICE)])])
    for sort, limit in ((sort, limit) for sort in ("newest", "oldest", "best") for limit in (1, 2, 3, 4, 5, 7, 18, 19, 20)):
        for stop_at_total in (True, False):
            offset, seen = 0, list[UUID]()
            while True:
                page = world.search.search("common", sort=sort, offset=offset, limit=limit)
                named = [one for hit in page.hits for one in (hit.id, *hit.variants)]
                assert len(named) == min(limit, 19 - offset)
                seen += named
                assert page.next_offset == (offset + limit if offset + limit < 19 else None)
                offset += limit
                if offset >= page.total if stop_at_total else page.next_offset is None:
                    break
            assert len(seen) == len(set(seen)), (sort, limit)
            assert set(seen) == set(world.kept), (sort, limit)
    (everything,) = {world.search.search("common", sort=sort, limit=20).total for sort in ("newest", "oldest", "best")}
    assert everything == 10
    first, second = (world.search.search("common", offset=offset, limit=3).hits for offset in (0, 3))
    assert [(hit.subject.text, len(hit.variants)) for hit in first] == [("Number 8", 1), ("Number 7", 0)]
    assert [(hit.subject.text, len(hit.variants)) for hit in second] == [("Number 7", 0), ("Number 6", 1)]


def test_listing_by_date_survives_many_equal_dates(world: MailWorld, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("archiver.search.searcher._PAGE", 7)
    world.add(
        [
            (mail(f"Number {number}", "common", at=datetime(2024, 1, 1 + number % 2, tzinfo=UTC)), [Place(ALICE)])
            for number in range(60)
        ]
    )
    ids = list(world.search.message_ids("common"))
    assert len(ids) == 60
    assert set(ids) == set(world.kept)


def test_facets_are_those_of_the_hits(world: MailWorld) -> None:
    at = datetime(2023, 12, 31, 23, 30, tzinfo=UTC)
    world.add(
        [
            (mail("a", "word", at=at, files=[("x.pdf", "application/pdf")]), [Place(ALICE, "INBOX", ("Work",)), Place(BOB)]),
            (mail("b", "word", sender="bob@example.org", at=at - timedelta(days=200)), [Place(ALICE, "Sent")]),
            (mail("c", "other"), [Place(BOB, "INBOX")]),
        ]
    )
    both = MailScope(frozenset(world.mailboxes.values()))
    for scope in (MailScope(), both):
        for query in ("word", '"word" OR "nothing"'):
            results = world.search.search(
                query,
                scope,
                facets=["sender", "domain", "year", "folder", "label", "type", "mailbox"],
                zone=ZoneInfo("Europe/Berlin"),
            )
            shown = {name: [(one.value, one.count) for one in values] for name, values in results.facets.items()}
            assert shown == {
                "sender": [("alice@corp.com", 1), ("bob@example.org", 1)],
                "domain": [("corp.com", 1), ("example.org", 1)],
                "year": [("2024", 1), ("2023", 1)],
                "folder": [("INBOX", 1), ("Sent", 1)],
                "label": [("Work", 1)],
                "type": [("pdf", 1)],
                "mailbox": [(ALICE, 2), (BOB, 1)],
            }


ZONES = (
    "UTC",
    "Asia/Kolkata",
    "America/Los_Angeles",
    "Europe/London",
    "Pacific/Apia",
    "Pacific/Kiritimati",
    "America/St_Johns",
)


def test_months_are_those_of_the_user_s_zone(world: MailWorld) -> None:
    """Mail around the start of every month of two years, counted by the calendar of each zone."""
    starts = [datetime(2011 + month // 12, month % 12 + 1, 1, tzinfo=UTC) for month in range(1, 24)]
    moments = [start + timedelta(hours=hours) for start in starts for hours in (-14.1, -9, -5.4, -0.5, 0, 0.1, 3.4, 7.5, 11)]
    world.add([(mail(f"{number}", "word", at=at), [Place(ALICE)]) for number, at in enumerate(moments)])
    for name in ZONES:
        zone = ZoneInfo(name)
        local = Counter(f"{at.astimezone(zone):%Y-%m}" for at in moments)
        for query in ("word", "word OR nothing"):
            facets = world.search.search(query, facets=["month"], zone=zone).facets["month"]
            assert {one.value: one.count for one in facets if one.count} == local, (name, query)
            assert [one.value for one in facets] == [f"{2011 + month // 12}-{month % 12 + 1:02}" for month in range(24)]


def test_snippets_have_marks_and_say_where(world: MailWorld) -> None:
    pages = (
        TextPage(1, "Cover sheet with treasure"),
        TextPage(2, "filler " * 300),
        TextPage(3, "The Überraschung treasure is treasure here"),
    )
    world.add(
        [
            (mail("Letter", "See the file.", files=[("map.pdf", "application/pdf")]), [Place(ALICE)]),
            (mail("Treasure", "Nothing else.\r\n\r\nA hidden passage tells of <b>gold</b> & more."), [Place(ALICE)]),
        ],
        {"map.pdf": pages},
    )
    (hit,) = world.search.search("gold").hits
    assert [hit.passage.text[start:end] for start, end in hit.passage.marks] == ["gold"]
    (hit,) = world.search.search("from:alice überraschung").hits
    assert hit.found_in == "map.pdf, page 3"
    hits = {hit.subject.text: hit for hit in world.search.search("treasure").hits}
    assert hits["Letter"].found_in == "map.pdf, page 3"
    assert len(hits["Letter"].passage.marks) == 2
    assert hits["Treasure"].found_in is None
    assert hits["Treasure"].subject.marks == ((0, 8),)
    (hit,) = world.search.search("cover").hits
    assert hit.found_in == "map.pdf, page 1"


def test_what_is_not_searchable_is_counted_for_the_scope(world: MailWorld) -> None:
    first, second, third = world.add([(mail("a"), [Place(ALICE)]), (mail("b"), [Place(BOB)]), (mail("c"), [Place(BOB)])])
    reasons = '[{"file": "x.pdf", "state": "encrypted", "reason": "needs a password"}]'
    with world.engine.begin() as connection:
        connection.execute(text("UPDATE messages SET search_state = 'pending' WHERE id = ANY(:ids)"), {"ids": [first, second]})
        connection.execute(
            text("UPDATE messages SET search_state = 'partial', search_reasons = CAST(:r AS jsonb) WHERE id = :id"),
            {"id": third, "r": reasons},
        )
    everyone = world.search.search("").not_searchable
    assert (everyone.states, everyone.reasons) == ({"pending": 2, "partial": 1}, {"encrypted": 1})
    alice = world.search.search("", MailScope(frozenset({world.mailboxes[ALICE]}))).not_searchable
    assert (alice.states, alice.reasons) == ({"pending": 1}, {})


def test_a_missing_index_has_no_hits(engine: Engine, client: meilisearch.Client) -> None:
    world = make_world(engine, client)
    finished(client, world.index.delete())
    results = world.search.search("anything OR else", facets=["sender"])
    assert (results.total, results.hits, list(world.search.message_ids("x"))) == (0, (), [])


def test_a_list_that_is_cut_off_makes_a_lower_bound(world: MailWorld, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("archiver.search.searcher.MAX_VALUES", 3)
    world.add([(mail("Final offer", f"word {number}"), [Place(ALICE)]) for number in range(5)])
    results = world.search.search('subject:"final offer" word')
    assert (results.total, results.total_is_lower_bound) == (3, True)
    assert world.search.search('subject:"final offer"').total == 5
    with pytest.raises(QueryError, match="can't be excluded"):
        world.search.search('-subject:"final offer" word')
    with pytest.raises(UsageError, match="reliably"):
        list(world.search.message_ids('subject:"final offer" word'))


def test_ids_of_a_query_are_exact(world: MailWorld) -> None:
    invoice, _ = world.add([(mail("a", "invoice"), [Place(ALICE)]), (mail("b", "invoices invoce"), [Place(ALICE)])])
    assert found(world, "invoice", similar=True) == ["a", "b"]
    assert list(world.search.message_ids("invoice")) == [invoice]
    assert isinstance(invoice, UUID)


@pytest.mark.parametrize(
    ("body", "queries", "nothing"),
    [
        ("東京都の会議は明日です", ["会議", "東京", '"会議は明日"', "明日"], ["京東", '"明日会議"']),
        (
            "Vertragsverlängerung für die Größe",
            ["vertragsverlangerung", "Verträgsverlängerung", "grosse", '"für die"'],
            ['"die für"'],
        ),
        ("Ça coûte très cher, naïve élève", ["cher", "coute", "COÛTE", '"tres cher"'], ['"cher tres"']),
        ("مَرْحَبًا بالعالم", ["مرحبا", '"مرحبا بالعالم"'], ['"بالعالم مرحبا"']),
        ("שָׁלוֹם עולם", ["שלום", '"שלום עולם"'], ['"עולם שלום"']),
        ("Привет мир", ["привет", "МИР"], ['"мир привет"']),
        ("회의는 내일입니다", ["회의는"], ['"내일입니다 회의는"']),
    ],
)
def test_many_scripts(world: MailWorld, body: str, queries: list[str], nothing: list[str]) -> None:
    world.add([(mail("a", body), [Place(ALICE)]), (mail("b", "something else"), [Place(ALICE)])])
    for query in queries:
        assert found(world, query) == ["a"], query
    for query in nothing:
        assert found(world, query) == [], query
