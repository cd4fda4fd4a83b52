"""Searching through the service: query language, search server and Postgres together, as a page or `archiver search` asks.

    python -m benchmarks.search [--messages N] [--rounds N]

Mail is composed of lines of real mail where a corpus is at hand (ARCHIVER_TEST_CORPUS), and is indexed with the real document
builder. Each search asks for twenty hits with passages and marks, exact totals and all facets.
"""

from __future__ import annotations

import argparse
import hashlib
import random
import statistics
import tempfile
import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from itertools import islice
from pathlib import Path
from typing import Any
from uuid import UUID

import meilisearch
import orjson
from sqlalchemy import Engine, insert, text

from archiver.access.scope import EVERYTHING, MailScope
from archiver.db import schema
from archiver.db.engine import make_engine
from archiver.db.tables import IngestionSourceTable, MailboxTable, MessageCopyTable, MessageTable, ParticipantTable, uuid7
from archiver.mail.message import read_message
from archiver.search.document import INDEX, INDEX_SETTINGS, IndexedCopy, Inputs, Participant, build_document
from archiver.search.facets import FACETS
from archiver.search.searcher import IndexSearcher
from archiver.search.service import MailSearch
from archiver.store.content import MemoryContent
from archiver.supervisor.folder import DataFolder
from archiver.supervisor.postgres import EmbeddedPostgres
from archiver.sync.ingest.rows import MessageRows, describe
from benchmarks.report import figure, load
from benchmarks.search_server import KEY, Server, real_lines

BATCH = 2_000
MAILBOXES = [(uuid7(), f"user{number}@corp{number % 5}.example.org") for number in range(40)]
SOURCE = uuid7()
FOLDERS = ("INBOX", "Sent", "Archive/2023", "Archive/2024", "Projects")
PEOPLE = [f"Person{number} Name{number % 700} <user{number}@corp{number % 50}.example.org>" for number in range(3000)]
Stored = tuple[MessageRows, list[tuple[UUID, str]], dict[str, Any]]


def lines_of_mail() -> list[str]:
    """Without quotes, which would stand between all others here as they never do in mail."""
    return [line for line in real_lines() if not line.lstrip().startswith((">", "|", "--"))]


def mail(number: int, chance: random.Random, lines: list[str]) -> bytes:
    """Lengths are spread like those of real mail, with a median of 2,000 characters."""
    wanted, body = int(chance.lognormvariate(0, 0.8) * 2000), list[str]()
    while wanted > 0:
        body.append(lines[chance.randrange(len(lines))])
        wanted -= len(body[-1]) + 1
    at = datetime(2010, 1, 1, tzinfo=UTC) + timedelta(seconds=number * 4_000)
    head = [
        f"From: {chance.choice(PEOPLE)}",
        f"To: {chance.choice(PEOPLE)}, {chance.choice(PEOPLE)}",
        f"Subject: {lines[chance.randrange(len(lines))][:60]}",
        f"Date: {at:%a, %d %b %Y %H:%M:%S} +0000",
        f"Message-ID: <{number}@bench.example.org>",
        "Content-Type: text/plain; charset=utf-8",
    ]
    return ("\r\n".join(head) + "\r\n\r\n" + "\r\n".join(body)).encode("utf-8", "replace")


def mails(count: int, lines: list[str]) -> Iterator[Stored]:
    chance = random.Random(1)
    for number in range(count):
        raw = mail(number, chance, lines)
        rows = describe(MemoryContent(raw), hashlib.sha256(raw).digest(), None)
        places = [(chance.choice(MAILBOXES)[0], chance.choice(FOLDERS)) for _ in range(chance.choice([1, 1, 2]))]
        yield rows, places, _document(raw, rows, places)


def _document(raw: bytes, rows: MessageRows, places: list[tuple[UUID, str]]) -> dict[str, Any]:
    row = rows.message
    return build_document(
        Inputs(
            id=rows.id,
            version=1,
            sha256=rows.sha256,
            sort_at=row["sort_at"],
            size_bytes=len(raw),
            message=read_message(raw),
            internet_message_id=row["internet_message_id"],
            thread_id=rows.id,
            sender=row["sender"],
            subject=row["subject"],
            people=[Participant(one["r"], one["a"], one["n"]) for one in rows.participants],
            copies=[IndexedCopy(mailbox, SOURCE, folder) for mailbox, folder in places],
        )
    )


def fill(engine: Engine, server: Server, count: int) -> None:
    with engine.begin() as connection:
        connection.execute(insert(IngestionSourceTable), [{"id": SOURCE, "kind": "imap", "name": "bench"}])
        connection.execute(
            insert(MailboxTable), [{"id": one, "source_id": SOURCE, "address": address} for one, address in MAILBOXES]
        )
    client = server.client
    client.wait_for_task(client.create_index(INDEX, {"primaryKey": "id"}).task_uid)
    client.wait_for_task(client.index(INDEX).update_settings(INDEX_SETTINGS).task_uid)
    source, last = mails(count, lines_of_mail()), 0
    while batch := list(islice(source, BATCH)):
        body = b"[" + b",".join(orjson.dumps(document) for _, _, document in batch) + b"]"
        last = client.index(INDEX).add_documents_raw(body, "id", "application/json").task_uid
        _insert(engine, batch)
    done = client.wait_for_task(last, timeout_in_ms=3_600_000, interval_in_ms=100)
    assert done.status == "succeeded", done.error
    with engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
        connection.execute(text("ANALYZE"))


def _insert(engine: Engine, batch: list[Stored]) -> None:
    messages = [
        {
            **rows.message,
            "sha256": rows.sha256,
            "canonical_sha256": rows.sha256,
            "reference_ids": [],
            "defects": [],
            "thread_id": rows.id,
            "search_state": "full",
        }
        for rows, _, _ in batch
    ]
    people = [
        {"message_id": one["m"], "position": one["p"], "role": one["r"], "address": one["a"], "name": one["n"]}
        for rows, _, _ in batch
        for one in rows.participants
    ]
    copies = [
        {"id": uuid7(), "message_id": rows.id, "mailbox_id": mailbox, "provider_key": f"{rows.id}/{place}", "folder": folder}
        for rows, places, _ in batch
        for place, (mailbox, folder) in enumerate(places)
    ]
    with engine.begin() as connection:
        connection.execute(insert(MessageTable), messages)
        connection.execute(insert(ParticipantTable), people)
        connection.execute(insert(MessageCopyTable), copies)


def queries(lines: list[str]) -> dict[str, list[str]]:
    chance = random.Random(2)
    words = [word.lower() for line in lines[::7] for word in line.split() if word.isalpha() and len(word) > 3]
    pairs = [line.split()[:2] for line in lines[::11] if all(word.isalpha() for word in line.split()[:2])]

    def word() -> str:
        return chance.choice(words)

    made: dict[str, list[str]] = {}
    for _ in range(20):
        pair = " ".join(chance.choice(pairs))
        person = chance.randrange(3000)
        each = {
            "one word": word(),
            "two words": f"{word()} {word()}",
            "a phrase": f'"{pair}"',
            "sender and word": f"from:person{person} {word()}",
            "domain and word": f"from:@corp{person % 50}.example.org {word()}",
            "words with OR": f"{word()} OR {word()} OR {word()}",
            "word and not word": f"{word()} -{word()}",
            "subject words": f"subject:({word()} OR {word()})",
            "subject phrase and word": f'subject:"{pair}" {word()}',
            "dates and folder": f"after:2014 before:2016-06 in:inbox {word()}",
            "wildcard sender": f"from:user{person % 10}*@corp{person % 50}.example.org",
            "everything": "",
        }
        for name, query in each.items():
            made.setdefault(name, []).append(query)
    return made


def measure(search: MailSearch, made: dict[str, list[str]], scope: MailScope, rounds: int) -> list[float]:
    times: list[float] = []
    for name, some in made.items():
        mine: list[float] = []
        for number, query in enumerate(some[:rounds]):
            begun = time.perf_counter()
            search.search(query, scope, sort="best" if number % 2 else "newest", facets=FACETS)
            mine.append((time.perf_counter() - begun) * 1000)
        figure(f"{name}, median", statistics.median(mine), "ms")
        times += mine
    return times


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--messages", type=int, default=100_000)
    parser.add_argument("--rounds", type=int, default=20)
    asked = parser.parse_args()
    load()
    with tempfile.TemporaryDirectory() as folder:
        postgres = EmbeddedPostgres(_prepared(Path(folder) / "data"))
        postgres.prepare()
        with postgres.running():
            engine = make_engine(postgres.url("postgres"), "bench")
            schema.migrate(engine)
            server = Server(Path(folder) / "search")
            try:
                _run(engine, server, asked.messages, asked.rounds)
            finally:
                server.stop()
                engine.dispose()


def _prepared(path: Path) -> DataFolder:
    folder = DataFolder(path)
    folder.prepare()
    return folder


def _run(engine: Engine, server: Server, count: int, rounds: int) -> None:
    begun, cpu = time.perf_counter(), server.cpu_seconds()
    fill(engine, server, count)
    figure("documents built, sent and indexed", count / (time.perf_counter() - begun), "/s")
    figure("CPU of the search server for each", (server.cpu_seconds() - cpu) / count * 1000, "ms")
    server.wait_until_calm()
    search = MailSearch(engine, IndexSearcher(lambda: meilisearch.Client(server.url, KEY)))
    made = queries(lines_of_mail())
    for name, scope in (
        ("all mailboxes", EVERYTHING),
        ("three mailboxes", MailScope(frozenset(one for one, _ in MAILBOXES[:3]))),
    ):
        search.search("warm up", scope, facets=FACETS)
        print(f"  {name}:", flush=True)
        cpu = server.cpu_seconds()
        times = sorted(measure(search, made, scope, rounds))
        figure("all of them, median", statistics.median(times), "ms")
        figure("all of them, p95", times[int(len(times) * 0.95)], "ms", "<= 50 at 100,000 messages")
        figure("CPU of the search server for each", (server.cpu_seconds() - cpu) / len(times) * 1000, "ms")


if __name__ == "__main__":
    main()
