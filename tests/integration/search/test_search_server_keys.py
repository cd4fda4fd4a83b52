"""Who may do what: master key, API keys and tenant tokens."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta

import meilisearch
import pytest
import requests
from meilisearch.errors import MeilisearchApiError
from meilisearch.index import Index

from tests.integration.search.search_process import finished
from tests.support.waiting import DEADLINE_SECONDS


def other(client: meilisearch.Client, key: str) -> meilisearch.Client:
    return meilisearch.Client(client.config.url, key)


def test_without_a_key_only_health(client: meilisearch.Client) -> None:
    assert requests.get(f"{client.config.url}/health", timeout=DEADLINE_SECONDS).status_code == 200
    answer = requests.get(f"{client.config.url}/indexes", timeout=DEADLINE_SECONDS)
    assert (answer.status_code, answer.json()["code"], answer.json()["type"]) == (401, "missing_authorization_header", "auth")
    with pytest.raises(MeilisearchApiError) as caught:
        other(client, "wrong").get_indexes()
    assert (caught.value.status_code, caught.value.code) == (403, "invalid_api_key")


def test_there_are_two_default_keys(client: meilisearch.Client) -> None:
    names = [key.name for key in client.get_keys({"limit": 100}).results]
    assert any("Search" in (name or "") for name in names)
    assert any("Admin" in (name or "") for name in names)


def test_a_key_allows_its_actions_on_its_indexes(
    client: meilisearch.Client, movies: Index, make_index: Callable[..., Index]
) -> None:
    hidden = make_index([{"id": 1}])
    key = client.create_key({"actions": ["search"], "indexes": [movies.uid], "expiresAt": None, "name": "narrow"})
    narrow = other(client, key.key)
    assert narrow.index(movies.uid).search("moana")["estimatedTotalHits"] == 1
    for forbidden in (
        lambda: narrow.index(hidden.uid).search(""),
        lambda: narrow.index(movies.uid).get_documents(),
        narrow.get_keys,
    ):
        with pytest.raises(MeilisearchApiError, match="invalid_api_key"):
            forbidden()
    assert client.update_key(key.uid, {"name": "renamed"}).name == "renamed"
    assert client.get_key(key.key).name == "renamed"
    with pytest.raises(MeilisearchApiError, match="immutable_api_key_actions"):
        client.http.patch(f"keys/{key.uid}", {"actions": ["*"]})
    client.delete_key(key.uid)
    with pytest.raises(MeilisearchApiError, match="invalid_api_key"):
        narrow.index(movies.uid).search("")
    with pytest.raises(MeilisearchApiError, match="api_key_not_found"):
        client.get_key(key.uid)


def test_wrong_keys_are_refused(client: meilisearch.Client) -> None:
    with pytest.raises(MeilisearchApiError, match="missing_api_key_actions"):
        client.create_key({"indexes": ["*"], "expiresAt": None})
    with pytest.raises(MeilisearchApiError, match="invalid_api_key_actions"):
        client.create_key({"actions": ["fly"], "indexes": ["*"], "expiresAt": None})
    with pytest.raises(MeilisearchApiError, match="invalid_api_key_expires_at"):
        client.create_key({"actions": ["*"], "indexes": ["*"], "expiresAt": "yesterday"})


def test_tenant_tokens_narrow_every_search(client: meilisearch.Client, movies: Index) -> None:
    key = next(key for key in client.get_keys({"limit": 100}).results if key.name == "Default Search API Key")
    rules = {movies.uid: {"filter": "year = 2015"}}
    token = client.generate_tenant_token(api_key_uid=key.uid, search_rules=rules, api_key=key.key)
    narrow = other(client, token)
    assert [hit["id"] for hit in narrow.index(movies.uid).search("")["hits"]] == [1, 4]
    assert narrow.index(movies.uid).search("", {"filter": "year = 2015 OR year = 2016"})["estimatedTotalHits"] == 2
    assert narrow.multi_search([{"indexUid": movies.uid, "q": ""}], {})["estimatedTotalHits"] == 2
    facets = narrow.index(movies.uid).search("", {"facets": ["year"]})["facetDistribution"]
    assert facets == {"year": {"2015": 2}}
    with pytest.raises(MeilisearchApiError, match="invalid_api_key"):
        narrow.index("another").search("")
    with pytest.raises(MeilisearchApiError, match="invalid_api_key"):
        narrow.index(movies.uid).get_documents()
    with pytest.raises(MeilisearchApiError, match="invalid_api_key"):
        other(client, token[:-3] + "abc").index(movies.uid).search("")
    forged = client.generate_tenant_token(api_key_uid=key.uid, search_rules=["*"], api_key="guess")
    with pytest.raises(MeilisearchApiError, match="invalid_api_key"):
        other(client, forged).index(movies.uid).search("")


def test_expired_keys(client: meilisearch.Client, movies: Index) -> None:
    soon = datetime.now(UTC) + timedelta(days=1)
    key = client.create_key({"actions": ["search"], "indexes": [movies.uid[:10] + "*"], "expiresAt": soon.isoformat()})
    assert other(client, key.key).index(movies.uid).search("")["estimatedTotalHits"] == 6
    client.delete_key(key.uid)
    finished(client, movies.delete_all_documents())
