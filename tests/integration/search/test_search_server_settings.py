"""The settings of an index: read, written, reset, refused, applied to documents that are there."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import meilisearch
import pytest
from meilisearch.errors import MeilisearchApiError
from meilisearch.index import Index

from tests.integration.search.search_process import ended, finished
from tests.integration.search.test_search_server_administration import call

DEFAULT_RULES = ["words", "typo", "proximity", "attributeRank", "sort", "wordPosition", "exactness"]


SUB_SETTINGS = [
    ("displayed-attributes", ["title"], ["*"]),
    ("searchable-attributes", ["title", "body"], ["*"]),
    ("filterable-attributes", ["title"], []),
    ("sortable-attributes", ["title"], []),
    ("ranking-rules", ["words", "year:desc"], DEFAULT_RULES),
    ("stop-words", ["a", "the"], []),
    ("synonyms", {"wolverine": ["logan"]}, {}),
    ("distinct-attribute", "title", None),
    ("non-separator-tokens", ["#"], []),
    ("separator-tokens", ["|"], []),
    ("dictionary", ["J. K."], []),
    ("proximity-precision", "byAttribute", "byWord"),
    ("search-cutoff-ms", 150, None),
    ("prefix-search", "disabled", "indexingTime"),
    ("facet-search", False, True),
]


@pytest.mark.parametrize(("part", "value", "default"), SUB_SETTINGS, ids=[part for part, _, _ in SUB_SETTINGS])
def test_each_setting_is_read_written_and_reset(
    client: meilisearch.Client, make_index: Callable[..., Index], part: str, value: Any, default: Any
) -> None:
    index = make_index([{"id": 1, "title": "x"}])
    path = f"/indexes/{index.uid}/settings/{part}"
    assert call(client, "GET", path).json() == default
    task = call(client, "PUT", path, json=value).json()
    assert ended(client, task["taskUid"]).status == "succeeded"
    assert call(client, "GET", path).json() == value
    task = call(client, "DELETE", path).json()
    ended(client, task["taskUid"])
    assert call(client, "GET", path).json() == default
    assert index.search("x")["estimatedTotalHits"] == 1


def test_patched_settings_keep_what_is_not_named(client: meilisearch.Client, make_index: Callable[..., Index]) -> None:
    index = make_index()
    finished(client, index.update_typo_tolerance({"minWordSizeForTypos": {"oneTypo": 6}}))
    finished(client, index.update_typo_tolerance({"disableOnWords": ["x"]}))
    found: Any = index.get_typo_tolerance()
    assert (found.min_word_size_for_typos.one_typo, found.min_word_size_for_typos.two_typos) == (6, 9)
    assert found.disable_on_words == ["x"]
    finished(client, index.update_faceting_settings({"maxValuesPerFacet": 200}))
    assert index.get_faceting_settings().max_values_per_facet == 200
    assert index.get_pagination_settings().max_total_hits == 1000
    finished(client, index.reset_settings())
    assert index.get_typo_tolerance().disable_on_words == []
    assert index.get_settings()["searchableAttributes"] == ["*"]


def test_only_a_change_of_settings_makes_an_index(client: meilisearch.Client) -> None:
    absent = client.index("made-by-its-settings")
    for task in (absent.reset_settings(), absent.reset_stop_words()):
        assert finished(client, task, "failed").error["code"] == "index_not_found"
    finished(client, absent.update_stop_words(["a"]))
    assert client.get_index(absent.uid).uid == absent.uid
    finished(client, absent.delete())


def test_settings_apply_to_documents_that_are_there(client: meilisearch.Client, make_index: Callable[..., Index]) -> None:
    index = make_index(
        [{"id": number, "title": f"title {number}", "body": "hidden words", "year": number} for number in range(30)]
    )
    assert index.search("hidden")["estimatedTotalHits"] == 30
    finished(
        client,
        index.update_settings(
            {"searchableAttributes": ["title"], "filterableAttributes": ["year"], "sortableAttributes": ["year"]}
        ),
    )
    assert index.search("hidden")["estimatedTotalHits"] == 0
    answer = index.search("title", {"filter": "year >= 10", "sort": ["year:desc"], "limit": 3})
    assert [hit["id"] for hit in answer["hits"]] == [29, 28, 27]
    assert answer["estimatedTotalHits"] == 20
    assert [one.id for one in index.get_documents({"limit": 3}).results] == [0, 1, 2], "the order of arrival stays"


@pytest.mark.parametrize(
    ("change", "code"),
    [
        ({"rankingRules": ["nonsense"]}, "invalid_settings_ranking_rules"),
        ({"searchableAttributes": "title"}, "invalid_settings_searchable_attributes"),
        ({"typoTolerance": {"x": 1}}, "invalid_settings_typo_tolerance"),
        ({"pagination": {"maxTotalHits": -1}}, "invalid_settings_pagination"),
        ({"faceting": {"sortFacetValuesBy": {"*": "x"}}}, "invalid_settings_faceting"),
        ({"unknown": 1}, "bad_request"),
    ],
)
def test_wrong_settings_are_refused_at_once(make_index: Callable[..., Index], change: dict[str, Any], code: str) -> None:
    with pytest.raises(MeilisearchApiError) as caught:
        make_index().update_settings(change)
    assert caught.value.code == code
