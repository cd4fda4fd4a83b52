"""Search, facets and suggestions through the API: what others have does not show, not even as a number."""

from __future__ import annotations

from pathlib import Path

import pytest

from archiver.config import load_settings
from tests.integration.http.conftest import Client, Company, Served

SEES = {"nobody": set(), "bob": {"bob", "both"}, "alice": {"alice", "both"}, "carol": {"alice", "both"}, "admin": set()}
ALL = {"alice", "bob", "both"}


@pytest.mark.parametrize("who", [*SEES, "auditor"])
@pytest.mark.parametrize("query", ["", "for", "subject:for", "from:*@example.net", "thread:ID", "larger:1"])
def test_hits_and_totals_are_those_one_may_see(company: Company, who: str, query: str) -> None:
    expected = {str(company.messages[name]) for name in SEES.get(who, ALL)}
    with company.client(who) as client:
        shown = {hit["thread_id"] for hit in client.get("/search").json()["hits"]}
        assert len(shown) == min(1, len(expected)), "one thread, by whatever name this reader knows it"
        thread = next(iter(shown), company.value("SELECT thread_id FROM messages LIMIT 1"))
        answer = client.get("/search", params={"q": query.replace("ID", str(thread))})
        assert answer.status_code == 200, answer.text
        found = answer.json()
    assert {hit["id"] for hit in found["hits"]} == expected
    assert found["total"] == len(expected)
    assert not [name for name in {"alice", "bob"} - SEES.get(who, ALL) if f"{name}s-" in answer.text]
    assert sum(found["not_searchable"]["states"].values()) <= len(expected)


@pytest.mark.parametrize(
    "query",
    [
        "mailbox:alice@example.org",
        'in:"alices-secret-folder"',
        "label:alices-label",
        "mailbox:alice*",
        "in:alices*",
        "for alice",
        '"alice only"',
    ],
)
def test_no_query_reaches_what_others_have(company: Company, query: str) -> None:
    """Nor says that it is there: the same as for a name that nobody has."""
    with company.client("bob") as client:
        hidden = client.get("/search", params={"q": query})
        absent = client.get("/search", params={"q": query.replace("alice", "xylophone")})
    assert hidden.status_code == absent.status_code
    if hidden.status_code == 200:
        assert str(company.messages["alice"]) not in hidden.text
        assert hidden.json()["total"] in (0, 1)
        assert (hidden.json()["total"] == 1) <= (str(company.messages["both"]) in hidden.text)


def test_facets_and_suggestions_name_nothing_of_others(company: Company) -> None:
    facets = ["sender", "domain", "year", "folder", "label", "type", "mailbox"]
    for who, other in (("bob", "alice"), ("carol", "bob"), ("nobody", "alice"), ("admin", "bob")):
        with company.client(who) as client:
            counted = client.get("/facets", params={"facet": facets})
            assert counted.status_code == 200, counted.text
            assert f"{other}s-" not in counted.text
            assert f"{other}@" not in str(counted.json()["facets"]["mailbox"])
            for prefix in ("x@", "y@", f"{other}s-", other):
                answer = client.get("/suggestions", params={"prefix": prefix})
                found = {item["value"] for item in answer.json()["items"] if item["kind"] in ("mailbox", "folder")}
                assert not found, (who, prefix, found)
    with company.client("bob") as client:
        known = {item["value"] for item in client.get("/suggestions", params={"prefix": "y@"}).json()["items"]}
        assert known == {"y@example.net"}
        assert client.get("/suggestions", params={"prefix": "x@"}).json()["items"] == [], "alice's sender"


def test_a_wrong_query_is_told_with_its_place(company: Company) -> None:
    with company.client("alice") as client:
        answer = client.get("/search", params={"q": "from:alice before:nonsense"})
    assert (answer.status_code, answer.json()["code"]) == (400, "bad_query")
    assert answer.json()["errors"][0]["start"] >= 11


def test_searches_are_on_record_with_their_query(company: Company) -> None:
    with company.client("alice") as client, company.client("auditor") as auditor:
        client.get("/search", params={"q": "subject:payroll"})
        entry = auditor.get("/audit", params={"action": "search.done", "limit": 1}).json()["items"][0]
    assert (entry["actor"], entry["detail"]["query"]) == ("alice@example.org", "subject:payroll")


def test_page_and_api_record_the_same_actions(company: Company) -> None:
    with company.client("alice") as client, company.client("auditor") as auditor:
        found = client.get("/search", params={"q": "for", "limit": 2}).json()
        client.get(f"{company.url}/", params={"q": "for"})
        by_page, by_api = auditor.get("/audit", params={"action": "search.done", "limit": 2}).json()["items"]
        assert by_api["detail"] == {"query": "for", "offset": 0, "shown": 2, "total": found["total"], "facets": []}
        assert (by_page["action"], by_page["actor"]) == ("search.done", "alice@example.org")
        assert (by_page["detail"]["query"], by_page["detail"]["total"]) == ("for", found["total"])

        wanted = found["hits"][0]["id"]
        form = {f"id.{wanted}": "", "csrf": client.headers["X-CSRF-Token"]}
        assert client.post(f"{company.url}/export", data=form).status_code in (200, 303)
        requested = client.post("/exports", json={"query": "for"}).json()
        by_api, by_page = auditor.get("/audit", params={"action": "export.requested", "limit": 2}).json()["items"]
        assert (by_api["object_id"], by_api["detail"]) == (requested["id"], {"format": "eml", "query": "for"})
        assert (by_page["object_kind"], by_page["detail"]) == ("export", {"format": "eml", "messages": [wanted]})


def test_the_page_exports_nothing_that_its_reader_may_not_read(company: Company) -> None:
    with company.client("auditor") as auditor, company.client("alice") as alice, company.client("bob") as bob:
        mine = {hit["id"] for hit in bob.get("/search", params={"limit": 200}).json()["hits"]}
        foreign = [hit["id"] for hit in alice.get("/search", params={"limit": 200}).json()["hits"] if hit["id"] not in mine]
        form = {f"id.{one}": "" for one in (*sorted(mine)[:1], foreign[0])} | {"csrf": bob.headers["X-CSRF-Token"]}
        before = auditor.get("/audit", params={"action": "export", "limit": 1}).json()["items"]
        assert bob.post(f"{company.url}/export", data=form).status_code == 404
        assert auditor.get("/audit", params={"action": "export", "limit": 1}).json()["items"] == before


def test_without_the_search_server_it_says_so(company: Company, variables: dict[str, str]) -> None:
    settings = load_settings({**variables, "MEILI_HOST": "http://127.0.0.1:1"}, Path("none"))
    with company.client("alice") as signed_in, Served(settings) as served, Client(base_url=served.url) as client:
        client.cookies.set("archiver", signed_in.cookies["archiver"])
        answer = client.get("/search", params={"q": "for"})
        assert (answer.status_code, answer.json()["code"]) == (503, "not_ready")
        assert client.get("/messages").status_code == 200
