"""Very many hits, and a very long conversation: everything is reached, page by page, and no page grows with it."""

from __future__ import annotations

import re
from collections.abc import Iterator

import httpx2
import pytest

from archiver.indexing.indexer import Indexer
from archiver.search.index import SearchServer
from archiver.store.open import open_archive
from archiver.sync.ingest.store_batch import Ingest, load_origin
from connectors.base import Batch, RawMessage
from tests.integration.http.conftest import Client, Company
from tests.integration.http.pages.test_restore_pages import csrf_of
from tests.support.waiting import DEADLINE_SECONDS

_BATCH = 200
_PAGE_BYTES = 200_000
SIZES = [pytest.param(500, 250), pytest.param(50_000, 5_000, marks=[pytest.mark.chaos, pytest.mark.timeout(1800)])]


@pytest.mark.parametrize(("hits", "answers"), SIZES)
def test_everything_is_reached_and_no_page_grows(company: Company, hits: int, answers: int) -> None:
    word = f"wombat{hits}"
    _fill(company, word, hits, answers)
    with (
        company.client("alice") as client,
        httpx2.Client(base_url=company.url, cookies=client.cookies, timeout=DEADLINE_SECONDS) as people,
    ):
        found = list(_hits(client, word))
        assert len(found) == len(set(found)) == hits
        assert set(_grouped(people, word, -(-hits // 50))) == set(found)
        ungrouped = people.post("/view", data={"grouped": "no", "csrf": client.headers["X-CSRF-Token"]})
        assert ungrouped.status_code == 303
        for page in (1, 2, hits // 60, -(-hits // 30)):
            answer = people.get("/", params={"q": word, "page": page})
            assert f"{hits:,}" in answer.text
            shown = re.findall(r'data-id="([0-9a-f-]{36})"', answer.text)
            assert shown == found[(page - 1) * 30 : page * 30]
            assert len(answer.content) < _PAGE_BYTES
        beyond = people.get("/", params={"q": word, "page": hits})
        assert (beyond.status_code, beyond.headers["Location"]) == (303, f"/?q={word}&page={-(-hits // 30)}")
        conversation = list(_conversation(client, found[-1]))
        assert len(conversation) == len(set(conversation)) == answers
        assert list(_walked(people, conversation[0])) == conversation


def _hits(client: Client, word: str) -> Iterator[str]:
    offset = 0
    while page := client.get("/search", params={"q": word, "limit": 200, "offset": offset}).json()["hits"]:
        yield from (hit["id"] for hit in page)
        offset += len(page)


def _grouped(people: httpx2.Client, word: str, pages: int) -> Iterator[str]:
    """A row stands for the hits of its conversation on that page."""
    for page in range(1, pages + 1):
        answer = people.get("/", params={"q": word, "page": page}).text
        for row, also in re.findall(r'name="id\.([0-9a-f-]{36})" value="([0-9a-f -]*)"', answer):
            yield from (row, *also.split())


def _conversation(client: Client, message: str) -> Iterator[str]:
    more: dict[str, str] = {}
    while True:
        page = client.get(f"/messages/{message}/thread", params={"limit": 400, **more}).json()
        yield from (one["id"] for one in page["items"])
        if page["next"] is None:
            return
        more = {"cursor": page["next"]}


def _walked(people: httpx2.Client, first: str) -> Iterator[str]:
    """As somebody does who follows the link to later messages."""
    at: str | None = first
    seen = set[str]()
    while at is not None:
        answer = people.get(f"/messages/{at}")
        assert answer.status_code == 200
        assert len(answer.content) < _PAGE_BYTES
        listed = answer.text[answer.text.index('<ol class="conversation">') :]
        for one in re.findall(r'<a class="other" href="/messages/([0-9a-f-]{36})', listed):
            if one not in seen:
                seen.add(one)
                yield one
        later = re.search(r'data-id="([0-9a-f-]{36})" rel="next"', listed)
        at = later[1] if later else None


def _fill(company: Company, word: str, hits: int, answers: int) -> None:
    archive = open_archive(company.settings, company.engine)
    ingest = Ingest(company.engine, archive)
    with company.engine.connect() as connection:
        origin = load_origin(connection, company.mailboxes["alice"])
    for start in range(0, hits, _BATCH):
        numbers = range(start, min(start + _BATCH, hits))
        found = tuple(RawMessage(f"{word}:{n}", data=_mail(word, n, n < answers), folder="INBOX") for n in numbers)
        ingest.store_batch(origin, Batch(messages=found))
    Indexer(company.engine, archive, SearchServer(company.settings), 500).run()
    archive.close()


def _mail(word: str, number: int, is_answer: bool) -> bytes:
    minutes = number  # the conversation is the oldest of it all
    head = [
        f"Message-ID: <{word}.{number}@example.net>",
        *([f"References: <{word}.0@example.net>"] if is_answer and number else []),
        "From: Dora <dora@example.net>",
        "To: alice@example.org",
        f"Subject: {'Re: the endless talk' if is_answer else f'number {number}'}",
        f"Date: {1 + minutes // 1440 % 28} Mar {2010 + minutes // 40320} {minutes // 60 % 24:02}:{minutes % 60:02}:00 +0000",
    ]
    return "\r\n".join([*head, "", f"{word} {number}", ""]).encode()


def test_export_of_all_results_is_not_limited_to_the_ticked_rows(company: Company) -> None:
    ticked = {f"id.{company.messages['alice']}": "", "q": "subject:x"}
    with company.client("alice") as alice:
        for chosen, selection in (({}, "message_ids"), ({"all": "on"}, "query"), ({"do": "all"}, "query")):
            fields = {"csrf": csrf_of(alice.get(f"{company.url}/exports").text), **ticked, **chosen}
            assert alice.post(f"{company.url}/export", data=fields, follow_redirects=False).status_code == 303
            (newest, *_) = alice.get("/exports").json()["items"]
            assert selection in newest["selection"], chosen
