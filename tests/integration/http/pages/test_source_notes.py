"""What is known about a provider is shown where a source is added and checked."""

from __future__ import annotations

from uuid import UUID

from archiver.db.ids import uuid7
from tests.integration.http.conftest import Company
from tests.support.imap_server import Script, imap_server

COURIER = Script({"INBOX": {}}, greeting="* OK Courier-IMAP ready.")


def test_a_check_on_the_page_says_that_it_worked_and_what_to_know(company: Company) -> None:
    with imap_server(COURIER) as port, company.client("admin") as admin:
        settings = {"host": "127.0.0.1", "port": port, "tls": "none", "user": "alice@example.org"}
        body = {"kind": "imap", "name": "noted", "settings": settings, "secrets": {"password": "x"}}
        added = admin.post("/sources", json=body)
        assert added.status_code == 201, added.text
        source = UUID(added.json()["id"])
        page = admin.post(f"{company.url}/sources/{source}/do", data={"do": "check", "csrf": admin.headers["X-CSRF-Token"]})
        assert page.status_code == 200
        assert "The connection works." in page.text
        assert "MAXPERIP" in page.text
        assert "MAXPERIP" not in admin.get(f"{company.url}/sources/{source}").text
        admin.delete(f"/sources/{source}")


def test_the_form_has_notes_on_providers(company: Company) -> None:
    with company.client("admin") as admin:
        assert "export.imap.mail.yahoo.com" in admin.get(f"{company.url}/sources/add/imap").text
        assert "Notes on providers" not in admin.get(f"{company.url}/sources/add/google").text


def test_a_running_sync_says_how_long_the_rest_takes(company: Company) -> None:
    """A Gmail account over its API: 5 messages a second, by its quota."""
    source, box, session = uuid7(), uuid7(), uuid7()
    settings = '{"address": "a@gmail.com", "client_id": "1-x.apps.googleusercontent.com"}'
    company.act(
        "INSERT INTO ingestion_sources (id, kind, name, status, settings)"
        " VALUES (:s, 'gmail', 'slow', 'importing', CAST(:settings AS jsonb))",
        s=source,
        settings=settings,
    )
    company.act("INSERT INTO mailboxes (id, source_id, address) VALUES (:b, :s, 'a@gmail.com')", b=box, s=source)
    company.act(
        "INSERT INTO sync_sessions (id, ingestion_source_id, is_initial_import, state, total_mailboxes)"
        " VALUES (:x, :s, true, 'running', 1)",
        x=session,
        s=source,
    )
    company.act(
        "INSERT INTO sync_session_mailboxes (session_id, mailbox_id, state, total, seen) VALUES (:x, :b, 'running', 100000, 0)",
        x=session,
        b=box,
    )
    try:
        with company.client("admin") as admin:
            running = {one["session"]["source"]: one["session"] for one in admin.get("/runs/running").json()["items"]}
            assert running["slow"]["left_seconds"] == 20_000
            for path in ("/sources", f"/sources/{source}"):
                assert "about 5 h 33 min left" in admin.get(f"{company.url}{path}").text
    finally:
        for statement in (
            "DELETE FROM sync_session_mailboxes WHERE session_id = :x",
            "DELETE FROM sync_sessions WHERE id = :x",
            "DELETE FROM mailboxes WHERE id = :b",
            "DELETE FROM ingestion_sources WHERE id = :s",
        ):
            company.act(
                statement,
                **{name: value for name, value in (("x", session), ("b", box), ("s", source)) if f":{name}" in statement},
            )
