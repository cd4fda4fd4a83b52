"""Messages out and in: bytes, ranges, names, ETags, handing in, exports; and what a client may try with them."""

from __future__ import annotations

import hashlib
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from archiver.config import load_settings
from tests.integration.http.conftest import Client, Company, Served, mail
from tests.support.export_runs import run_exports


def test_the_original_bytes_come_out(company: Company) -> None:
    with company.client("alice") as client:
        answer = client.get(f"/messages/{company.messages['alice']}/raw")
    assert answer.content == company.raw["alice"]
    digest = hashlib.sha256(company.raw["alice"]).hexdigest()
    assert answer.headers["ETag"] == f'"{digest}"'
    assert answer.headers["Content-Length"] == str(len(company.raw["alice"]))
    assert answer.headers["Content-Type"] == "message/rfc822"
    assert answer.headers["Content-Disposition"].startswith("attachment; ")
    assert answer.headers["X-Content-Type-Options"] == "nosniff"
    assert answer.headers["Content-Security-Policy"] == "sandbox; default-src 'none'"


@pytest.mark.parametrize(
    ("asked", "status", "start", "end"),
    [
        ("bytes=0-9", 206, 0, 10),
        ("bytes=10-", 206, 10, None),
        ("bytes=-5", 206, -5, None),
        ("bytes=5-999999", 206, 5, None),
        ("bytes=-999999", 206, 0, None),
        ("bytes=9-5", 200, 0, None),
        ("bytes=0-1,5-6", 200, 0, None),
        ("lines=0-1", 200, 0, None),
        ("bytes=-", 200, 0, None),
        ("bytes=999999-", 416, 0, 0),
        ("bytes=-0", 416, 0, 0),
    ],
)
def test_ranges(company: Company, asked: str, status: int, start: int, end: int | None) -> None:
    raw = company.raw["alice"]
    with company.client("alice") as client:
        answer = client.get(f"/messages/{company.messages['alice']}/raw", headers={"Range": asked})
    assert answer.status_code == status
    if status == 416:
        assert answer.headers["Content-Range"] == f"bytes */{len(raw)}"
    else:
        assert answer.content == raw[start:end]


def test_etags(company: Company) -> None:
    with company.client("alice") as client:
        for path in ("", "/raw", "/attachments/0"):
            address = f"/messages/{company.messages['alice']}{path}"
            first = client.get(address)
            again = client.get(address, headers={"If-None-Match": f'"x", {first.headers["ETag"]}'})
            assert (again.status_code, again.content) == (304, b"")
        other = client.get(f"{address}", headers={"Range": "bytes=0-3", "If-Range": '"another"'})
        assert other.status_code == 200


def test_a_message_with_its_text_and_files(company: Company) -> None:
    with company.client("alice") as client:
        shown = client.get(f"/messages/{company.messages['alice']}").json()
        assert shown["content"]["text"].strip() == "alice only"
        assert shown["detail"]["message"]["subject"] == "for alice"
        assert {copy["folder"] for copy in shown["detail"]["copies"]} <= {"alices-secret-folder", "API"}
        (file,) = shown["content"]["attachments"]
        answer = client.get(f"/messages/{company.messages['alice']}/attachments/0")
        assert answer.content == b"<b>bad</b>" * 100
        assert hashlib.sha256(answer.content).hexdigest() == file["sha256"]
        assert answer.headers["Content-Type"] == "application/octet-stream", "never a page of ours"
        disposition = answer.headers["Content-Disposition"]
        assert disposition.startswith('attachment; filename="pass wd')
        assert "/" not in disposition.replace("attachment", "")
        assert ".." not in disposition
        assert client.get(f"/messages/{company.messages['alice']}/attachments/1").status_code == 404
        assert client.get(f"/messages/{company.messages['alice']}/attachments/-1").status_code == 404


@pytest.mark.parametrize(
    "name",
    [
        "../../etc/passwd",
        "a\r\nSet-Cookie: x=1",
        'a"; filename="b',
        "a\\b\\c.exe",
        "\u202eexe.pdf",
        "x" * 5000,
        "",
        "...",
        "é😀.pdf",
    ],
)
def test_names_are_safe_in_headers(name: str) -> None:
    from archiver.http.api.downloads import attachment_name

    value = attachment_name(name)
    value.encode("latin-1")
    assert not any(char in value for char in "\r\n\0\\/")
    assert value.count('"') == 2
    assert len(value) < 3000


def test_pages_of_a_list_hold_everything_once(company: Company) -> None:
    with company.client("auditor") as client:
        everything = [item["id"] for item in client.get("/messages", params={"limit": 500}).json()["items"]]
        paged, cursor = [], None
        while True:
            page = client.get("/messages", params={"limit": 1, **({"cursor": cursor} if cursor else {})}).json()
            paged += [item["id"] for item in page["items"]]
            cursor = page["next"]
            if cursor is None:
                break
        assert paged == everything
        for wrong in ("x", "AAAA", "bm90LWEtZGF0ZXx4", "../..", "%00"):
            assert client.get("/messages", params={"cursor": wrong}).status_code == 400


# --- handing in


def test_handing_in_is_the_same_for_known_and_new_bytes(company: Company) -> None:
    raw = mail(77, "n@example.net", "alice@example.org", "handed in")
    with company.client("alice") as client:
        first = client.post("/messages", params={"mailbox": "alice@example.org"}, content=raw)
        again = client.post("/messages", params={"mailbox": "ALICE@example.org"}, content=raw)
        others = client.post("/messages", params={"mailbox": "alice@example.org"}, content=company.raw["bob"])
        assert (first.status_code, again.status_code, others.status_code) == (201, 201, 201)
        assert first.json() == again.json()
        assert set(first.json()) == set(others.json()) == {"id", "sha256", "mailbox_id"}
        assert client.get(f"/messages/{first.json()['id']}/raw").content == raw
    copies = "SELECT count(*) FROM message_copies WHERE message_id = :m AND mailbox_id = :b"
    assert company.value(copies, m=first.json()["id"], b=company.mailboxes["alice"]) == 1
    company.act("DELETE FROM message_copies WHERE folder = 'API'")


def test_handing_in_many_at_once_archives_once(company: Company) -> None:
    raw = mail(78, "n@example.net", "alice@example.org", "handed in by many")

    def hand_in(_: int) -> tuple[int, Any]:
        with company.client("alice") as client:
            answer = client.post("/messages", params={"mailbox": "alice@example.org"}, content=raw)
            return answer.status_code, answer.json()

    with ThreadPoolExecutor(6) as pool:
        answers = list(pool.map(hand_in, range(12)))
    assert {status for status, _ in answers} == {201}
    assert len({str(body) for _, body in answers}) == 1
    assert company.value("SELECT count(*) FROM message_copies WHERE folder = 'API'") == 1
    company.act("DELETE FROM message_copies WHERE folder = 'API'")


def test_a_mailbox_of_ones_own_is_made_when_there_is_none(company: Company) -> None:
    company.add_user("erin@example.org")
    raw = mail(79, "n@example.net", "erin@example.org", "for erin")
    with company.client("erin") as client:
        assert client.post("/messages", params={"mailbox": "bob@example.org"}, content=raw).status_code == 404
        assert client.post("/messages", params={"mailbox": "new@example.org"}, content=raw).status_code == 404
        made = client.post("/messages", params={"mailbox": "Erin@example.org"}, content=raw)
        assert made.status_code == 201
        assert [item["id"] for item in client.get("/messages").json()["items"]] == [made.json()["id"]]
        assert client.post("/messages", params={"mailbox": "erin@example.org"}, content=b"").status_code == 400
    company.act("DELETE FROM message_copies WHERE folder = 'API'")


def test_without_room_nothing_is_taken_in(company: Company, variables: dict[str, str]) -> None:
    settings = load_settings({**variables, "DISK_MIN_FREE_BYTES": "900T"}, Path("none"))
    with company.client("alice") as alice, Served(settings) as served, Client(base_url=served.url) as client:
        client.cookies.set("archiver", alice.cookies["archiver"])
        client.headers["X-CSRF-Token"] = alice.headers["X-CSRF-Token"]
        for answer in (
            client.post("/messages", params={"mailbox": "alice@example.org"}, content=b"Subject: x\r\n\r\n"),
            client.post("/uploads", json={"name": "x.mbox", "size_bytes": 10}),
        ):
            assert (answer.status_code, answer.json()["code"]) == (429, "no_room")
            assert "disk" in answer.json()["detail"]
            assert int(answer.headers["Retry-After"]) > 0


# --- exports


def test_an_export_holds_what_one_may_see(company: Company) -> None:
    import io
    import zipfile

    with company.client("carol") as client, company.client("alice") as other:
        for selection, expected in (
            ({"everything": True}, {"alice", "both"}),
            ({"mailbox_id": str(company.mailboxes["bob"])}, set()),
            ({"query": "subject:alice"}, {"alice"}),
            ({"query": "subject:bob"}, set()),
        ):
            made = client.post("/exports", json=selection)
            assert made.status_code == 202, made.text
            export = made.json()["id"]
            run_exports(company.settings, company.engine)
            state = client.get(f"/exports/{export}").json()
            assert (state["state"], state["messages"]) == ("done", len(expected)), state
            assert other.get(f"/exports/{export}/file").status_code == 404
            answer = client.get(f"/exports/{export}/file")
            with zipfile.ZipFile(io.BytesIO(answer.content)) as archive:
                found = {archive.read(name) for name in archive.namelist() if name.endswith(".eml")}
            assert found == {company.raw[name] for name in expected}
            assert client.delete(f"/exports/{export}").status_code == 204
        assert client.post("/exports", json={}).status_code == 422
        assert client.post("/exports", json={"everything": True, "query": "x"}).status_code == 422
    assert not list((company.settings.archiver_data / "exports").iterdir())


def test_what_was_taken_from_somebody_is_not_exported(company: Company) -> None:
    from archiver.access.principal import Principal, rights_of
    from archiver.exports import service as exports
    from archiver.exports.selection import Selection

    frank = company.add_user("frank@example.org")
    company.act("UPDATE users SET may_read_all = true WHERE id = :i", i=frank.id)
    who = Principal(frank.email, frank.role, rights_of(frank.role), frank.id, True)
    with company.engine.begin() as connection:
        export_id = exports.request(connection, company.settings, who, Selection(everything=True))
        connection.exec_driver_sql(f"UPDATE users SET may_read_all = false WHERE id = '{frank.id}'")
    run_exports(company.settings, company.engine)
    assert company.value("SELECT state FROM exports WHERE id = :i", i=export_id) == "done"
    assert company.value("SELECT messages FROM exports WHERE id = :i", i=export_id) == 0
    company.act("DELETE FROM exports")
    exports.tidy(company.engine, company.settings)
