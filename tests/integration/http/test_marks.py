"""Tags, notes, and changes of many messages: by right, for whom they are meant, undone, and back after a rebuild."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from typing import Any
from uuid import UUID

import pytest
from sqlalchemy import text

from archiver.access.principal import KeyScope
from archiver.maintenance import snapshot
from archiver.store.journal import Config
from archiver.sync.ingest.archive_state import next_stamp
from tests.integration.http.conftest import Company
from tests.support.export_runs import run_exports

_TABLES = ("tags", "message_tags", "notes")


@pytest.fixture(autouse=True)
def unmarked(company: Company) -> Iterator[None]:
    yield
    for table in ("message_tags", "tags", "notes", "mail_changes"):
        company.act(f"DELETE FROM {table}")


def change(company: Company, who: str, action: str, subject: str, *names: str, **more: Any) -> Any:
    ids = [str(company.messages[name]) for name in names]
    body = {"action": action, "subject": subject, **({"message_ids": ids} if ids else {}), **more}
    with company.client(who) as client:
        return client.post("/changes", json=body)


def found(company: Company, who: str, query: str) -> set[str]:
    with company.client(who) as client:
        answer = client.get("/search", params={"q": query})
    assert answer.status_code == 200, answer.text
    names = {str(one): name for name, one in company.messages.items()}
    return {names[item["id"]] for item in answer.json()["hits"]}


def test_a_tag_counts_at_once_and_for_those_who_may_see_it(company: Company) -> None:
    done = change(company, "alice", "tag", " To  check ", "alice", "both").json()
    assert (done["chosen"], done["changed"], done["can_be_undone"]) == (2, 2, True)
    assert found(company, "alice", 'tag:"to check"') == {"alice", "both"}
    assert found(company, "alice", 'tag:"to check" -subject:both') == {"alice"}
    assert found(company, "alice", "-tag:*") == set()
    assert found(company, "bob", 'tag:"to check"') == set(), "it is alice's own"
    change(company, "alice", "tag", "Shared one", "both", is_shared=True)
    assert found(company, "bob", 'tag:"shared one"') == {"both"}
    assert found(company, "auditor", "tag:shared*") == {"both"}
    change(company, "alice", "tag", "Hidden", "alice", is_shared=True)
    with company.client("bob") as client:
        assert [tag["name"] for tag in client.get("/tags").json()["items"]] == ["Shared one"]


def test_nobody_marks_what_they_can_not_read(company: Company) -> None:
    assert change(company, "bob", "tag", "mine now", "alice").status_code == 404
    assert change(company, "bob", "tag", "mine now", "alice", "both").json()["changed"] == 1
    with company.client("bob") as client:
        path = f"/messages/{company.messages['alice']}/notes"
        assert client.get(path).status_code == client.post(path, json={"text": "x"}).status_code == 404
    assert change(company, "bob", "delete", "gone", "both").status_code == 403
    key = company.key("alice", KeyScope.READ)
    with company.client() as client:
        body = {"action": "tag", "subject": "x", "message_ids": [str(company.messages["alice"])]}
        assert client.post("/changes", json=body, headers={"Authorization": f"Bearer {key}"}).status_code == 403


@pytest.mark.parametrize("name", ["", "   ", "x" * 61, 'a"b', "a*", "(a)", "a\x07b"])
def test_a_bad_name_is_refused(company: Company, name: str) -> None:
    assert change(company, "alice", "tag", name, "alice").status_code in (400, 422)
    assert company.value("SELECT count(*) FROM tags") == 0


def test_undo_takes_back_what_was_changed_and_nothing_else(company: Company) -> None:
    change(company, "alice", "tag", "old", "alice")
    second = change(company, "alice", "tag", "old", "alice", "both").json()
    assert (second["chosen"], second["changed"]) == (2, 1)
    with company.client("alice") as client, company.client("carol") as carol:
        assert carol.post(f"/changes/{second['id']}/undo").status_code == 404
        assert client.post(f"/changes/{second['id']}/undo").json()["undone_at"] is not None
        assert client.post(f"/changes/{second['id']}/undo").status_code == 409
    assert found(company, "alice", "tag:old") == {"alice"}
    removed = change(company, "alice", "untag", "old", "alice", "both").json()
    assert removed["changed"] == 1
    with company.client("alice") as client:
        client.post(f"/changes/{removed['id']}/undo")
    assert found(company, "alice", "tag:old") == {"alice"}


def test_two_people_add_the_same_shared_tag_at_once(company: Company) -> None:
    with ThreadPoolExecutor(8) as pool:
        people = ["alice", "bob", "carol", "auditor"] * 4
        done = list(pool.map(lambda who: change(company, who, "tag", "together", "both", is_shared=True).status_code, people))
    assert done == [202] * 16
    assert company.value("SELECT count(*) FROM tags") == company.value("SELECT count(*) FROM message_tags") == 1


def test_notes_are_their_authors_or_shared_and_can_be_searched(company: Company) -> None:
    path = f"/messages/{company.messages['both']}/notes"
    with company.client("alice") as alice, company.client("bob") as bob, company.client("admin") as admin:
        own = alice.post(path, json={"text": "Ask Dana about the lamp"}).json()["id"]
        shared = alice.post(path, json={"text": "Paid on <b>Friday</b>", "is_shared": True}).json()["id"]
        assert [note["text"] for note in bob.get(path).json()["items"]] == ["Paid on <b>Friday</b>"]
        assert found(company, "alice", 'note:"dana lamp"') == {"both"}
        assert found(company, "bob", "note:dana") == set()
        assert found(company, "bob", "note:friday") == {"both"}
        assert bob.put(f"{path}/{shared}", json={"text": "not mine"}).status_code == 404
        assert bob.delete(f"{path}/{own}").status_code == 404
        assert admin.delete(f"{path}/{shared}").status_code == 404, "an administrator who can't read the message"
        assert alice.put(f"{path}/{own}", json={"text": "Dana said yes", "is_shared": True}).status_code == 204
        assert found(company, "bob", "note:yes") == {"both"}
        assert alice.delete(f"{path}/{own}").status_code == 204
        assert len(alice.get(path).json()["items"]) == 1
        page = alice.get(f"{company.url}/messages/{company.messages['both']}").text
    assert "Paid on &lt;b&gt;Friday&lt;/b&gt;" in page


def test_a_worker_changes_all_results_and_goes_on_where_it_was(company: Company) -> None:
    started = change(company, "auditor", "tag", "every", query="subject:for", is_shared=True).json()
    assert started["finished_at"] is None
    run_exports(company.settings, company.engine)
    with company.client("auditor") as client:
        done = client.get(f"/changes/{started['id']}").json()
        assert (done["chosen"], done["done"], done["changed"], done["error"]) == (3, 3, 3, None)
        assert client.post(f"/changes/{started['id']}/undo").status_code == 200
    assert found(company, "auditor", "tag:every") == set()
    assert change(company, "auditor", "tag", "x", query="from:(").status_code in (400, 422)
    assert change(company, "auditor", "tag", "x").status_code in (400, 422)


def test_a_rebuild_brings_tags_and_notes_back(company: Company) -> None:
    change(company, "alice", "tag", "kept", "alice", "both")
    with company.client("alice") as client:
        client.post(f"/messages/{company.messages['alice']}/notes", json={"text": "kept note"})
    with company.engine.begin() as connection:
        tables = {table: snapshot._read(connection, table) for table in snapshot._COLUMNS}
        for table in _TABLES:
            connection.execute(text(f"DELETE FROM {table}"))
        snapshot.restore_config(connection, Config(datetime.now(UTC), tables, next_stamp(connection), None))
    assert found(company, "alice", "tag:kept note:kept") == {"alice"}
    assert found(company, "alice", "tag:kept") == {"alice", "both"}


def test_policies_do_not_depend_on_tags(company: Company) -> None:
    with company.client("admin") as client:
        answer = client.post("/holds", json={"name": "by tag", "reason": "x", "query": "tag:x"})
    assert answer.status_code in (400, 422)
    assert "tag: can't be used here" in answer.text


def test_deleting_selected_messages_respects_holds_and_scope(company: Company) -> None:
    """Last: it deletes mail."""
    admin = company.people["admin"].id
    company.act("UPDATE users SET may_read_all = true WHERE id = :i", i=admin)
    with company.client("admin") as client:
        hold = {"name": "keep bob", "reason": "case 7", "message_ids": [str(company.messages["bob"])]}
        assert client.post("/holds", json=hold).status_code == 201
        assert change(company, "admin", "delete", "  ", "bob").status_code in (400, 422)
        change(company, "admin", "tag", "doomed", "bob", "both", is_shared=True)
        started = change(company, "admin", "delete", "asked to", "bob", "both").json()
        run_exports(company.settings, company.engine)
        done = client.get(f"/changes/{started['id']}").json()
        assert (done["chosen"], done["changed"], done["refused"], done["can_be_undone"]) == (2, 1, 1, False)
        assert client.get(f"/messages/{company.messages['both']}").status_code == 404
        assert client.get(f"/messages/{company.messages['bob']}").status_code == 200
        tagged = [UUID(str(one)) for one in [company.value("SELECT message_id FROM message_tags")]]
        assert tagged == [company.messages["bob"]]
        entry = next(e for e in client.get("/audit", params={"action": "message.deleted"}).json()["items"])
        assert entry["detail"]["reason"] == "asked to"
        assert entry["detail"]["messages"] == [str(company.messages["both"])]
