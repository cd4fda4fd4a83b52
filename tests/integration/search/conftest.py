"""A search server to talk to: our own, or a real Meilisearch at MEILI_TEST_URL with MEILI_TEST_KEY."""

from __future__ import annotations

import os
import uuid
from collections.abc import Callable, Iterator
from typing import Any

import meilisearch
import pytest
import requests
from meilisearch.index import Index

from tests.integration.search.search_process import KEY, SearchProcess, finished
from tests.support.waiting import DEADLINE_SECONDS


def _movie(number: int, title: str, genres: list[str], year: int, rating: float, plot: str, **more: Any) -> dict[str, Any]:
    return {"id": number, "title": title, "genres": genres, "year": year, "rating": rating, "plot": plot, **more}


MOVIES = [
    _movie(1, "Carol", ["Drama", "romance"], 2015, 7.2, "Two women meet in New York."),
    _movie(2, "Wonder Woman", ["action", "Adventure"], 2017, 7.3, "An Amazon leaves home."),
    _movie(3, "Life of Pi", ["Adventure", "Drama"], 2012, 7.9, "A boy and a tiger at sea."),
    _movie(4, "Mad Max: Fury Road", ["Adventure", "action"], 2015, 8.1, "A road war."),
    _movie(5, "Moana", ["Fantasy", "action"], 2016, 7.6, "A girl crosses the sea for home."),
    _movie(6, "Philadelphia", ["Drama"], 1993, 7.7, "A lawyer sues his firm.", note=None),
]


@pytest.fixture(scope="session")
def server_url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, str]]:
    given = os.environ.get("MEILI_TEST_URL")
    if given:
        key = os.environ.get("MEILI_TEST_KEY", "")
        features = {"containsFilter": True}
        requests.patch(
            f"{given}/experimental-features",
            json=features,
            headers={"Authorization": f"Bearer {key}"},
            timeout=DEADLINE_SECONDS,
        )
        yield given, key
        return
    server = SearchProcess(tmp_path_factory.mktemp("search"))
    yield server.url, KEY
    assert server.stop() == 0


@pytest.fixture
def embedded_only() -> None:
    """For what docs/search-server.md lists as different from Meilisearch."""
    if os.environ.get("MEILI_TEST_URL"):
        pytest.skip("Meilisearch does this differently")


@pytest.fixture
def client(server_url: tuple[str, str]) -> meilisearch.Client:
    return meilisearch.Client(*server_url)


@pytest.fixture
def make_index(client: meilisearch.Client) -> Iterator[Callable[..., Index]]:
    """Makes an index with settings and documents, and removes it afterwards."""
    made: list[str] = []

    def make(
        documents: list[dict[str, Any]] | None = None, settings: dict[str, Any] | None = None, primary_key: str = "id"
    ) -> Index:
        uid = f"test-{uuid.uuid4().hex}"
        made.append(uid)
        finished(client, client.create_index(uid, {"primaryKey": primary_key}))
        index = client.index(uid)
        if settings:
            finished(client, index.update_settings(settings))
        if documents:
            finished(client, index.add_documents(documents))
        return index

    yield make
    for uid in made:
        client.index(uid).delete()


@pytest.fixture
def movies(make_index: Callable[..., Index]) -> Index:
    settings = {
        "filterableAttributes": ["genres", "year", "rating", "note", "title"],
        "sortableAttributes": ["year", "title", "rating"],
    }
    return make_index(MOVIES, settings)
