"""Who is answered at all: the right host, the right peer; and what errors do not tell."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

from archiver.access.users import User
from archiver.config import load_settings
from archiver.db.tables import uuid7
from archiver.http.public_text import without_paths
from tests.integration.http.conftest import PASSWORD, Client, Company, Served
from tests.integration.http.test_safety import forget_requests, logged, wait_for_new_minute  # noqa: F401

FORWARDED = {"X-Forwarded-For": "203.0.113.9"}


# --- the host


@pytest.mark.parametrize(
    ("host", "known"),
    [
        ("mail.example.org", True),
        ("MAIL.example.org:443", True),
        ("mail.example.org.", True),
        ("localhost:8080", True),
        ("127.0.0.1", True),
        ("[::1]:8080", True),
        ("rebound.example.net", False),
        ("mail.example.org.example.net", False),
        ("localhost.example.net", False),
        ("127.0.0.1.example.net", False),
        ("10.1.2.3", False),
        ("mail.example.org@example.net", False),
        ("", False),
        ("[", False),
    ],
)
def test_the_host_has_to_be_ours(company: Company, variables: dict[str, str], host: str, known: bool) -> None:
    settings = load_settings({**variables, "ARCHIVER_URL": "http://mail.example.org"}, Path("none"))
    with Served(settings) as served, Client(base_url=served.url) as client:
        for path in ("/api/v1/first-start", "/sign-in", "/healthz", "/metrics", "/static/none"):
            answer = client.get(f"{served.url}{path}", headers={"Host": host})
            if known:
                assert answer.status_code != 421
            else:
                assert answer.status_code in (400, 421), "(uvicorn refuses some by itself)"
        body = {"email": "x@example.org", "password": "x"}
        assert (client.post("/session", json=body, headers={"Host": host}).status_code in (400, 421)) is not known
    company.act("DELETE FROM sign_in_pauses")


def test_without_an_address_of_its_own_digits_are_taken_and_no_name(company: Company) -> None:
    with company.client() as client:
        assert client.get("/first-start", headers={"Host": "192.168.7.7:8080"}).status_code == 200
        refused = client.get("/first-start", headers={"Host": "rebound.example.net"})
        assert (refused.status_code, refused.json()["code"]) == (421, "wrong_host")


# --- figures


@pytest.mark.parametrize("path", ["/metrics", "/parts"])
def test_figures_are_for_the_machine_and_for_a_token(company: Company, variables: dict[str, str], path: str) -> None:
    proxied = {**variables, "TRUSTED_PROXIES": "127.0.0.1", "METRICS_TOKEN": "let-me-see-the-figures"}
    with Served(load_settings(proxied, Path("none"))) as served, Client() as client:
        url = f"{served.url}{path}"
        assert client.get(url).status_code == 401, "a trusted proxy may have left its headers out"
        assert client.get(url, headers=FORWARDED).status_code in (401, 403), "through a trusted proxy"
        assert client.get(url, headers={**FORWARDED, "Authorization": "Bearer wrong"}).status_code in (401, 403)
        assert client.get(url, headers={**FORWARDED, "Authorization": "Bearer let-me-see-the-figures"}).status_code == 200
    with company.client("alice") as client:
        for header in ("X-Forwarded-For", "Forwarded", "X-Real-IP"):
            assert client.get(f"{company.url}{path}", headers={header: "127.0.0.1"}).status_code in (401, 403), (
                "an unknown proxy"
            )
        assert client.get(f"{company.url}{path}", headers={**FORWARDED, "Authorization": "Bearer"}).status_code in (401, 403)
        assert client.get(f"{company.url}{path}").status_code == 200
        named = client.get(f"{company.url}{path}", headers={"Host": "192.168.7.7:8080"})
        assert named.status_code == 401, "a proxy that passes the name on, and nothing else"


@pytest.mark.parametrize(
    ("url", "status"), [("https://mail.example.org", 401), ("http://localhost:8080", 200), ("http://[::1]:8080", 200)]
)
def test_a_local_proxy_without_headers_is_not_this_machine(variables: dict[str, str], url: str, status: int) -> None:
    """Whoever is told the address that people use knows of the proxy, even if its requests look like our own."""
    token = "let-me-see-the-figures"
    settings = load_settings({**variables, "ARCHIVER_URL": url, "METRICS_TOKEN": token}, Path("none"))
    with Served(settings) as served, Client() as client:
        for path in ("/metrics", "/parts"):
            assert client.get(f"{served.url}{path}").status_code == status
            assert client.get(f"{served.url}{path}", headers={"Authorization": f"Bearer {token}"}).status_code == 200


# --- proxies and pauses


@pytest.fixture
def fay(company: Company) -> Iterator[User]:
    user = company.add_user("fay@example.org", password=PASSWORD)
    yield user
    company.act("DELETE FROM users WHERE id = :i", i=user.id)
    company.act("DELETE FROM sign_in_pauses")


def sign_in(client: Client, email: str, password: str = PASSWORD) -> int:
    return client.post("/session", json={"email": email, "password": password}).status_code


def test_failed_tries_of_others_do_not_lock_out_a_known_device(company: Company, fay: User) -> None:
    """One proxy that is not trusted: everybody has its address."""
    other = company.add_user("gus@example.org", password=PASSWORD)
    with company.client() as device, company.client() as stranger:
        assert sign_in(device, fay.email) == 201
        company.act("UPDATE sign_in_pauses SET blocked_until = now()")
        while sign_in(stranger, "somebody@example.org", "wrong password") != 429:
            company.act("UPDATE sign_in_pauses SET blocked_until = now() WHERE key LIKE 'account:%'")
        while sign_in(stranger, fay.email, "wrong password") != 429:
            pass
        company.act("UPDATE sign_in_pauses SET blocked_until = now() + interval '1 hour'")  # however long the rest takes
        assert sign_in(stranger, fay.email) == 429
        assert sign_in(device, fay.email) == 201, "it signed in before"
        assert sign_in(device, other.email) == 429, "but not to this account"
        tries = [sign_in(device, fay.email, "wrong password") for _ in range(8)]
        assert tries[:5] == [401] * 5
        assert tries[-1] == 429, "a device has pauses, too"
    company.act("DELETE FROM users WHERE id = :i", i=other.id)


def test_a_cookie_that_somebody_made_up_is_no_device(company: Company, fay: User) -> None:
    with company.client() as client:
        for cookie in ("x", "eyJhY2NvdW50IjoiIn0=", "\u00fc", ""):
            client.cookies.clear()
            statuses = []
            for _ in range(8):
                headers = {b"Cookie": f"archiver-device={cookie}".encode()}
                body = {"email": fay.email, "password": "wrong password"}
                statuses.append(client.post("/session", json=body, headers=headers).status_code)
            assert statuses[-1] == 429
            company.act("DELETE FROM sign_in_pauses")


def test_a_header_of_an_unknown_proxy_is_reported_once(
    company: Company,
    variables: dict[str, str],
    logged: Path,  # noqa: F811
) -> None:
    with Served(load_settings(variables, Path("none"))) as served, Client(base_url=served.url) as client:
        client.get("/first-start")
        assert "forwarded_by_untrusted_peer" not in _said(logged)
        for _ in range(3):
            client.get("/first-start", headers=FORWARDED)
        assert _said(logged).count("forwarded_by_untrusted_peer") == 1
    trusted = load_settings({**variables, "TRUSTED_PROXIES": "127.0.0.1"}, Path("none"))
    with Served(trusted) as served, Client(base_url=served.url) as client:
        client.get("/first-start", headers=FORWARDED)
        assert _said(logged).count("forwarded_by_untrusted_peer") == 1


def _said(folder: Path) -> str:
    return "".join(path.read_text() for path in folder.iterdir())


# --- what errors say


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("the pack /var/lib/archiver/packs/1.pack: no space", "the pack …/1.pack: no space"),
        ("can't read '/etc/ssl/private/key.pem'", "can't read '…/key.pem'"),
        ("ARCHIVER_DATA=/tmp/data is in use", "ARCHIVER_DATA=…/data is in use"),
        ("files come in by an upload (/api/v1/uploads)", "files come in by an upload (/api/v1/uploads)"),
        ("INBOX/2024 and /Sales", "INBOX/2024 and /Sales"),
        ("https://example.org/etc/passwd", "https://example.org/etc/passwd"),
    ],
)
def test_paths_of_the_server_are_left_out(text: str, shown: str) -> None:
    assert without_paths(text) == shown


def test_an_error_names_no_path(company: Company, tmp_path: Path) -> None:
    """A source that the command line has added with a file that is gone."""
    source, place = uuid7(), tmp_path / "gone" / "users.csv"
    company.act(
        "INSERT INTO ingestion_sources (id, kind, name, status, status_message, settings)"
        " VALUES (:i, 'imap', 'gone', 'error', :m, jsonb_build_object('host', '127.0.0.1', 'users_file', CAST(:p AS text)))",
        i=source,
        m=f"the list of users {place} can't be read",
        p=str(place),
    )
    with company.client("admin") as admin:
        checked = admin.post(f"/sources/{source}/check")
        assert checked.status_code == 422
        assert "users.csv" in checked.json()["detail"]
        shown = admin.get(f"/sources/{source}").json()["status_message"]
        form = {"do": "check", "csrf": admin.headers["X-CSRF-Token"]}
        page = admin.post(f"{company.url}/sources/{source}/do", data=form)
        _fail(company, source, str(place))
        paths = (f"/api/v1/sources/{source}/runs", f"/api/v1/sources/{source}/mailboxes", "/api/v1/dead-letters")
        answers = [admin.get(f"{company.url}{path}").text for path in (*paths, "/sources", f"/sources/{source}", "/activity")]
        for told in (checked.text, shown, page.text, *answers):
            assert str(tmp_path) not in told
            assert "users.csv" in told
    company.act("DELETE FROM dead_letters WHERE source_id = :i", i=source)
    company.act("DELETE FROM sync_runs WHERE source_id = :i", i=source)
    company.act("DELETE FROM mailboxes WHERE source_id = :i", i=source)
    company.act("DELETE FROM ingestion_sources WHERE id = :i", i=source)


def _fail(company: Company, source: UUID, place: str) -> None:
    """Everywhere where a failure is kept."""
    values, box = {"s": source, "m": f"{place} can't be read"}, uuid7()
    company.act(
        "INSERT INTO mailboxes (id, source_id, address, status_message) VALUES (:i, :s, 'x@example.org', :m)", i=box, **values
    )
    company.act(
        "INSERT INTO dead_letters (id, kind, source_id, mailbox_id, folder, provider_key, reason)"
        " VALUES (:i, 'message', :s, :b, 'INBOX', 'INBOX:1', :m)",
        i=uuid7(),
        b=box,
        **values,
    )
    company.act(
        "INSERT INTO sync_runs (id, source_id, outcome, started_at, finished_at, error_messages)"
        " VALUES (:i, :s, 'failed', now(), now(), jsonb_build_array(jsonb_build_object('error', CAST(:m AS text))))",
        i=uuid7(),
        **values,
    )


def test_a_store_that_fails_names_no_path(company: Company) -> None:
    packs = company.settings.archiver_data / "packs"
    hidden = packs.with_name("packs-hidden")
    os.rename(packs, hidden)  # noqa: PTH104
    try:
        settings = company.settings
        with Served(settings) as served, company.client("alice") as alice:
            answer = alice.get(f"{served.url}/api/v1/messages/{company.messages['alice']}")
            assert answer.status_code >= 500
            assert str(settings.archiver_data) not in answer.text
    finally:
        if packs.exists():
            packs.rmdir()
        hidden.rename(packs)


BAD = ("x", "0190", "01900000-0000-7000-8000-00000000000g", "%00")


@pytest.mark.parametrize("bad", BAD)
def test_what_is_no_id_is_a_bad_request(company: Company, bad: str) -> None:
    paths = ["/messages/{}", "/messages/{}/raw", "/messages?mailbox_id={}", "/sources/{}", "/users/{}", "/exports/{}"]
    paths += ["/dead-letters/{}", "/uploads/{}", "/dead-letters?source_id={}", "/users/{}/grants"]
    with company.client("admin") as admin:
        for path in paths:
            answer = admin.get(path.format(bad))
            assert (answer.status_code, answer.json()["code"]) == (400, "bad_request"), path
        assert admin.post("/exports", json={"mailbox_id": bad}).status_code == 400
        assert admin.post("/exports", json={"mailbox_id": 7}).status_code in (400, 422)


FORMS: list[tuple[str, dict[str, Any]]] = [
    ("/activity/dead-letters", {"do": "retry", "id": "x"}),
    ("/settings/sessions", {"id": "x"}),
    ("/settings/keys", {"do": "revoke", "id": "x"}),
    ("/settings/users", {"do": "revoke", "id": "x"}),
    ("/settings/users", {"do": "revoke", "grant": "x"}),
    ("/sources/import", {"uploads": "x", "mailbox": "x@example.org"}),
    ("/export", {"id.x": "on"}),
]


@pytest.mark.parametrize(("path", "form"), FORMS)
def test_a_form_with_something_that_is_no_id_is_a_bad_request(company: Company, path: str, form: dict[str, str]) -> None:
    if "grant" in form:
        form = {**form, "id": str(company.people["bob"].id)}
    with company.client("admin") as admin:
        answer = admin.post(f"{company.url}{path}", data={**form, "csrf": admin.headers["X-CSRF-Token"]})
    assert answer.status_code == 400


# --- dead letters


def test_dead_letters_name_folders_to_those_who_may_read_the_mailbox(company: Company) -> None:
    letter = uuid7()
    company.act(
        "INSERT INTO dead_letters (id, kind, source_id, mailbox_id, folder, provider_key, reason, payload)"
        " VALUES (:i, 'message', :s, :m, 'Divorce', 'Divorce:1:7', 'Divorce:1:7 in Divorce can''t be fetched',"
        ' \'{"folder": "Divorce"}\')',
        i=letter,
        s=company.source,
        m=company.mailboxes["alice"],
    )
    pages = ("/api/v1/dead-letters", f"/api/v1/dead-letters/{letter}", "/activity")
    with company.client("admin") as admin, company.client("auditor") as auditor:
        for page in pages:
            hidden, shown = admin.get(f"{company.url}{page}"), auditor.get(f"{company.url}{page}")
            assert hidden.status_code == shown.status_code == 200
            assert "Divorce" not in hidden.text, page
            assert "Divorce" in shown.text, page
            assert "be fetched" in hidden.text, "the reason stays"
        assert admin.post(f"/dead-letters/{letter}/retry").status_code == 204, "what is hidden can be tried again"
        assert company.value("SELECT folder FROM dead_letters WHERE id = :i", i=letter) == "Divorce"
    company.act("DELETE FROM dead_letters WHERE id = :i", i=letter)


def test_requests_of_strangers_do_not_use_up_those_of_a_known_device(
    company: Company, variables: dict[str, str], fay: User
) -> None:
    with company.client() as device, company.client() as stranger:
        assert sign_in(device, fay.email) == 201
        device.cookies.delete("archiver")
        wait_for_new_minute()
        forget_requests(variables["REDIS_URL"])
        with Served(load_settings({**variables, "API_REQUESTS_PER_MINUTE": "5"}, Path("none"))) as served:
            url = f"{served.url}/api/v1/first-start"
            assert [stranger.get(url).status_code for _ in range(6)] == [200] * 5 + [429]
            assert [device.get(url).status_code for _ in range(6)] == [200] * 5 + [429], "it is counted apart"
    forget_requests(variables["REDIS_URL"])
