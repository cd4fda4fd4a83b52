"""Searches on real mail against a naive scan of the same documents."""

from __future__ import annotations

import email
import random
import re
import unicodedata
from collections.abc import Iterator
from email.message import Message
from pathlib import Path
from typing import Any

import pytest
from meilisearch.index import Index

from tests.integration.search.search_process import SearchProcess, finished

COUNT = 1200
WORD = re.compile(r"[^\W_]+")


def _text(message: Message) -> str:
    parts: list[str] = []
    for part in message.walk():
        if part.get_content_maintype() == "text":
            payload = part.get_payload(decode=True)
            if isinstance(payload, bytes):
                parts.append(payload.decode("latin-1"))
    return "\n".join(parts)[:20_000]


@pytest.fixture(scope="module")
def mails(corpus: Path) -> list[dict[str, Any]]:
    paths = sorted(path for path in (corpus / "public" / "real").rglob("*") if path.is_file())
    found: list[dict[str, Any]] = []
    for path in random.Random(1).sample(paths, min(COUNT, len(paths))):
        message = email.message_from_bytes(path.read_bytes())
        sender = str(message.get("From", ""))
        found.append(
            {
                "id": len(found),
                "subject": str(message.get("Subject", "")),
                "from": sender,
                "body": _text(message),
                "size": path.stat().st_size,
                "group": path.parent.name,
            }
        )
    return found


@pytest.fixture(scope="module")
def index(mails: list[dict[str, Any]], tmp_path_factory: pytest.TempPathFactory) -> Iterator[Index]:
    server = SearchProcess(tmp_path_factory.mktemp("corpus"))
    made = server.client.index("mail")
    settings = {
        "searchableAttributes": ["subject", "from", "body"],
        "filterableAttributes": ["size", "group", "from"],
        "sortableAttributes": ["size"],
        "typoTolerance": {"enabled": False},
    }
    finished(server.client, made.update_settings(settings))
    for start in range(0, len(mails), 300):
        task = made.add_documents(mails[start : start + 300])
    finished(server.client, task)
    yield made
    assert server.stop() == 0


def folded(text: str) -> list[str]:
    """Words as a reader would compare them: without case, accents and compatibility forms."""
    plain = unicodedata.normalize("NFKD", text.casefold())
    return WORD.findall("".join(char for char in plain if not unicodedata.combining(char) and char != "\u00ad"))


@pytest.fixture(scope="module")
def words(mails: list[dict[str, Any]]) -> list[dict[str, list[str]]]:
    return [{name: folded(mail[name]) for name in ("subject", "from", "body")} for mail in mails]


def plain_words(words: list[dict[str, list[str]]]) -> list[str]:
    return sorted({word for row in words for word in row["body"] if word.isascii() and len(word) > 2})


def search_all(index: Index, query: str, **more: Any) -> tuple[set[int], int]:
    answer = index.search(query, {"limit": 5000, "matchingStrategy": "all", "attributesToRetrieve": ["id"], **more})
    return {hit["id"] for hit in answer["hits"]}, answer["estimatedTotalHits"]


def test_words_are_found_in_exactly_the_mails_that_have_them(index: Index, words: list[dict[str, list[str]]]) -> None:
    chance = random.Random(2)
    sets = [{word for part in row.values() for word in part} for row in words]
    vocabulary = plain_words(words)
    for _ in range(150):
        wanted = chance.sample(vocabulary, chance.choice([1, 1, 2]))
        expected = {number for number, row in enumerate(sets) if all(word in row for word in wanted)}
        assert search_all(index, " ".join(wanted) + " ") == (expected, len(expected)), wanted


def test_prefixes(index: Index, words: list[dict[str, list[str]]]) -> None:
    chance = random.Random(3)
    sets = [{word for part in row.values() for word in part} for row in words]
    for word in chance.sample(plain_words(words), 60):
        start = word[: chance.randint(2, len(word))]
        expected = {number for number, row in enumerate(sets) if any(one.startswith(start) for one in row)}
        assert search_all(index, start) == (expected, len(expected)), start


def test_phrases_and_attributes(index: Index, words: list[dict[str, list[str]]]) -> None:
    chance = random.Random(4)
    joined = [{name: f" {' '.join(part)} " for name, part in row.items()} for row in words]
    tried = 0
    while tried < 80:
        row = words[chance.randrange(len(words))]
        name = chance.choice(["subject", "body"])
        size = chance.randint(2, 4)
        if len(row[name]) < size:
            continue
        start = chance.randrange(len(row[name]) - size + 1)
        phrase = row[name][start : start + size]
        if not all(word.isascii() for word in phrase):
            continue
        tried += 1
        text = f" {' '.join(phrase)} "
        expected = {number for number, one in enumerate(joined) if any(text in part for part in one.values())}
        assert search_all(index, f'"{text.strip()}"') == (expected, len(expected)), phrase
        limited = {number for number, one in enumerate(joined) if text in one["subject"]}
        assert search_all(index, f'"{text.strip()}"', attributesToSearchOn=["subject"]) == (limited, len(limited)), phrase


def test_negations_filters_order_and_facets(
    index: Index, mails: list[dict[str, Any]], words: list[dict[str, list[str]]]
) -> None:
    chance = random.Random(6)
    sets = [{word for part in row.values() for word in part} for row in words]
    vocabulary = plain_words(words)
    for _ in range(60):
        wanted, unwanted = chance.sample(vocabulary[:4000], 2)
        limit = chance.choice([1500, 3000, 8000])
        expected = [
            mails[number]
            for number, row in enumerate(sets)
            if wanted in row and unwanted not in row and mails[number]["size"] > limit
        ]
        answer = index.search(
            f"{wanted} -{unwanted} ",
            {"filter": f"size > {limit}", "facets": ["group"], "limit": 5000, "matchingStrategy": "all"},
        )
        assert {hit["id"] for hit in answer["hits"]} == {mail["id"] for mail in expected}
        counts: dict[str, int] = {}
        for mail in expected:
            counts[mail["group"]] = counts.get(mail["group"], 0) + 1
        assert answer["facetDistribution"]["group"] == counts
    by_size = index.search("", {"sort": ["size:desc"], "limit": 5000, "attributesToRetrieve": ["size"]})["hits"]
    assert [hit["size"] for hit in by_size] == sorted((mail["size"] for mail in mails), reverse=True)
