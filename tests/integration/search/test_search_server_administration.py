"""Indexes, settings, tasks, statistics and what is refused, with the official client."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import meilisearch
import pytest
import requests
from meilisearch.errors import MeilisearchApiError
from meilisearch.index import Index

from tests.integration.search.search_process import finished, is_healthy
from tests.support.waiting import DEADLINE_SECONDS


def call(client: meilisearch.Client, method: str, path: str, **more: Any) -> requests.Response:
    headers = {"Authorization": f"Bearer {client.config.api_key}", **more.pop("headers", {})}
    return requests.request(method, f"{client.config.url}{path}", headers=headers, timeout=DEADLINE_SECONDS, **more)


def test_health_version_and_stats(client: meilisearch.Client, movies: Index) -> None:
    assert is_healthy(client.config.url)
    assert client.is_healthy()
    assert client.get_version()["pkgVersion"].startswith("1.")
    stats = client.get_all_stats()
    assert stats["indexes"][movies.uid]["numberOfDocuments"] == 6
    assert stats["databaseSize"] > 0
    own = call(client, "GET", f"/indexes/{movies.uid}/stats").json()
    assert own["numberOfDocuments"] == movies.get_stats().number_of_documents == 6
    assert own["fieldDistribution"] == {"genres": 6, "id": 6, "note": 1, "plot": 6, "rating": 6, "title": 6, "year": 6}


def test_sizes_in_parts_and_for_people(client: meilisearch.Client, movies: Index) -> None:
    parts = client.get_all_stats(show_internal_database_sizes=True)["indexes"][movies.uid]["internalDatabaseSizes"]
    assert parts
    assert all(isinstance(size, int) for size in parts.values())
    assert "internalDatabaseSizes" not in call(client, "GET", f"/indexes/{movies.uid}/stats").json()
    own = call(client, "GET", f"/indexes/{movies.uid}/stats?showInternalDatabaseSizes=true&sizeFormat=human").json()
    for size in (*own["internalDatabaseSizes"].values(), own["rawDocumentDbSize"], own["avgDocumentSize"]):
        assert re.fullmatch(r"[0-9.]+ ([KMGT]i)?B", size)
    assert call(client, "GET", "/stats?sizeFormat=odd").status_code == 400
    assert call(client, "GET", "/stats?showInternalDatabaseSizes=odd").status_code == 400


def test_what_the_settings_allow_for_each_field(client: meilisearch.Client, make_index: Callable[..., Index]) -> None:
    settings = {
        "searchableAttributes": ["subject"],
        "displayedAttributes": ["subject", "sender"],
        "filterableAttributes": ["folder", {"attributePatterns": ["sender"], "features": {"facetSearch": False}}],
        "sortableAttributes": ["size"],
        "distinctAttribute": "thread",
        "rankingRules": ["words", "size:desc"],
        "localizedAttributes": [{"attributePatterns": ["sub*"], "locales": ["deu"]}],
        "faceting": {"sortFacetValuesBy": {"folder": "count"}},
    }
    mail = {"id": 1, "subject": "x", "sender": {"name": "Ann"}, "folder": "in", "size": 7, "thread": "t"}
    index = make_index([mail], settings)
    fields = {field["name"]: field for field in index.get_fields(limit=100).results}
    assert set(mail) <= set(fields)
    assert fields["subject"]["searchable"] == fields["subject"]["displayed"] == {"enabled": True}
    assert fields["subject"]["localized"] == {"locales": ["deu"]}
    assert fields["folder"]["searchable"] == fields["folder"]["displayed"] == {"enabled": False}
    assert fields["folder"]["filterable"] == {
        "enabled": True, "sortBy": "count", "facetSearch": True, "equality": True, "comparison": True,
    }  # fmt: skip
    assert fields["sender.name"]["filterable"]["enabled"]
    assert not fields["sender.name"]["filterable"]["facetSearch"]
    assert fields["size"]["sortable"]["enabled"]
    assert fields["size"]["rankingRule"] == {"enabled": True, "order": "desc"}
    assert fields["thread"]["distinct"] == {"enabled": True}

    def names(**wanted: Any) -> list[str]:
        return [field["name"] for field in index.get_fields(**wanted).results]

    assert names(filter={"searchable": True}) == ["subject"]
    assert sorted(names(filter={"attributePatterns": ["s*"], "displayed": False})) == ["size"]
    assert names(limit=2) + names(offset=2, limit=98) == list(fields)
    path = f"/indexes/{index.uid}/fields"
    wrong = {"filter": {"displayed": "yes"}}
    assert call(client, "POST", path, json=wrong).json()["code"] == "invalid_index_fields_filter_displayed"
    assert call(client, "POST", path, json={"filter": {"odd": True}}).json()["code"] == "invalid_index_fields_filter"
    assert call(client, "POST", "/indexes/absent/fields", json={}).json()["code"] == "index_not_found"


def test_a_compacted_index_keeps_its_documents(client: meilisearch.Client, movies: Index) -> None:
    finished(client, movies.delete_document(1))
    task = finished(client, movies.compact())
    assert task.type == "indexCompaction"
    assert set(task.details) == {"preCompactionSize", "postCompactionSize"}
    assert [hit["id"] for hit in movies.search("", {"sort": ["year:asc"]})["hits"]] == [6, 3, 4, 5, 2]
    finished(client, movies.add_documents([{"id": 9, "title": "Later"}]))
    assert [hit["id"] for hit in movies.search("later")["hits"]] == [9]
    failed = finished(client, client.index("absent").compact(), "failed")
    assert failed.error["code"] == "index_not_found"


def test_a_note_goes_with_each_kind_of_task(client: meilisearch.Client, make_index: Callable[..., Index]) -> None:
    index = make_index([{"id": 1}], {"filterableAttributes": ["id"]})
    with pytest.warns(DeprecationWarning, match="ids"):
        by_ids = index.delete_documents([5], metadata="note")
    tasks = [
        index.add_documents([{"id": 2}], metadata="note"),
        index.delete_document(1, metadata="note"),
        index.delete_documents(filter="id = 2", metadata="note"),
        index.delete_all_documents(metadata="note"),
        index.update_settings({"stopWords": ["a"]}, metadata="note"),
        index.reset_settings(metadata="note"),
        index.update(primary_key="id", metadata="note"),
        client.cancel_tasks({"indexUids": ["absent"]}, metadata="note"),
        index.delete(metadata="note"),
        by_ids,
    ]
    assert {finished(client, task).custom_metadata for task in tasks} == {"note"}
    assert call(client, "DELETE", "/tasks?customMetadata=note").json()["code"] == "missing_task_filters"


def test_indexes_are_made_listed_changed_and_removed(client: meilisearch.Client, make_index: Callable[..., Index]) -> None:
    index = make_index(primary_key="key")
    assert client.get_index(index.uid).primary_key == "key"
    assert finished(client, client.create_index(index.uid), "failed").error["code"] == "index_already_exists"
    finished(client, client.index(index.uid).update(primary_key="other"))
    assert client.get_index(index.uid).primary_key == "other"
    assert index.uid in [one.uid for one in client.get_indexes({"limit": 1000})["results"]]
    assert len(client.get_indexes({"limit": 1, "offset": 0})["results"]) == 1
    finished(client, client.delete_index(index.uid))
    with pytest.raises(MeilisearchApiError) as caught:
        client.get_index(index.uid)
    assert (caught.value.code, caught.value.status_code) == ("index_not_found", 404)
    assert finished(client, client.delete_index(index.uid), "failed").error["code"] == "index_not_found"
    with pytest.raises(MeilisearchApiError, match="invalid_index_uid"):
        client.create_index("no spaces")


def test_swapping_indexes(client: meilisearch.Client, make_index: Callable[..., Index]) -> None:
    left = make_index([{"id": 1, "text": "left"}], {"filterableAttributes": ["text"]})
    right = make_index([{"id": 2, "text": "right"}, {"id": 3, "text": "right"}])
    finished(client, client.swap_indexes([{"indexes": [left.uid, right.uid]}]))
    assert [hit["id"] for hit in left.search("")["hits"]] == [2, 3]
    assert [hit["id"] for hit in right.search("", {"filter": "text = left"})["hits"]] == [1]
    assert left.get_filterable_attributes() == []
    finished(client, left.add_documents([{"id": 4, "text": "new"}]))
    assert left.search("new")["estimatedTotalHits"] == 1
    task = finished(client, client.swap_indexes([{"indexes": [left.uid, "absent"]}]), "failed")
    assert task.error["code"] == "index_not_found"
    with pytest.raises(MeilisearchApiError, match="invalid_swap_duplicate_index_found"):
        client.swap_indexes([{"indexes": [left.uid, left.uid]}])


def test_tasks_are_listed_filtered_and_paged(client: meilisearch.Client, make_index: Callable[..., Index]) -> None:
    index = make_index([{"id": 1}])
    failed = finished(client, index.add_documents([{"x": 1}]), "failed")
    own = client.get_tasks({"indexUids": [index.uid], "limit": 2})
    assert [task.uid for task in own.results] == [failed.uid, failed.uid - 1]
    assert (own.limit, own.from_, own.next_, own.total) == (2, failed.uid, failed.uid - 2, 3)
    assert [task.uid for task in client.get_tasks({"indexUids": [index.uid], "statuses": ["failed"]}).results] == [failed.uid]
    types = client.get_tasks({"indexUids": [index.uid], "types": ["indexCreation"]}).results
    assert [task.type for task in types] == ["indexCreation"]
    task: Any = client.get_task(failed.uid)
    assert task.error["code"] == "missing_document_id"
    assert task.duration.startswith("PT")
    assert task.enqueued_at <= task.started_at <= task.finished_at
    assert call(client, "GET", "/tasks?statuses=odd").json()["code"] == "invalid_task_statuses"
    assert call(client, "GET", "/tasks?afterEnqueuedAt=odd").json()["code"] == "invalid_task_after_enqueued_at"
    with pytest.raises(MeilisearchApiError, match="task_not_found"):
        client.get_task(999_999_999)


def test_tasks_are_canceled_and_deleted(client: meilisearch.Client, make_index: Callable[..., Index]) -> None:
    index = make_index([{"id": 1}])
    last = finished(client, client.cancel_tasks({"indexUids": [index.uid], "statuses": ["enqueued"]}))
    assert last.details["canceledTasks"] == 0
    gone = finished(client, client.delete_tasks({"indexUids": [index.uid], "statuses": ["succeeded"]}))
    assert gone.details["deletedTasks"] == 2
    assert gone.details["originalFilter"].startswith("?")
    assert client.get_tasks({"indexUids": [index.uid]}).results == []
    assert call(client, "DELETE", "/tasks").json()["code"] == "missing_task_filters"


def test_a_task_is_deleted_by_its_number_once_it_has_ended(
    client: meilisearch.Client, make_index: Callable[..., Index]
) -> None:
    index = make_index()
    for _ in range(5):
        added = [index.add_documents([{"id": number, "text": "words " * 500} for number in range(300)]) for _ in range(3)]
        gone = finished(client, client.delete_tasks({"uids": [str(task.task_uid) for task in added]}))
        assert gone.details["deletedTasks"] == 3
        for task in added:
            with pytest.raises(MeilisearchApiError, match="task_not_found"):
                client.get_task(task.task_uid)
    assert index.get_stats().number_of_documents == 300


def test_batches(client: meilisearch.Client, make_index: Callable[..., Index]) -> None:
    index = make_index()
    task = finished(client, index.add_documents([{"id": 1}]))
    raw = call(client, "GET", f"/tasks/{task.uid}").json()
    batch: Any = client.get_batch(raw["batchUid"])
    assert batch.stats["totalNbTasks"] == 1
    assert batch.stats["indexUids"] == {index.uid: 1}
    assert client.get_batches({"limit": 1}).results[0].uid >= raw["batchUid"]
    own = [one.uid for one in client.get_batches({"indexUids": [index.uid]}).results]
    assert own == sorted(own, reverse=True)
    assert own[0] == raw["batchUid"]
    first = client.get_batches({"indexUids": [index.uid], "reverse": "true", "limit": 1})
    assert ([one.uid for one in first.results], first.total) == (own[-1:], len(own))
    assert first.next_ == own[-2]
    additions = client.get_batches({"indexUids": [index.uid], "types": ["documentAdditionOrUpdate"]})
    assert [one.uid for one in additions.results] == [raw["batchUid"]]
    assert call(client, "GET", "/batches?statuses=odd").json()["code"] == "invalid_task_statuses"


def test_multi_search(client: meilisearch.Client, make_index: Callable[..., Index], movies: Index) -> None:
    other = make_index([{"id": 1, "title": "Sea of stars"}])
    queries: list[dict[str, Any]] = [{"indexUid": movies.uid, "q": "sea"}, {"indexUid": other.uid, "q": "sea", "limit": 1}]
    answer = client.multi_search(queries)
    assert [result["indexUid"] for result in answer["results"]] == [movies.uid, other.uid]
    assert [len(result["hits"]) for result in answer["results"]] == [2, 1]
    with pytest.raises(MeilisearchApiError, match="index_not_found"):
        client.multi_search([{"indexUid": "absent", "q": ""}])
    with pytest.raises(MeilisearchApiError, match=r"queries\[1\]"):
        client.multi_search([{"indexUid": movies.uid}, {"indexUid": movies.uid, "filter": "x ="}])


def test_where_the_time_of_a_search_went(client: meilisearch.Client, movies: Index) -> None:
    asked: dict[str, Any] = {"q": "sea", "showPerformanceDetails": True}
    query = {"indexUid": movies.uid, **asked}
    answers = [
        movies.search("sea", asked),
        client.multi_search([query])["results"][0],
        client.multi_search([query], {"showPerformanceDetails": True}),
        call(client, "GET", f"/indexes/{movies.uid}/search?showPerformanceDetails=true").json(),
    ]
    for answer in answers:
        assert answer["performanceDetails"]
        assert all(re.fullmatch(r"[0-9.]+(s|ms|µs|ns)", spent) for spent in answer["performanceDetails"].values())
    assert "performanceDetails" not in movies.search("sea")


def test_federated_search_is_a_union_without_doubles(client: meilisearch.Client, movies: Index) -> None:
    queries: list[dict[str, Any]] = [
        {"indexUid": movies.uid, "q": "sea"},
        {"indexUid": movies.uid, "q": "home", "federationOptions": {"weight": 0.5}},
    ]
    answer: Any = client.multi_search(queries, {"limit": 2})
    assert answer["estimatedTotalHits"] == 3
    assert [hit["_federation"]["queriesPosition"] for hit in answer["hits"]] == [0, 0]
    everything: Any = client.multi_search(queries, {"limit": 10, "facetsByIndex": {movies.uid: ["year"]}})
    assert sorted(hit["id"] for hit in everything["hits"]) == [2, 3, 5]
    assert everything["facetsByIndex"][movies.uid]["distribution"]["year"] == {"2012": 1, "2016": 1, "2017": 1}
    merged: Any = client.multi_search(queries, {"facetsByIndex": {movies.uid: ["year"]}, "mergeFacets": {}})
    assert merged["facetStats"]["year"] == {"min": 2012.0, "max": 2017.0}
    paged: Any = client.multi_search(queries, {"page": 2, "hitsPerPage": 2})
    assert (paged["totalHits"], paged["totalPages"], len(paged["hits"])) == (3, 2, 1)
    with pytest.raises(MeilisearchApiError, match="invalid_multi_search_query_pagination"):
        client.multi_search([{"indexUid": movies.uid, "limit": 3}], {})


def test_federated_search_keeps_a_common_order(client: meilisearch.Client, movies: Index) -> None:
    finished(client, movies.update_ranking_rules(["sort", "words"]))
    queries = [{"indexUid": movies.uid, "q": word, "sort": ["year:desc"]} for word in ("sea", "home", "road")]
    hits = client.multi_search(queries, {"limit": 10})["hits"]
    assert [hit["year"] for hit in hits] == [2017, 2016, 2015, 2012]


@pytest.mark.parametrize(
    ("method", "path", "body", "status", "code"),
    [
        ("POST", "/indexes/x/documents", b"", 400, "missing_payload"),
        ("POST", "/indexes/x/documents", b'[{"id": 1}', 400, "malformed_payload"),
        ("POST", "/indexes/x/documents", b"[5]", 400, "malformed_payload"),
        ("POST", "/indexes", b"{", 400, "malformed_payload"),
        ("POST", "/indexes", b"{}", 400, "missing_index_uid"),
        ("POST", "/indexes/absent/search", b"{}", 404, "index_not_found"),
        ("POST", "/indexes/x/documents/delete", b"{}", 400, "missing_document_filter"),
        ("POST", "/swap-indexes", b'[{"indexes": ["a"]}]', 400, "invalid_swap_indexes"),
        ("GET", "/nowhere", b"", 404, "not_found"),
        ("GET", "/tasks/abc", b"", 400, "invalid_task_uids"),
    ],
)
def test_errors_in_their_form(client: meilisearch.Client, method: str, path: str, body: bytes, status: int, code: str) -> None:
    answer = call(client, method, path, data=body, headers={"Content-Type": "application/json"})
    assert answer.status_code == status
    found = answer.json()
    assert set(found) == {"message", "code", "type", "link"}
    assert found["code"] == code
    assert found["link"].endswith(f"#{code}")


def test_content_types(client: meilisearch.Client) -> None:
    for given, code in (({}, "missing_content_type"), ({"Content-Type": "text/html"}, "invalid_content_type")):
        answer = call(client, "POST", "/indexes/x/documents", data=b"[]", headers=given)
        assert (answer.status_code, answer.json()["code"]) == (415, code)


@pytest.mark.usefixtures("embedded_only")
def test_what_is_not_played_says_so(client: meilisearch.Client, movies: Index) -> None:
    for method, path in (("POST", "/dumps"), ("POST", "/snapshots"), ("GET", "/network"), ("POST", "/webhooks")):
        answer = call(client, method, path, json={})
        assert (answer.status_code, answer.json()["code"]) == (400, "feature_not_enabled")
    assert call(client, "GET", "/webhooks").json()["results"] == []
    assert call(client, "GET", "/experimental-features").status_code == 200
    with pytest.raises(MeilisearchApiError, match="feature_not_enabled"):
        movies.search("x", {"vector": [0.1]})
    with pytest.raises(MeilisearchApiError, match="feature_not_enabled"):
        client.multi_search([{"indexUid": movies.uid, "q": "x"}], {"distinct": "year"})
