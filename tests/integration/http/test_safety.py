"""Keys and their scopes, limits, headers, and what must never come out."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
import redis

from archiver.access.principal import KeyScope
from archiver.config import load_settings
from archiver.db.states import UserRole
from archiver.http.assets import static_path
from archiver.logs import set_up_logs
from tests.integration.http.conftest import Client, Company, Served
from tests.support.waiting import DEADLINE_SECONDS

# --- API keys

ROUTES = {
    KeyScope.READ: ("GET", "/messages"),
    KeyScope.SEARCH: ("GET", "/search"),
    KeyScope.EXPORT: ("GET", "/exports"),
    KeyScope.INGEST: ("GET", "/uploads"),
    KeyScope.ADMIN: ("GET", "/users"),
}


@pytest.mark.parametrize("scope", list(KeyScope))
def test_a_key_can_do_what_its_scope_says_and_nothing_else(company: Company, scope: KeyScope) -> None:
    key = company.key("admin", scope)
    with company.client() as client:
        client.headers["Authorization"] = f"Bearer {key}"
        for other, (method, path) in ROUTES.items():
            assert client.request(method, path).status_code == (200 if other is scope else 403), other
        for method, path in (("GET", "/me/keys"), ("GET", "/me/sessions"), ("POST", "/me/keys"), ("PUT", "/me/password")):
            assert client.request(method, path, json={}).status_code == 403, "an account is for people"
        assert client.get("/me").json()["csrf_token"] is None


def test_a_key_never_can_more_than_its_owner(company: Company) -> None:
    with company.client("alice") as client:
        answer = client.post("/me/keys", json={"name": "k", "scopes": ["admin"]})
        assert answer.status_code == 400
    company.add_user("risen@example.org", UserRole.ADMINISTRATOR)
    key = company.key("risen", KeyScope.ADMIN, KeyScope.READ)
    with company.client() as client, company.client("admin") as admin:
        client.headers["Authorization"] = f"Bearer {key}"
        assert client.get("/users").status_code == 200
        admin.patch(f"/users/{company.people['risen'].id}", json={"role": "user"})
        assert client.get("/users").status_code == 403
        assert client.get("/messages").status_code == 200
        admin.patch(f"/users/{company.people['risen'].id}", json={"disabled": True})
        assert client.get("/messages").status_code == 401


def test_the_life_of_a_key(company: Company) -> None:
    with company.client("alice") as alice, company.client("bob") as bob, company.client() as client:
        later = (datetime.now(UTC) + timedelta(days=1)).isoformat()
        made = alice.post("/me/keys", json={"name": "script", "scopes": ["read"], "expires_at": later}).json()
        client.headers["Authorization"] = f"Bearer {made['key']}"
        assert client.get("/messages").status_code == 200
        listed = next(key for key in alice.get("/me/keys").json()["items"] if key["id"] == made["id"])
        assert made["key"].startswith(f"arc_{listed['prefix']}_")
        assert listed["last_used_at"] is not None
        assert made["key"].rpartition("_")[2] not in alice.get("/me/keys").text
        assert company.value("SELECT key_hash FROM api_keys WHERE id = :i", i=made["id"]) != made["key"].encode()
        for wrong in (
            made["key"][:-1] + ("A" if made["key"][-1] != "A" else "B"),
            made["key"][:-1],
            f"arc_{listed['prefix']}_",
            "x y",
        ):
            assert client.get("/messages", headers={"Authorization": f"Bearer {wrong}"}).status_code == 401
        assert client.get("/messages", headers={"Authorization": f"Basic {made['key']}"}).status_code == 401
        company.act("UPDATE api_keys SET expires_at = now() WHERE id = :i", i=made["id"])
        assert client.get("/messages").status_code == 401
        company.act("UPDATE api_keys SET expires_at = NULL WHERE id = :i", i=made["id"])
        assert bob.delete(f"/me/keys/{made['id']}").status_code == 404
        assert alice.delete(f"/me/keys/{made['id']}").status_code == 204
        assert client.get("/messages").status_code == 401
        past = (datetime.now(UTC) - timedelta(days=1)).isoformat()
        refused: list[dict[str, Any]] = [{"expires_at": past}, {"scopes": []}, {"scopes": ["king"]}, {"name": " "}]
        for given in refused:
            answer = alice.post("/me/keys", json={"name": "k", "scopes": ["read"], **given})
            assert answer.status_code in (400, 422), given


def test_a_bad_key_is_not_helped_by_a_good_session(company: Company) -> None:
    with company.client("alice") as client:
        assert client.get("/me", headers={"Authorization": "Bearer wrong"}).status_code == 401


# --- what nobody may set


@pytest.mark.parametrize(
    "given",
    [
        {"may_read_all": True},
        {"id": "01900000-0000-7000-8000-000000000001"},
        {"password_hash": "x"},
        {"totp_secret": "x"},
        {"oidc_subject": "x"},
        {"settings": {"own_mail": True}},
    ],
)
def test_fields_that_are_not_offered_are_refused(company: Company, given: dict[str, Any]) -> None:
    with company.client("admin") as admin:
        assert admin.post("/users", json={"email": "m@example.org", **given}).status_code == 422
        if "may_read_all" not in given:
            assert admin.patch(f"/users/{company.people['bob'].id}", json=given).status_code == 422
    with company.client("alice") as client:
        assert (
            client.post(
                "/me/keys", json={"name": "k", "scopes": ["read"], "user_id": str(company.people["bob"].id)}
            ).status_code
            == 422
        )


def test_the_only_administrator_cannot_be_lost(empty_company: Company) -> None:
    company = empty_company
    first = company.add_user("first@example.org", UserRole.ADMINISTRATOR)
    with company.client("first") as client:
        for act in (
            client.patch(f"/users/{first.id}", json={"role": "user"}),
            client.patch(f"/users/{first.id}", json={"disabled": True}),
            client.delete(f"/users/{first.id}"),
        ):
            assert act.status_code == 409
    second = company.add_user("second@example.org", UserRole.ADMINISTRATOR)

    with company.client("first") as one, company.client("second") as other, ThreadPoolExecutor(2) as pool:
        removals = ((one, second.id), (other, first.id))  # each removes the other
        statuses = sorted(pool.map(lambda pair: pair[0].delete(f"/users/{pair[1]}").status_code, removals))
    assert statuses[0] == 204
    assert company.value("SELECT count(*) FROM users") == 1


def test_removing_a_user_leaves_the_mail(company: Company) -> None:
    user = company.add_user("leaver@example.org")
    company.act(
        "INSERT INTO ingestion_sources (id, kind, name, owner_id) VALUES (gen_random_uuid(), 'fake', 'theirs', :u)", u=user.id
    )
    before = company.value("SELECT count(*) FROM messages")
    with company.client("admin") as admin:
        assert admin.delete(f"/users/{user.id}").status_code == 204
    assert company.value("SELECT count(*) FROM messages") == before
    assert company.value("SELECT count(*) FROM ingestion_sources WHERE name = 'theirs' AND owner_id IS NULL") == 1


# --- limits


def test_requests_are_counted_for_each_key_and_session(company: Company, variables: dict[str, str]) -> None:
    settings = load_settings({**variables, "API_REQUESTS_PER_MINUTE": "5"}, Path("none"))
    with company.client("alice") as alice, company.client("bob") as bob, Served(settings) as served:
        wait_for_new_minute()
        forget_requests(variables["REDIS_URL"])
        statuses = []
        for _ in range(7):
            answer = alice.get(f"{served.url}/api/v1/me")
            statuses.append(answer.status_code)
        assert statuses == [200] * 5 + [429] * 2
        assert answer.json()["code"] == "rate_limited"
        assert 0 < int(answer.headers["Retry-After"]) <= 60
        assert answer.headers["RateLimit-Limit"] == "5"
        assert answer.headers["RateLimit-Remaining"] == "0"
        assert bob.get(f"{served.url}/api/v1/me").status_code == 200, "others are not concerned"
        with Client(base_url=served.url) as anybody:
            guesses = [
                anybody.get("/me", headers={"Authorization": f"Bearer arc_{n:012x}_{'x' * 43}"}).status_code for n in range(7)
            ]
        assert guesses == [401] * 5 + [429] * 2, "guessing keys is counted by address"


def wait_for_new_minute() -> None:
    """So that a test of a window does not begin in one and end in the next."""
    while time.time() % 60 > 45:
        time.sleep(0.2)


def forget_requests(url: str) -> None:
    """Other tests come from the same address."""
    with redis.Redis.from_url(url) as client:
        for key in client.scan_iter("archiver:rate:*"):
            client.delete(key)


def test_without_redis_nobody_is_locked_out(company: Company, variables: dict[str, str]) -> None:
    settings = load_settings({**variables, "REDIS_URL": "redis://127.0.0.1:1/0"}, Path("none"))
    with company.client("alice") as alice, Served(settings) as served:
        assert alice.get(f"{served.url}/api/v1/me").status_code == 200


def test_without_postgres_it_says_so_and_nothing_else(variables: dict[str, str]) -> None:
    url = "postgresql://archiver:planted-password@127.0.0.1:1/archiver"
    settings = load_settings({**variables, "DATABASE_URL": url}, Path("none"))
    with Served(settings) as served, Client(base_url=served.url) as client:
        client.cookies.set("archiver", "x")
        answer = client.get("/me")
    assert (answer.status_code, answer.json()["code"]) == (503, "not_ready")
    assert "planted" not in answer.text


def test_a_stop_finishes_what_is_under_way(company: Company, variables: dict[str, str]) -> None:
    """A running request gets its answer; a stream that would never end is ended."""
    from archiver.access import audit

    got: list[Any] = []
    entered, go_on = threading.Event(), threading.Event()
    original = audit.verify

    def slow(*arguments: Any) -> Any:
        entered.set()
        go_on.wait(DEADLINE_SECONDS)
        return original(*arguments)

    served = Served(load_settings(variables, Path("none")))
    with company.client("auditor") as auditor, company.client("auditor") as watcher:
        with served:
            watching = threading.Thread(target=lambda: got.append(watcher.get(f"{served.url}/api/v1/progress")))
            watching.start()
            audit.verify = slow  # type: ignore[assignment]
            try:
                asking = threading.Thread(target=lambda: got.append(auditor.get(f"{served.url}/api/v1/audit/verify")))
                asking.start()
                assert entered.wait(DEADLINE_SECONDS)
            finally:
                audit.verify = original
            served.app.state.context.stopping.set()
            served.server.should_exit = True
            go_on.set()
        watching.join(DEADLINE_SECONDS)
        asking.join(DEADLINE_SECONDS)
    assert sorted(answer.status_code for answer in got) == [200, 200]


# --- headers


@pytest.mark.parametrize(
    "path", ["/api/v1/me", "/api/v1/first-start", "/api/v1/nothing", "/healthz", "/", f"{static_path()}/archiver.css"]
)
def test_headers_that_protect(company: Company, path: str) -> None:
    with company.client("alice") as client:
        headers = client.get(f"{company.url}{path}").headers
    assert "frame-ancestors 'none'" in headers["Content-Security-Policy"]
    assert headers["X-Content-Type-Options"] == "nosniff"
    assert headers["Referrer-Policy"] == "same-origin"
    assert len(headers["X-Request-Id"]) == 16
    assert "server" not in headers
    if path.startswith("/api"):
        assert headers["Cache-Control"] == "private, no-store"
    assert "Access-Control-Allow-Origin" not in headers


def test_a_request_id_of_a_client_is_not_taken_over(company: Company) -> None:
    with company.client() as client:
        answer = client.get("/nothing", headers={"X-Request-Id": "forged"})
    assert answer.headers["X-Request-Id"] != "forged"
    assert answer.json()["request_id"] == answer.headers["X-Request-Id"]
    assert (answer.status_code, answer.json()["code"]) == (404, "not_found")


# --- planted secrets

PLANTED = "planted-7f3a91"


@pytest.fixture
def logged(tmp_path: Path) -> Iterator[Path]:
    set_up_logs("web", "debug", tmp_path, to_terminal=False)
    yield tmp_path
    for handler in logging.getLogger().handlers[:]:
        handler.close()
        logging.getLogger().removeHandler(handler)


def test_no_secret_comes_out_anywhere(company: Company, logged: Path) -> None:
    """Passwords, tokens and secrets of sources are sent in every way that goes wrong; then everything that was said is read."""
    said: list[str] = []
    secret = f"{PLANTED}-password"
    with company.client("admin") as admin, company.client() as client:
        requests: list[tuple[Client, str, str, dict[str, Any]]] = [
            (client, "POST", "/session", {"json": {"email": "x@example.org", "password": secret}}),
            (client, "POST", "/session", {"json": {"email": secret, "password": secret}}),
            (client, "POST", "/session", {"json": {"email": "x@example.org", "password": [secret]}}),
            (client, "POST", "/session", {"json": {"email": "x@example.org", "password": secret * 100}}),
            (client, "POST", "/session", {"content": secret}),
            (
                client,
                "POST",
                "/first-start",
                {"json": {"token": secret, "email": "a@b.c", "password": secret, "purpose": "company"}},
            ),
            (client, "GET", "/me", {"headers": {"Authorization": f"Bearer {secret}"}}),
            (client, "GET", "/me", {"headers": {"Authorization": f"Bearer arc_{'0' * 12}_{secret:x<43}"}}),
            (client, "GET", "/me", {"headers": {"Cookie": f"archiver={secret}"}}),
            (admin, "POST", "/users", {"json": {"email": "bad address", "password": secret}}),
            (admin, "POST", "/users", {"json": {"email": "planted@example.org", "password": secret}}),
            (admin, "POST", "/users", {"json": {"email": "planted@example.org", "password": secret}}),
            (admin, "PUT", "/me/password", {"json": {"password": secret, "new_password": secret}}),
            (admin, "POST", "/sources", {"json": {"kind": "fake", "name": "p", "secrets": {"password": secret}}}),
            (admin, "POST", "/sources", {"json": {"kind": "no-such-kind", "name": "p", "secrets": {"password": secret}}}),
            (admin, "POST", "/sources", {"json": {"kind": "fake", "name": "p", "secrets": secret}}),
            (admin, "PATCH", f"/sources/{company.source}", {"json": {"secrets": {"token": secret}}}),
            (admin, "PUT", "/me/totp", {"json": {"code": secret[:10]}}),
        ]
        for who, method, path, options in requests:
            answer = who.request(method, path, **options)
            assert answer.status_code < 500
            said.append(answer.text + str(answer.headers))
        for path in ("/users", "/sources", "/audit?limit=500", "/keys", "/me", "/me/sessions", f"/sources/{company.source}"):
            said.append(admin.get(path).text)
        said += [client.get(path).text for path in ("/metrics", "/healthz")]
        shown = admin.get("/users").text
        assert "argon2" not in shown
        assert "hash" not in shown
    said += [path.read_text() for path in logged.iterdir()]
    assert any("refused" in text or "session" in text for text in said)
    assert not [text for text in said if PLANTED in text]
    everything = company.value(
        "SELECT string_agg(t::text, ' ') FROM (SELECT to_jsonb(a) - 'hash' - 'previous_hash' AS t FROM audit_log a) x"
    )
    assert PLANTED not in everything
    company.act("DELETE FROM sign_in_pauses")
    company.act("DELETE FROM users WHERE email = 'planted@example.org'")
