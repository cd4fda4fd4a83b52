"""The same mail from a mail server and from an mbox: shown once, stored each, and nobody learns of what only others have."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from dataclasses import dataclass
from uuid import UUID

import httpx2
import pytest

from archiver.access.scope import EVERYTHING
from archiver.db.tables import message_uuid
from archiver.indexing.indexer import Indexer
from archiver.reading import messages
from archiver.search.index import SearchServer
from archiver.store.open import open_archive
from archiver.sync.ingest.store_batch import Ingest, load_origin
from connectors.base import Batch, RawMessage
from tests.integration.http.conftest import Client, Company, mail
from tests.support.waiting import DEADLINE_SECONDS

NUMBERS = range(40, 46)
"""Mails that alice has as they came and bob as his mail program keeps them; number 46 has no variant."""


@dataclass(frozen=True)
class Twins:
    company: Company
    ids: dict[tuple[str, int], str]

    def pair(self, number: int) -> set[str]:
        return {self.ids["alice", number], self.ids["bob", number]}


@pytest.fixture(scope="module")
def twins(company: Company) -> Twins:
    mails = {n: mail(n, "x@example.net", "all@example.org", f"pangolin {n}", "pangolin") for n in (*NUMBERS, 46)}
    kept = {n: b"Status: RO\n" + mails[n].replace(b"\r\n", b"\n") for n in NUMBERS}
    ids = {("alice", n): one for n, one in zip(mails, archived(company, "alice", mails.values()), strict=True)}
    ids |= {("bob", n): one for n, one in zip(kept, archived(company, "bob", kept.values()), strict=True)}
    return Twins(company, ids)


def archived(company: Company, name: str, raws: Iterable[bytes]) -> list[str]:
    archive = open_archive(company.settings, company.engine)
    with company.engine.connect() as connection:
        origin = load_origin(connection, company.mailboxes[name])
    digests = {hashlib.sha256(raw).digest(): raw for raw in raws}
    found = tuple(RawMessage(one.hex(), data=raw, folder=f"{name}s-twins") for one, raw in digests.items())
    Ingest(company.engine, archive).store_batch(origin, Batch(messages=found))
    Indexer(company.engine, archive, SearchServer(company.settings), 100).run()
    archive.close()
    return [str(message_uuid(one)) for one in digests]


def named(item: dict[str, object]) -> set[object]:
    variants = item["variants"]
    assert isinstance(variants, list)
    return {item["id"], *variants}


def test_a_search_shows_them_once_with_the_places_of_both(twins: Twins) -> None:
    with twins.company.client("auditor") as client:
        found = client.get("/search", params={"q": "pangolin", "limit": 50}).json()
        assert found["total"] == len(found["hits"]) == len(NUMBERS) + 1
        assert found["next_offset"] is None
        for hit, number in zip(found["hits"], (46, *reversed(NUMBERS)), strict=True):
            both = number in NUMBERS
            assert named(hit) == (twins.pair(number) if both else {twins.ids["alice", 46]})
            assert sorted(copy["folder"] for copy in hit["copies"]) == ["alices-twins", *(["bobs-twins"] if both else [])]
        offset: int | None = 0
        seen = set[object]()
        while offset is not None:
            page = client.get("/search", params={"q": "pangolin", "limit": 4, "offset": offset}).json()
            seen |= set().union(*map(named, page["hits"]))
            offset = page["next_offset"]
        assert seen == set(twins.ids.values())


def test_who_sees_one_mailbox_finds_no_trace_of_the_other(twins: Twins) -> None:
    for who, other, count in (("alice", "bob", 7), ("bob", "alice", 6)):
        one = twins.ids[who, NUMBERS[0]]
        with twins.company.client(who) as client, people(twins.company, client) as pages:
            found = client.get("/search", params={"q": "pangolin"})
            assert (found.json()["total"], len(found.json()["hits"])) == (count, count)
            answers = [found, *(client.get(f"/messages/{one}{path}") for path in ("", "/thread"))]
            answers += [pages.get("/", params={"q": "pangolin"}), pages.get(f"/messages/{one}")]
            for answer in answers:
                assert answer.status_code == 200
                assert not [number for number in NUMBERS if twins.ids[other, number] in answer.text], answer.url
                assert f"{other}s-" not in answer.text
                assert " variants" not in answer.text
            assert client.get(f"/messages/{one}").json()["detail"]["variants"] == []


def test_a_conversation_shows_them_once(twins: Twins) -> None:
    with twins.company.client("auditor") as client:
        for asked in ("alice", "bob"):
            message = twins.ids[asked, NUMBERS[2]]
            items = client.get(f"/messages/{message}/thread").json()["items"]
            assert len(items) == 3 + len(NUMBERS) + 1, "three that the company has anyway"
            assert [named(item) for item in items[3:-1]] == [twins.pair(number) for number in NUMBERS]
            assert message in {item["id"] for item in items}, "who asks for a message finds it in its conversation"


def test_pages_of_a_conversation_show_or_name_every_message_once(twins: Twins) -> None:
    message = twins.ids["alice", NUMBERS[2]]
    with twins.company.client("auditor") as client:
        for limit in (1, 2, 3, 4, 5, 15, 16, 17):
            seen, more = list[object](), dict[str, str]()
            while True:
                page = client.get(f"/messages/{message}/thread", params={"limit": limit, **more}).json()
                seen += [one for item in page["items"] for one in named(item)]
                if page["next"] is None:
                    break
                more = {"cursor": page["next"]}
            assert len(seen) == len(set(seen)) == 3 + 2 * len(NUMBERS) + 1


def test_a_message_names_its_other_originals(twins: Twins) -> None:
    pair = twins.ids["alice", NUMBERS[0]], twins.ids["bob", NUMBERS[0]]
    with twins.company.client("auditor") as client:
        for one, other, name in ((*pair, "bob"), (*reversed(pair), "alice")):
            (variant,) = client.get(f"/messages/{one}").json()["detail"]["variants"]
            assert (variant["id"], variant["mailboxes"], variant["sources"]) == (other, [f"{name}@example.org"], ["work"])
            original = client.get(f"/messages/{variant['id']}/raw").content
            assert hashlib.sha256(original).hexdigest() == variant["sha256"]
            assert len(original) == variant["size_bytes"]
        listed = client.get("/messages", params={"limit": 500}).json()["items"]
        assert set(twins.ids.values()) <= {item["id"] for item in listed}, "a list of what is stored has each"


def test_the_pages_say_so(twins: Twins) -> None:
    one, other = twins.ids["alice", NUMBERS[0]], twins.ids["bob", NUMBERS[0]]
    with twins.company.client("auditor") as client, people(twins.company, client) as pages:
        found = pages.get("/", params={"q": "pangolin"}).text
        assert found.count('class="hit"') == 1, "all in one conversation"
        assert "6 more matches" in found
        assert "7 messages" in found
        for shown, linked in ((one, other), (other, one)):
            page = pages.get(f"/messages/{shown}").text
            assert "1 other variant of this message" in page
            assert f'href="/messages/{linked}"' in page
            assert f"Conversation with {3 + len(NUMBERS) + 1} messages" in page
        alone = pages.get(f"/messages/{twins.ids['alice', 46]}").text
        assert "other original" not in alone


def test_a_conversation_full_of_variants_is_walked_to_its_ends(company: Company) -> None:
    """More of one mail than a stretch shows: whoever follows the links still gets to what comes before and after."""
    head = "Message-ID: <{0}@walk>\nReferences: <0@walk>\nSubject: walk {0}\nDate: Tue, 0{0} Mar 2022 10:00:00 +0000\n\nwalk\n"
    mails = [head.format(number).encode() for number in (1, 2, 3)]
    ids = archived(company, "alice", [mails[0], *(b"X-UID: %d\n" % n + mails[1] for n in range(20)), mails[2]])
    first, *variants, last = map(UUID, ids)
    for message_id in variants:
        for direction, end in (("earlier", first), ("later", last)):
            at: UUID | None = message_id
            steps = 0
            while at is not None:
                with company.engine.connect() as connection:
                    row = messages.detail(connection, EVERYTHING, at).message
                    around = messages.around(connection, EVERYTHING, row, each=3)
                assert at in {one.id for one in around.messages}
                at, steps = getattr(around, direction), steps + 1
                assert steps < 10
            assert end in {one.id for one in around.messages}


def people(company: Company, signed_in: Client) -> httpx2.Client:
    return httpx2.Client(base_url=company.url, cookies=signed_in.cookies, timeout=DEADLINE_SECONDS)
