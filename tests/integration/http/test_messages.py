"""Messages out and in: bytes, ranges, names, ETags, handing in; and what a client may try with them."""

from __future__ import annotations

import hashlib
import socket
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

from archiver.access.principal import KeyScope
from archiver.config import load_settings
from tests.integration.http.conftest import Client, Company, Served, mail
from tests.support.export_runs import run_exports
from tests.support.waiting import DEADLINE_SECONDS, eventually


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
    company.act(
        "INSERT INTO outbox (id, queue, job, payload, available_at)"
        " SELECT gen_random_uuid(), 'indexing', 'index-email-batch', '{}', now() + interval '1 hour'"
        " FROM generate_series(1, 10001)"
    )
    with company.client("alice") as client:
        answer = client.post("/messages", params={"mailbox": "alice@example.org"}, content=b"Subject: x\r\n\r\n")
    company.act("DELETE FROM outbox")
    assert (answer.status_code, answer.json()["code"]) == (429, "no_room")
    assert "indexed" in answer.json()["detail"]


# --- uploads


def begin(client: Client, size: int, **more: Any) -> str:
    answer = client.post("/uploads", json={"name": "mail.mbox", "size_bytes": size, **more})
    assert answer.status_code == 201, answer.text
    return str(answer.json()["id"])


def send(client: Client, upload: str, at: int, data: bytes) -> int:
    return client.patch(f"/uploads/{upload}", content=data, headers={"Upload-Offset": str(at)}).status_code


def test_an_upload_in_pieces(company: Company) -> None:
    data = bytes(range(256)) * 9000
    with company.client("alice") as client, company.client("bob") as bob:
        upload = begin(client, len(data), sha256=hashlib.sha256(data).hexdigest())
        assert send(client, upload, 0, data[:1_000_000]) == 204
        assert send(client, upload, 0, data) == 409, "not from the beginning again"
        assert send(client, upload, 2_000_000, b"x") == 409, "nor with a hole"
        assert client.post(f"/uploads/{upload}/complete").status_code == 409
        assert client.get(f"/uploads/{upload}").json()["offset"] == 1_000_000
        assert bob.get(f"/uploads/{upload}").status_code == 404
        assert send(bob, upload, 1_000_000, b"x") == 404
        assert send(client, upload, 1_000_000, data[1_000_000:]) == 204
        done = client.post(f"/uploads/{upload}/complete")
        assert (done.status_code, done.json()["state"]) == (200, "complete")
        assert send(client, upload, len(data), b"x") == 409
        assert (company.settings.archiver_data / "uploads" / f"{upload}.part").read_bytes() == data
        assert client.delete(f"/uploads/{upload}").status_code == 204
        assert client.get(f"/uploads/{upload}").status_code == 404
    assert not (company.settings.archiver_data / "uploads" / f"{upload}.part").exists()


def test_an_upload_becomes_an_import(company: Company) -> None:
    data = b"From x Tue Mar  5 10:00:00 2024\n" + mail(90, "x@example.net", "alice@example.org", "uploaded").replace(
        b"\r\n", b"\n"
    )
    with company.client("alice") as client, company.client("admin") as admin:
        upload = begin(client, len(data), name="../../old mail.mbox")
        assert client.post(f"/uploads/{upload}/import", json={"mailbox": "alice@example.org"}).status_code == 409
        assert send(client, upload, 0, data) == 204
        assert client.post(f"/uploads/{upload}/complete").status_code == 200
        assert client.post(f"/uploads/{upload}/import", json={"mailbox": "bob@example.org"}).status_code == 404
        assert admin.post(f"/uploads/{upload}/import", json={"mailbox": "bob@example.org"}).status_code == 404, (
            "not their upload"
        )
        started = client.post(f"/uploads/{upload}/import", json={"mailbox": "alice@example.org"})
        assert (started.status_code, started.json()["source"]) == (202, "import:alice@example.org"), started.text
        again = client.post(f"/uploads/{upload}/import", json={"mailbox": "alice@example.org"})
        assert again.json() == started.json()
        item = started.json()["import_id"]
        (path,) = admin.get(f"/sources/{started.json()['source_id']}").json()["settings"]["paths"]
        assert Path(path).read_bytes() == data
        assert Path(path) == company.settings.archiver_data / "uploads" / f"import-{item}" / "0" / "old mail.mbox"
        assert client.delete(f"/uploads/{upload}").status_code == 409, "an import that is under way keeps its file"
        assert Path(path).read_bytes() == data
    assert company.value("SELECT count(*) FROM outbox WHERE job = 'initial-import'") == 1
    _discarded_import(company, item, upload)
    company.act("DELETE FROM outbox")
    company.act("UPDATE ingestion_sources SET removed_at = now() WHERE kind = 'import'")


def _discarded_import(company: Company, item: str, upload: str) -> None:
    with company.client("alice") as client, company.client("bob") as bob, company.client("admin") as admin:
        shown = client.get(f"/imports/{item}").json()
        assert (shown["state"], shown["files"], shown["keeps_upload"]) == ("waiting", ["old mail.mbox"], True)
        assert str(company.settings.archiver_data) not in client.get(f"/imports/{item}").text
        for only_kept in ("false", "true"):
            assert [one["id"] for one in admin.get("/imports", params={"kept": only_kept}).json()["items"]] == [item]
        assert bob.get("/imports").json()["items"] == []
        assert (bob.get(f"/imports/{item}").status_code, bob.delete(f"/imports/{item}").status_code) == (404, 404)
        company.act("UPDATE imports SET outcome = 'failed', finished_at = now()")
        assert client.get(f"/uploads/{upload}").json()["import_id"] == item, "it stays after a failure"
        assert client.get(f"/imports/{item}").json()["state"] == "failed"
        assert client.delete(f"/imports/{item}").status_code == 204
        assert client.get(f"/uploads/{upload}").status_code == 404
        assert client.delete(f"/imports/{item}").status_code == 409, "nothing is left to discard"
        assert client.get(f"/imports/{item}").json()["keeps_upload"] is False
        assert client.get("/imports", params={"kept": "true"}).json()["items"] == []
    assert list((company.settings.archiver_data / "uploads").iterdir()) == []


def test_nobody_names_files_of_the_server(company: Company) -> None:
    with company.client("admin") as client:
        for kind in ("files", "import"):
            source = {"kind": kind, "name": "etc", "settings": {"paths": ["/etc"], "mailbox": "x@example.org"}}
            assert client.post("/sources", json=source).status_code == 400
        assert client.patch(f"/sources/{company.source}", json={"settings": {"paths": ["/etc"]}}).status_code == 400


def test_an_upload_that_lies(company: Company) -> None:
    with company.client("alice") as client:
        upload = begin(client, 10)
        assert send(client, upload, 0, b"x" * 11) == 413, "larger than it said"
        assert client.get(f"/uploads/{upload}").json()["offset"] <= 10
        wrong = begin(client, 3, sha256="0" * 64)
        assert send(client, wrong, 0, b"abc") == 204
        answer = client.post(f"/uploads/{wrong}/complete")
        assert (answer.status_code, answer.json()["code"]) == (409, "conflict")
        assert client.post("/uploads", json={"name": "x", "size_bytes": 41 << 20}).json()["code"] == "too_large"
        assert client.post("/uploads", json={"name": "x", "size_bytes": -1}).status_code == 422
        assert client.post("/uploads", json={"name": "x", "size_bytes": 1, "sha256": "zz"}).status_code == 422
        strange = begin(client, 1, name="../../../etc/cron.d/x\0")
        assert sorted(path.stem for path in (company.settings.archiver_data / "uploads").iterdir()) == sorted(
            [upload, wrong, strange]
        )
        for one in (upload, wrong, strange):
            client.delete(f"/uploads/{one}")


def raw_request(company: Company, head: str, body: bytes) -> socket.socket:
    parts = urlsplit(company.url)
    connection = socket.create_connection((parts.hostname, parts.port), timeout=DEADLINE_SECONDS)
    connection.sendall(head.replace("\n", "\r\n").encode() + b"\r\n\r\n" + body)
    return connection


def test_an_upload_that_breaks_off_goes_on_where_it_ended(company: Company) -> None:
    with company.client("alice") as client:
        upload = begin(client, 5_000_000)
        head = (
            f"PATCH /api/v1/uploads/{upload} HTTP/1.1\nHost: localhost\nUpload-Offset: 0\nContent-Length: 5000000\n"
            f"Authorization: Bearer {company.key('alice', KeyScope.INGEST)}"
        )
        connection = raw_request(company, head, b"x" * 3_000_000)
        eventually(lambda: client.get(f"/uploads/{upload}").json()["offset"] >= 2_000_000, what="the first bytes")
        assert send(client, upload, 0, b"y") == 409, "somebody is sending"
        connection.close()

        def continued_at() -> int:
            at = int(client.get(f"/uploads/{upload}").json()["offset"])
            status = send(client, upload, at, b"y" * (5_000_000 - at))
            assert status in (204, 409)
            return at if status == 204 else 0

        assert eventually(continued_at, what="the end of the broken request") >= 2_000_000
        assert client.post(f"/uploads/{upload}/complete").status_code == 200
        client.delete(f"/uploads/{upload}")


def test_bodies_have_limits(company: Company) -> None:
    with company.client("alice") as client:
        large = client.post("/me/keys", content=b'{"name": "' + b"x" * (2 << 20) + b'"}')
        assert (large.status_code, large.json()["code"]) == (413, "too_large")
        endless = client.post("/messages", params={"mailbox": "alice@example.org"}, content=iter([b"x" * (1 << 20)] * 41))
        assert (endless.status_code, endless.json()["code"]) == (413, "too_large")
    assert not list((company.settings.archiver_data / "scratch").glob("in-*")), "nothing is left behind"
    told = raw_request(company, "POST /api/v1/messages?mailbox=x HTTP/1.1\nHost: localhost\nContent-Length: 99999999999", b"")
    assert told.recv(100).split()[1] in (b"413", b"401")
    told.close()


def test_a_body_that_never_ends_loses_its_place(company: Company, monkeypatch: pytest.MonkeyPatch) -> None:
    from archiver.http import middleware

    monkeypatch.setattr(middleware, "_SILENCE_SECONDS", 0.3)
    key = company.key("alice", KeyScope.INGEST)
    head = "POST /api/v1/messages?mailbox=alice@example.org HTTP/1.1\nHost: localhost\nContent-Length: 1000\n"
    head += f"Authorization: Bearer {key}"
    slow = raw_request(company, head, b"Subject: ")
    assert slow.recv(1000).split()[1] == b"408"
    slow.close()


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
