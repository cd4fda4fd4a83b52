"""Documents with the official client: in, out, changed and removed."""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable
from typing import Any

import meilisearch
import pytest
import requests
import zstandard
from meilisearch.errors import MeilisearchApiError
from meilisearch.index import Index

from tests.integration.search.search_process import ended, finished
from tests.support.waiting import DEADLINE_SECONDS


def ids(index: Index, **parameters: Any) -> list[Any]:
    return [document.id for document in index.get_documents({"limit": 1000, **parameters}).results]


def test_documents_come_back_as_they_went_in(make_index: Callable[..., Index]) -> None:
    document = {
        "id": "a_B-1",
        "text": "Zürich ✓",
        "deep": {"list": [1, {"x": None}], "empty": {}},
        "number": 1.5,
        "yes": True,
        "none": None,
    }
    index = make_index([document])
    assert dict(index.get_document("a_B-1")) == document


def test_replacing_and_updating_differ(make_index: Callable[..., Index], client: meilisearch.Client) -> None:
    index = make_index([{"id": 1, "a": 1, "b": 1}, {"id": 2, "a": 2}])
    finished(client, index.update_documents([{"id": 1, "b": 2}, {"id": 3, "c": 3}]))
    assert dict(index.get_document(1)) == {"id": 1, "a": 1, "b": 2}
    finished(client, index.add_documents([{"id": 1, "c": 9}]))
    assert dict(index.get_document(1)) == {"id": 1, "c": 9}
    assert ids(index) == [1, 2, 3], "a replaced document keeps its place"


def test_the_same_id_twice_in_one_task_counts_once(make_index: Callable[..., Index], client: meilisearch.Client) -> None:
    index = make_index([{"id": 1, "v": "old"}, {"id": 1, "v": "new"}])
    finished(client, index.update_documents([{"id": 1, "w": 1}, {"id": 1, "x": 2}]))
    assert [dict(one) for one in index.get_documents().results] == [{"id": 1, "v": "new", "w": 1, "x": 2}]


def test_without_creation_only_known_documents_change(make_index: Callable[..., Index], client: meilisearch.Client) -> None:
    index = make_index([{"id": 1, "subject": "old", "size": 7}])
    sent = [{"id": 1, "subject": "new"}, {"id": 2, "subject": "unknown"}]
    finished(client, index.update_documents(sent, skip_creation=True))
    assert [dict(one) for one in index.get_documents().results] == [{"id": 1, "subject": "new", "size": 7}]
    finished(client, index.add_documents(sent, skip_creation=True))
    assert [dict(one) for one in index.get_documents().results] == [{"id": 1, "subject": "new"}]
    finished(client, index.add_documents_csv(b"id:number,subject\n1,third\n3,third\n", skip_creation=True))
    assert [dict(one) for one in index.get_documents().results] == [{"id": 1, "subject": "third"}]
    finished(client, index.add_documents(sent, skip_creation=False))
    assert ids(index) == [1, 2]


def test_documents_by_several_keys_and_pages(make_index: Callable[..., Index]) -> None:
    years = [2003, 2001, 2003, 2002, 2001, 2003]
    names = ["cedar", "birch", "alder", "elm", "aspen", "beech"]
    trees = [{"id": place, "year": year, "name": name} for place, (year, name) in enumerate(zip(years, names, strict=True))]
    index = make_index(trees, {"sortableAttributes": ["year", "name"]})
    by_both = ["alder", "beech", "cedar", "elm", "aspen", "birch"]
    for sort in (["year:desc", "name:asc"], "year:desc, name:asc"):
        assert [one.name for one in index.get_documents({"sort": sort}).results] == by_both
    pages = [index.get_documents({"sort": ["year:desc", "name:asc"], "offset": at, "limit": 2}).results for at in (0, 2, 4)]
    assert [one.name for page in pages for one in page] == by_both


def test_paging_fields_and_filters(movies: Index) -> None:
    page = movies.get_documents({"offset": 2, "limit": 2, "fields": ["id", "title"]})
    assert [dict(one) for one in page.results] == [{"id": 3, "title": "Life of Pi"}, {"id": 4, "title": "Mad Max: Fury Road"}]
    assert page.total == 6
    assert ids(movies, filter="year = 2015") == [1, 4]
    assert ids(movies, filter=["year > 2000", ["genres = drama", "genres = fantasy"]]) == [1, 3, 5]


def test_deleting_one_many_by_filter_and_all(movies: Index, client: meilisearch.Client) -> None:
    assert finished(client, movies.delete_document(1)).details["deletedDocuments"] == 1
    with pytest.warns(DeprecationWarning, match="ids"):
        task = movies.delete_documents(["2", "99"])
    assert finished(client, task).details["deletedDocuments"] == 1
    task = finished(client, movies.delete_documents(filter="year < 2000"))
    assert task.details["deletedDocuments"] == 1
    assert ids(movies) == [3, 4, 5]
    with pytest.raises(MeilisearchApiError, match="document_not_found"):
        movies.get_document(1)
    assert finished(client, movies.delete_all_documents()).details["deletedDocuments"] == 3
    assert ids(movies) == []
    finished(client, movies.add_documents([{"id": 7}]))
    assert ids(movies) == [7]


def test_ndjson_and_csv(make_index: Callable[..., Index], client: meilisearch.Client) -> None:
    index = make_index()
    finished(client, index.add_documents_ndjson(b'{"id": 1, "a": "x"}\n\n{"id": 2, "a": "y"}\n'))
    finished(client, index.add_documents_csv(b'id:number,name,ok:boolean,size:number\n3,"a, b",true,1.5\n4,,false,\n'))
    finished(client, index.add_documents_csv(b"id:number;name\n5;z\n", csv_delimiter=";"))
    assert [dict(one) for one in index.get_documents().results] == [
        {"id": 1, "a": "x"},
        {"id": 2, "a": "y"},
        {"id": 3, "name": "a, b", "ok": True, "size": 1.5},
        {"id": 4, "name": None, "ok": False, "size": None},
        {"id": 5, "name": "z"},
    ]


def test_quotes_inside_a_csv_field_are_no_error(make_index: Callable[..., Index], client: meilisearch.Client) -> None:
    index = make_index()
    finished(client, index.add_documents_csv(b'id:number,name\n1,"so" called\n2,7" single\n'))
    assert [one.name for one in index.get_documents().results] == ["so called", '7" single']


@pytest.mark.parametrize(("encoding", "pack"), [("gzip", gzip.compress), ("zstd", zstandard.compress)])
def test_packed_bodies(
    make_index: Callable[..., Index], client: meilisearch.Client, encoding: str, pack: Callable[[bytes], bytes]
) -> None:
    index = make_index()
    body = pack(json.dumps([{"id": number} for number in range(50)]).encode())
    headers = {
        "Authorization": f"Bearer {client.config.api_key}",
        "Content-Type": "application/json",
        "Content-Encoding": encoding,
    }
    answer = requests.post(
        f"{client.config.url}/indexes/{index.uid}/documents", data=body, headers=headers, timeout=DEADLINE_SECONDS
    )
    assert answer.status_code == 202
    ended(client, answer.json()["taskUid"])
    assert index.get_stats().number_of_documents == 50


def test_the_primary_key_is_inferred_or_refused(client: meilisearch.Client, make_index: Callable[..., Index]) -> None:
    uid = make_index().uid + "-x"
    index = client.index(uid)
    assert (
        finished(client, index.add_documents([{"name": "x"}]), "failed").error["code"] == "index_primary_key_no_candidate_found"
    )
    two = finished(client, index.add_documents([{"a_id": 1, "b_id": 2}]), "failed")
    assert two.error["code"] == "index_primary_key_multiple_candidates_found"
    finished(client, index.add_documents([{"key": 1, "b_id": 2}], "key"))
    assert client.get_index(uid).primary_key == "key"
    assert (
        finished(client, index.add_documents([{"b_id": 1}], "b_id"), "failed").error["code"]
        == "index_primary_key_already_exists"
    )
    finished(client, index.delete())


@pytest.mark.parametrize(
    ("document", "code"),
    [
        ({"id": "a b"}, "invalid_document_id"),
        ({"id": "x" * 512}, "invalid_document_id"),
        ({"id": 1.5}, "invalid_document_id"),
        ({"id": None}, "invalid_document_id"),
        ({"other": 1}, "missing_document_id"),
    ],
)
def test_bad_ids_fail_the_whole_task(
    make_index: Callable[..., Index], client: meilisearch.Client, document: dict[str, Any], code: str
) -> None:
    index = make_index()
    task = finished(client, index.add_documents([{"id": 1}, document]), "failed")
    assert (task.error["code"], task.error["type"], task.details["indexedDocuments"]) == (code, "invalid_request", 0)
    assert ids(index) == []


def test_a_large_document_is_searchable_to_its_last_word(make_index: Callable[..., Index]) -> None:
    filler = " ".join(f"w{number % 977}" for number in range(90_000))
    index = make_index(
        [{"id": 1, "text_01": filler, "text_02": f"{filler} lastwordofall here"}],
        {"searchableAttributes": ["text_01", "text_02"]},
    )
    assert index.search("lastwordofall")["estimatedTotalHits"] == 1
    assert index.search('"w976 w0"')["estimatedTotalHits"] == 1
    shown = index.search(
        '"lastwordofall here"', {"attributesToCrop": ["text_02"], "cropLength": 5, "attributesToHighlight": ["text_02"]}
    )
    assert "<em>lastwordofall here</em>" in shown["hits"][0]["_formatted"]["text_02"]
    assert len(shown["hits"][0]["_formatted"]["text_02"]) < 200
