"""A million small documents: counts, order, facets and filters stay exact, and a start stays quick."""

from __future__ import annotations

import json
import time
from pathlib import Path

import pytest
import requests

from tests.integration.search.search_process import KEY, SearchProcess, finished
from tests.support.waiting import eventually

COUNT = 1_000_000
STEP = 20_000


@pytest.mark.chaos
@pytest.mark.timeout(3600)
def test_a_million_documents(tmp_path: Path) -> None:
    server = SearchProcess(tmp_path / "search")
    try:
        client = server.client
        index = client.index("many")
        settings = {"filterableAttributes": ["shade", "size"], "sortableAttributes": ["size"], "searchableAttributes": ["text"]}
        finished(client, index.update_settings(settings))
        headers = {"Authorization": f"Bearer {KEY}", "Content-Type": "application/json"}
        last = 0
        for start in range(0, COUNT, STEP):
            rows = [
                {
                    "id": number,
                    "text": f"common w{number % 1000} n{number}",
                    "shade": f"s{number % 10}",
                    "size": number * 7 % 1_000_003,
                }
                for number in range(start, start + STEP)
            ]
            answer = requests.post(f"{server.url}/indexes/many/documents", data=json.dumps(rows), headers=headers, timeout=600)
            last = answer.json()["taskUid"]
        eventually(lambda: client.get_task(last).status == "succeeded", 3000)
        assert index.get_stats().number_of_documents == COUNT
        found = index.search("common w7 ", {"matchingStrategy": "all", "facets": ["shade"], "filter": "size >= 0"})
        assert found["estimatedTotalHits"] == COUNT // 1000
        assert found["facetDistribution"]["shade"] == {"s7": COUNT // 1000}
        newest = index.search("", {"sort": ["size:desc"], "offset": 500_000, "limit": 3})
        sizes = [number * 7 % 1_000_003 for number in range(COUNT)]
        assert [hit["size"] for hit in newest["hits"]] == sorted(sizes, reverse=True)[500_000:500_003]
        assert newest["estimatedTotalHits"] == COUNT
        assert server.stop() == 0
        begun = time.perf_counter()
        server = SearchProcess(tmp_path / "search")
        assert server.client.index("many").search('"n999999"')["estimatedTotalHits"] == 1
        assert time.perf_counter() - begun < 20
    finally:
        server.stop()
