"""Uploads in pieces: what they become, where they go on, and what a client may try with them."""

from __future__ import annotations

import hashlib
import socket
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

from archiver.access.principal import KeyScope
from tests.integration.http.conftest import Client, Company, mail
from tests.support.waiting import DEADLINE_SECONDS, eventually


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
