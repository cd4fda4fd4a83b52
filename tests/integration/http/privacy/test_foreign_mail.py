"""Whether there is mail of others changes nothing that a plain user is answered.

Three archives: Alice's mail alone; with mail of Bob that came before hers; with the same mail that came after. All routes and
pages that she can ask are asked in each of them, with ids of hers and of Bob's, and the answers are compared word for word.
"""

from __future__ import annotations

import base64
import hashlib
import re
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import count
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
from sqlalchemy import Engine

from archiver.config import load_settings
from archiver.db.engine import make_engine
from archiver.db.tables import message_uuid, uuid7
from archiver.extract.extractor import Extractor
from archiver.indexing.attachments import AttachmentTexts
from archiver.indexing.indexer import Indexer
from archiver.search.index import SearchServer
from archiver.secrets import create_missing_keys
from archiver.store.open import open_archive
from archiver.supervisor.postgres import EmbeddedPostgres
from archiver.sync.ingest.store_batch import Ingest, load_origin
from connectors.base import Batch, RawMessage
from tests.conftest import _create_database
from tests.integration.http.conftest import Client, Company, Served
from tests.integration.http.test_routes import ROUTES
from tests.support.search_at import SearchAt

SOURCE, ALICE, BOB = UUID(int=1), UUID(int=2), UUID(int=3)
OF_ALICE, OF_BOB = datetime(2026, 1, 2, 10, tzinfo=UTC), datetime(2025, 5, 5, 5, tzinfo=UTC)
LATE = datetime(2035, 1, 1, tzinfo=UTC)
"""Later than any index: a copy that still waits for its turn."""
FILE = b"quarterly figures for the tiger team\n"


def mail(
    name: str,
    subject: str,
    *parents: str,
    body: str = "",
    day: int = 5,
    file: bytes | None = None,
    date: str | None = None,
    sender: str = "x@example.net",
) -> bytes:
    head = [f"Message-ID: <{name}@example.org>", f"From: {sender}", "To: alice@example.org, bob@example.org"]
    head += [f"References: {' '.join(f'<{one}@example.org>' for one in parents)}"] if parents else []
    head += [f"Subject: {subject}", date if date is not None else f"Date: Tue, {day:02} Mar 2024 10:00:00 +0000"]
    head += ["MIME-Version: 1.0"]
    if file is None:
        return "\r\n".join([*head, "Content-Type: text/plain", "", body or f"text of {name}", ""]).encode()
    parts = ["--b", "Content-Type: text/plain", "", body or f"text of {name}", "--b", 'Content-Type: text/plain; name="f.txt"']
    parts += ['Content-Disposition: attachment; filename="f.txt"', "Content-Transfer-Encoding: base64", ""]
    parts += [base64.encodebytes(file).decode(), "--b--", ""]
    return "\r\n".join([*head, 'Content-Type: multipart/mixed; boundary="b"', "", *parts]).encode()


def id_of(raw: bytes) -> UUID:
    return message_uuid(hashlib.sha256(raw).digest())


SHARED = {
    "shared": mail("shared", "Minutes", file=b"an agenda that both have"),
    "received": mail("received", "Only received", date="Received: by mx.example.org; Tue, 05 Mar 2024 10:00:00 +0000"),
    "implausible": mail("implausible", "Long ago", date="Date: Tue, 05 Mar 1991 10:00:00 +0000"),
}
"""Both have these, and got them at other times."""
LATER = mail("later", "Offer", file=FILE)
OWN = {
    "root": mail("root", "Budget"),
    "leaf": mail("leaf", "Plans", "bridge"),
    "other": mail("other", "Lunch", "bridge", "far"),
    "reply": mail("reply", "Re: Holiday", day=6),
    "plain": mail("plain", "Holiday plans", body="nothing but text"),
    "garden": mail("garden", "Garden", day=8),
    "regarden": mail("regarden", "Re: Garden", day=9, sender="alice@example.org"),
    "zebra": mail("zebra", "One", body="a zebra, and gardens to walk in"),
    "zebro": mail("zebro", "Two", body="a zebro"),
    **{f"equal{number}": mail(f"equal{number}", "Equal", body="as good as others 1", day=number) for number in (6, 8, 10)},
}
"""Alice's alone, in the index."""


def latest(limit: UUID) -> bytes:
    """As good as Alice's, and behind them in the order of ids, by which they come to the index."""
    tries = (mail("equal", "Equal", body=f"as good as others {number}", day=7) for number in count())
    return next(raw for raw in tries if id_of(raw) > limit)


SHARED["equal"] = latest(max(id_of(raw) for name, raw in OWN.items() if name.startswith("equal")))


def smallest(limit: UUID) -> bytes:
    """A message whose id is below all others: threads are named after the smallest."""
    tries = (mail("bridge", "Secret tiger project", "root", "far", body=f"number {number}", file=FILE) for number in count())
    return next(raw for raw in tries if id_of(raw) < limit)


FOREIGN = {
    "bridge": smallest(min(id_of(raw) for raw in (*OWN.values(), *SHARED.values(), LATER))),
    "holiday": mail("holiday", "Holiday", day=5),
    "tiger": mail("tiger", "Re: tiger", body="tiger tiger"),
    **{
        f"crowd{number}": mail(f"crowd{number}", "Garden", body=f"zebra gardener {number}", day=7 if number % 2 else 9)
        for number in range(210)
    },
}
"""Bob's alone. `bridge` joins three threads of Alice's to one; her `reply` could answer to `holiday`; the crowd has her words
and subjects, more often than any limit for common ones."""


@dataclass
class World:
    client: Client
    engine: Engine
    company: Company


def archive_mail(company: Company, ingest: Ingest, mailbox: UUID, mails: dict[str, bytes], received: datetime) -> None:
    with company.engine.connect() as connection:
        origin = load_origin(connection, mailbox)
    folder, label = ("Inbox", "important") if mailbox == ALICE else ("Bobs folder", "bobs label")
    place: dict[str, Any] = {"folder": folder, "labels": (label,), "received_at": received}
    found = tuple(RawMessage(f"INBOX:{name}", data=raw, **place) for name, raw in mails.items())
    ingest.store_batch(origin, Batch(messages=found))


@contextmanager
def archive_of(place: Path, variables: dict[str, str], database: str, steps: list[str]) -> Iterator[World]:
    settings = load_settings({**variables, "DATABASE_URL": database, "ARCHIVER_DATA": str(place / "data")}, Path("none"))
    create_missing_keys(settings)
    engine = make_engine(database, "test")
    archive, server = open_archive(settings, engine), SearchServer(settings)
    ingest = Ingest(engine, archive)
    with Served(settings) as served:
        company = Company(settings, engine, served.url)
        company.act("INSERT INTO ingestion_sources (id, kind, name, status) VALUES (:i, 'fake', 'work', 'active')", i=SOURCE)
        for mailbox, address in ((ALICE, "alice@example.org"), (BOB, "bob@example.org")):
            company.act("INSERT INTO mailboxes (id, source_id, address) VALUES (:m, :s, :a)", m=mailbox, s=SOURCE, a=address)
        company.add_user("alice@example.org")
        for step in steps:
            if step == "alice":
                archive_mail(company, ingest, ALICE, {**OWN, **SHARED}, OF_ALICE)
            else:
                archive_mail(company, ingest, BOB, {**FOREIGN, **SHARED, "later": LATER}, OF_BOB)
            Indexer(engine, archive, server, 100).run()
            with closing(Extractor(1)) as extractor:
                AttachmentTexts(engine, archive, server, extractor, place / "scratch").run()
        archive_mail(company, ingest, ALICE, {"later": LATER}, OF_ALICE)  # not in her index yet
        date = "UPDATE message_copies SET created_at = :t WHERE mailbox_id = :m"
        company.act(date, t=OF_ALICE, m=ALICE)
        company.act(date, t=OF_BOB, m=BOB)
        company.act(f"{date} AND message_id = :i", t=LATE, m=ALICE, i=id_of(LATER))
        first = "SELECT min(created_at) FROM message_copies c WHERE c.message_id = m.id"
        company.act(f"UPDATE messages m SET archived_at = ({first})")
        with company.client("alice") as client:
            yield World(client, engine, company)
    archive.close()
    engine.dispose()


STEPS = {"alone": ["alice"], "before": ["bob", "alice"], "after": ["alice", "bob"]}


@pytest.fixture(scope="module")
def worlds(
    postgres: EmbeddedPostgres, variables: dict[str, str], tmp_path_factory: pytest.TempPathFactory
) -> dict[str, dict[str, tuple[int, str]]]:
    """The answers of each archive, by request."""
    found = {}
    for name, steps in STEPS.items():
        place = tmp_path_factory.mktemp(name)
        search = SearchAt(place / "search").start()
        database = f"t_{uuid7().hex}"
        _create_database(postgres, database, "template")
        with archive_of(place, {**variables, **search.variables}, postgres.url(database), steps) as world:
            found[name] = {path: answer_of(world, path) for path in requests()}
            found[name] |= {f"{path} of a thread": answer for path, answer in threads_of(world)}
            if name != "alone":
                assert world.company.value("SELECT count(*) FROM messages") == len(OWN) + len(FOREIGN) + len(SHARED) + 1
                joined = "SELECT count(DISTINCT thread_id) FROM messages WHERE id = ANY(:ids)"
                ids = [id_of(OWN[one]) for one in ("root", "leaf", "other")]
                assert world.company.value(joined, ids=ids) == 1, "the whole archive knows better"
        search.stop()
    return found


QUERIES = [
    "", "tiger", "text", "figures", '"tiger team"', "subject:Secret", "from:x@example.net", "has:attachment", "type:text",
    "in:Inbox", 'in:"Bobs folder"', "label:important", 'label:"bobs label"', "in:*", "label:*", "mailbox:alice@example.org",
    "mailbox:bob@example.org", "mailbox:b*", "source:work", "message-id:bridge@example.org", "filename:f.txt", "larger:1",
    "zebra", "zebr", "zebra garden", "gardn", "equal", "as good as", "others equal", "subject:Garden",
    "after:2024-01-01", "before:2000-01-01", "on:1970", "on:2025", "on:2026",
    "participant:bob@example.org", "holiday -plans", f"sha256:{hashlib.sha256(FILE).hexdigest()}",
    f"sha256:{hashlib.sha256(LATER).hexdigest()}",
]  # fmt: skip
FACETS = "&".join(f"facet={one}" for one in ("sender", "domain", "year", "folder", "label", "type", "mailbox"))
PREFIXES = ["", "b", "bob", "x@", "f", "in:", "in:B", "label:b", "mailbox:", "mailbox:b", "from:x", "to:b", "subject:"]
SOME = ("bridge", "holiday", "tiger", "crowd0")
IDS = [*(id_of(raw) for raw in (*OWN.values(), *SHARED.values(), LATER)), *(id_of(FOREIGN[name]) for name in SOME)]
NOWHERE = "01900000-0000-8000-8000-000000000000"


def requests() -> list[str]:
    """Every route of the API that only reads, and every page, filled with all there is to ask for."""
    found = []
    for method, path in sorted(ROUTES):
        if method == "GET" and not path.startswith(("/oidc", "/progress", "/me/sessions")):
            found += [f"/api/v1{one}" for one in filled(path)]
    pages = ["/", "/dashboard", "/settings/keys", "/search-help", "/sources", "/activity", "/messages/{message_id}"]
    pages += [f"/messages/{{message_id}}{part}" for part in ("?part=pane", "/body", "/source", "/files/0/text", "/files/0")]
    pages += [
        f"/messages/{{message_id}}{part}"
        for part in ("/files", "/files/0/thumbnail", "/files/0/view?find=e", "/header", "/print")
    ]
    pages += ["/suggest?{prefix}", "/?{query}", "/files?{query}"]
    return [*found, *(one for page in pages for one in filled(page))]


def filled(path: str) -> list[str]:
    if "{message_id}" in path:
        return [path.replace("{message_id}", str(one)).replace("{number}", "0") for one in IDS]
    path = re.sub(r"\{\w+_id\}", NOWHERE, path)
    if path == "/search":
        return [f"{path}?q={query}&{FACETS}&sort={sort}" for query in QUERIES for sort in ("newest", "oldest", "best")]
    if path == "/facets":
        return [f"{path}?q={query}&{FACETS}" for query in QUERIES]
    if path == "/suggestions" or path == "/suggest?{prefix}":
        name, way = ("prefix", path) if path == "/suggestions" else ("q", "/suggest")
        return [f"{way}?{name}={prefix}" for prefix in PREFIXES]
    if path.endswith("?{query}"):
        return [f"{path.removesuffix('?{query}')}?q={query}" for query in QUERIES]
    if path == "/messages":
        return [path, f"{path}?limit=2", f"{path}?mailbox_id={ALICE}", f"{path}?mailbox_id={BOB}", f"{path}?folder=Bobs folder"]
    return [path]


def answer_of(world: World, path: str) -> tuple[int, str]:
    answer = world.client.get(f"{world.company.url}{path}")
    return answer.status_code, same_for_all(answer.text)


def threads_of(world: World) -> Iterator[tuple[str, tuple[int, str]]]:
    """By the name under which this reader knows them; and by ids that somebody may guess."""
    shown = {hit["thread_id"] for hit in world.client.get("/search").json()["hits"]} - {None}
    for thread in sorted({*shown, *map(str, IDS)}):
        path = f"/api/v1/search?q=thread:{thread}"
        yield path, answer_of(world, path)


def same_for_all(text: str) -> str:
    """Without what belongs to the request, the session or the copy: random ids and the time of this very test."""
    text = re.sub(r"\b[0-9a-f]{8}-[0-9a-f]{4}-7[0-9a-f]{3}-[0-9a-f]{4}-[0-9a-f]{12}\b", "ID", text)
    text = re.sub(r'(name="csrf" (?:value|content)=|"request_id":|"csrf_token":|data-csrf=)"[^"]*"', r"\1", text)
    text = re.sub(r"\b[0-9a-f]{16}\b", "REQUEST", text)
    return re.sub(rf"{datetime.now(UTC):%Y-%m-%d}T[0-9:.]+(?:Z|\+00:00)", "NOW", text)


@pytest.mark.parametrize("world", ["before", "after"])
def test_mail_of_others_changes_no_answer(worlds: dict[str, dict[str, Any]], world: str) -> None:
    alone, there = worlds["alone"], worlds[world]
    different = {path: (alone.get(path), there.get(path)) for path in {*alone, *there} if alone.get(path) != there.get(path)}
    assert not different, "\n".join(f"{path}\n  {one}\n  {two}" for path, (one, two) in sorted(different.items())[:3])


def test_enough_was_asked(worlds: dict[str, dict[str, Any]]) -> None:
    alone = worlds["alone"]
    assert len(alone) > 200
    statuses = [status for status, _ in alone.values()]
    assert statuses.count(200) > 120
    assert not [path for path, (status, _) in alone.items() if status >= 500]
    own, foreign = id_of(OWN["leaf"]), id_of(FOREIGN["bridge"])
    assert alone[f"/api/v1/messages/{own}"][0] == 200
    assert alone[f"/api/v1/messages/{foreign}"][0] == 404
    assert '"total":2,' in alone[f"/api/v1/search?q=zebra&{FACETS}&sort=best"][1], "also with a typo"
    joined = [path for path, (_, text) in alone.items() if "of a thread" in path and '"total":2,' in text and "Garden" in text]
    assert joined, "the reply is in the thread of what it answers to"
    assert '"search_state":"pending"' in alone[f"/api/v1/messages/{id_of(LATER)}"][1]
    assert '"pending":1' in alone["/api/v1/search?q=&" + FACETS + "&sort=newest"][1]
