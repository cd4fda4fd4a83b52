"""What is known about a provider is shown where a source is added and checked."""

from __future__ import annotations

from uuid import UUID

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
