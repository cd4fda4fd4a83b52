"""The door: first start, sign-in, pauses, sessions, second factor, CSRF; and those who try to get around it."""

from __future__ import annotations

import statistics
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from archiver.access.users import User
from archiver.config import load_settings
from tests.integration.http.conftest import PASSWORD, Client, Company, Served
from tests.integration.http.sign_in.conftest import sign_in


def test_signing_in_and_out(company: Company, dora: User) -> None:
    with company.client() as client:
        assert client.get("/me").status_code == 401
        answer = client.post("/session", json={"email": dora.email.upper(), "password": PASSWORD})
        assert answer.status_code == 201
        cookie = answer.headers["Set-Cookie"]
        assert "HttpOnly" in cookie
        assert "SameSite=lax" in cookie
        assert "Secure" not in cookie
        assert PASSWORD not in answer.text
        assert answer.json()["csrf_token"] == client.get("/me").json()["csrf_token"]
        token = client.cookies["archiver"]
        client.headers["X-CSRF-Token"] = answer.json()["csrf_token"]
        assert client.delete("/session").status_code == 204
        client.cookies.set("archiver", token)
        assert client.get("/me").status_code == 401, "the token is worth nothing any more"
    assert company.value("SELECT count(*) FROM audit_log WHERE actor = :a AND action LIKE 'session.%'", a=dora.email) == 2


def test_with_https_the_cookie_is_secure_and_bound_to_the_host(company: Company, variables: dict[str, str], dora: User) -> None:
    settings = load_settings({**variables, "ARCHIVER_URL": "https://mail.example.org"}, Path("none"))
    with Served(settings) as served, Client(base_url=served.url) as client:
        answer = client.post("/session", json={"email": dora.email, "password": PASSWORD})
    assert answer.headers["Set-Cookie"].startswith("__Host-archiver=")
    assert "Secure" in answer.headers["Set-Cookie"]
    assert "Strict-Transport-Security" in answer.headers


def test_wrong_things_look_alike(company: Company, dora: User) -> None:
    off = company.add_user("off@example.org", password=PASSWORD)
    company.act("UPDATE users SET disabled_at = now() WHERE id = :i", i=off.id)
    company.add_user("sso@example.org")
    with company.client() as client:
        answers = [
            client.post("/session", json={"email": email, "password": password})
            for email, password in (
                (dora.email, "wrong password"),
                ("no-such-user@example.org", PASSWORD),
                ("not an address", PASSWORD),
                (off.email, PASSWORD),
                ("sso@example.org", PASSWORD),
                (f"{dora.email}\0", PASSWORD),
            )
        ]
    assert {answer.status_code for answer in answers} == {401}
    assert len({answer.text.replace(answer.headers["X-Request-Id"], "") for answer in answers}) == 1


def test_an_unknown_account_takes_as_long(company: Company, dora: User) -> None:
    """Not a stopwatch: the work is the same, so the medians lie close together; without it one is 50 times the other."""

    def seconds(email: str) -> float:
        company.act("DELETE FROM sign_in_pauses")
        started = time.process_time()
        with company.client() as client:
            client.post("/session", json={"email": email, "password": "wrong password"})
        return time.process_time() - started

    known, unknown = zip(*((seconds(dora.email), seconds("nobody-there@example.org")) for _ in range(7)), strict=True)
    assert 1 / 3 < statistics.median(known) / statistics.median(unknown) < 3


def pause(company: Company, kind: str) -> float:
    """How long the next try has to wait after the last one."""
    statement = "SELECT extract(epoch FROM blocked_until - last_failed_at) FROM sign_in_pauses WHERE key LIKE :kind || ':%'"
    return float(company.value(statement, kind=kind))


@pytest.mark.parametrize("exists", [True, False])
def test_pauses_grow_whether_or_not_there_is_such_an_account(company: Company, dora: User, exists: bool) -> None:
    email = dora.email if exists else "ghost@example.org"
    pauses = []
    with company.client() as client:
        for _ in range(13):
            company.act("UPDATE sign_in_pauses SET blocked_until = now()")
            assert sign_in(client, email, "wrong password") == 401
            pauses.append(pause(company, "account"))
        assert pauses == [0, 0, 0, 0, 0, 1, 2, 4, 8, 16, 32, 60, 60]
        company.act("UPDATE sign_in_pauses SET blocked_until = now() + interval '1 hour' WHERE key LIKE 'account:%'")
        answer = client.post("/session", json={"email": email, "password": PASSWORD})
        assert (answer.status_code, answer.json()["code"]) == (429, "too_many"), "the right password does not help"
        assert 3500 < int(answer.headers["Retry-After"]) <= 3600


def test_a_good_sign_in_ends_the_pauses_of_the_account(company: Company, dora: User) -> None:
    with company.client() as client:
        for _ in range(5):
            assert sign_in(client, dora.email, "wrong password") == 401
        assert sign_in(client, dora.email) == 201
        assert sign_in(client, dora.email, "wrong password") == 401


def test_many_guesses_at_once_are_not_many_free_ones(company: Company, dora: User) -> None:
    def guess(number: int) -> int:
        with company.client() as client:
            return sign_in(client, dora.email, f"guess number {number}")

    guess(0)
    company.act("UPDATE sign_in_pauses SET failures = 15 WHERE key LIKE 'account:%'")
    with ThreadPoolExecutor(12) as pool:
        statuses = list(pool.map(guess, range(12)))
    assert sorted(statuses) == [401] + [429] * 11


def test_one_address_cannot_try_all_accounts(company: Company) -> None:
    with company.client() as client:
        statuses = [sign_in(client, f"person{number}@example.org", "Password1!") for number in range(21)]
        assert set(statuses) == {401}
        assert pause(company, "address") == 1
        company.act("UPDATE sign_in_pauses SET failures = 900, blocked_until = now() WHERE key LIKE 'address:%'")
        assert sign_in(client, "one-more@example.org", "Password1!") == 401
        assert pause(company, "address") == 900
        assert sign_in(client, "and-another@example.org", "Password1!") == 429


def test_the_address_is_believed_from_trusted_proxies_only(company: Company, variables: dict[str, str], dora: User) -> None:
    forged = {"X-Forwarded-For": "203.0.113.9"}
    with company.client() as client:
        client.post("/session", json={"email": dora.email, "password": PASSWORD}, headers=forged)
    assert company.value("SELECT client_address FROM sessions WHERE user_id = :u", u=dora.id) == "127.0.0.1"
    company.act("DELETE FROM sessions WHERE user_id = :u", u=dora.id)
    settings = load_settings({**variables, "TRUSTED_PROXIES": "127.0.0.0/8"}, Path("none"))
    with Served(settings) as served, Client(base_url=served.url) as client:
        forged = {"X-Forwarded-For": "198.51.100.1, 203.0.113.9"}
        client.post("/session", json={"email": dora.email, "password": PASSWORD}, headers=forged)
    assert company.value("SELECT client_address FROM sessions WHERE user_id = :u", u=dora.id) == "203.0.113.9"


# --- sessions


def test_a_session_that_somebody_chose_is_not_taken_over(company: Company, dora: User) -> None:
    """Fixation: a token that was there before the sign-in is replaced, and one that was good ends."""
    with company.client() as client:
        client.cookies.set("archiver", "chosen-by-mallory")
        assert sign_in(client, dora.email) == 201
        first = client.cookies.get("archiver", domain="127.0.0.1")
        assert first != "chosen-by-mallory"
    with company.client() as client:
        client.cookies.set("archiver", first or "")
        assert client.get("/me").status_code == 200
        assert sign_in(client, dora.email) == 201
    with company.client() as client:
        client.cookies.set("archiver", first or "")
        assert client.get("/me").status_code == 401


def test_sessions_are_listed_and_can_be_ended(company: Company, dora: User) -> None:
    name = dora.email.partition("@")[0]
    with company.client(name) as mine, company.client(name) as stolen, company.client("bob") as bob:
        listed = mine.get("/me/sessions").json()["items"]
        assert len(listed) == 2
        assert "token" not in str(listed)
        ended = listed[0]["id"]
        assert bob.delete(f"/me/sessions/{ended}").status_code == 404, "somebody else's does not exist"
        assert mine.delete(f"/me/sessions/{ended}").status_code == 204
        assert stolen.get("/me").status_code == 401
        assert mine.get("/me").status_code == 200


@pytest.mark.parametrize(
    "change", ["expires_at = now()", "last_seen_at = now() - interval '721 minutes'"], ids=["absolute", "idle"]
)
def test_sessions_end_by_themselves(company: Company, dora: User, change: str) -> None:
    with company.client(dora.email.partition("@")[0]) as client:
        assert client.get("/me").status_code == 200
        company.act(f"UPDATE sessions SET {change} WHERE user_id = :u", u=dora.id)
        assert client.get("/me").status_code == 401
        assert client.get("/messages").status_code == 401


def test_use_keeps_a_session_alive(company: Company, dora: User) -> None:
    with company.client(dora.email.partition("@")[0]) as client:
        company.act("UPDATE sessions SET last_seen_at = now() - interval '700 minutes' WHERE user_id = :u", u=dora.id)
        assert client.get("/me").status_code == 200
    assert company.value("SELECT last_seen_at > now() - interval '1 minute' FROM sessions WHERE user_id = :u", u=dora.id)


def test_the_database_does_not_hold_tokens(company: Company, dora: User) -> None:
    with company.client(dora.email.partition("@")[0]) as client:
        token = client.cookies["archiver"]
    stored = company.value("SELECT encode(token_hash, 'hex') FROM sessions WHERE user_id = :u", u=dora.id)
    assert token not in stored
    with company.client() as client:
        client.cookies.set("archiver", stored)
        assert client.get("/me").status_code == 401


def test_a_new_password_or_role_or_a_lock_ends_the_others(company: Company, dora: User) -> None:
    name = dora.email.partition("@")[0]
    with company.client(name) as mine, company.client(name) as other, company.client("admin") as admin:
        change = {"password": "wrong password", "new_password": "another long password"}
        assert mine.put("/me/password", json=change).status_code == 401
        assert mine.put("/me/password", json={**change, "password": PASSWORD, "new_password": "short"}).status_code == 400
        assert mine.put("/me/password", json={**change, "password": PASSWORD}).status_code == 204
        assert (mine.get("/me").status_code, other.get("/me").status_code) == (200, 401)
        assert admin.patch(f"/users/{dora.id}", json={"disabled": True}).status_code == 200
        assert mine.get("/me").status_code == 401


# --- CSRF


def test_a_change_needs_the_token_of_this_very_session(company: Company, dora: User) -> None:
    name = dora.email.partition("@")[0]
    with company.client(name) as client, company.client("bob") as bob:
        good = client.headers.pop("X-CSRF-Token")
        body = {"name": "k", "scopes": ["read"], "password": PASSWORD}
        for headers in ({}, {"X-CSRF-Token": ""}, {"X-CSRF-Token": "x" * 43}, {"X-CSRF-Token": bob.headers["X-CSRF-Token"]}):
            answer = client.post("/me/keys", json=body, headers=headers)
            assert (answer.status_code, answer.json()["code"]) == (403, "csrf"), headers
        assert client.post("/me/keys", json=body, headers={"X-CSRF-Token": good}).status_code == 201


@pytest.mark.parametrize(
    "headers",
    [{"Origin": "https://evil.example"}, {"Sec-Fetch-Site": "cross-site"}, {"Sec-Fetch-Site": "same-site"}, {"Origin": "null"}],
)
def test_no_other_site_can_act_or_sign_somebody_in(company: Company, dora: User, headers: dict[str, str]) -> None:
    with company.client() as client:
        answer = client.post("/session", json={"email": dora.email, "password": PASSWORD}, headers=headers)
        assert (answer.status_code, answer.json()["code"]) == (403, "csrf")
        assert "Set-Cookie" not in answer.headers
    with company.client(dora.email.partition("@")[0]) as client:
        assert client.post("/me/keys", json={"name": "k", "scopes": ["read"]}, headers=headers).json()["code"] == "csrf"


def test_a_form_of_another_site_is_no_request(company: Company, dora: User) -> None:
    with company.client() as client:
        answer = client.post("/session", data={"email": dora.email, "password": PASSWORD})
        assert answer.status_code == 422
        as_text = client.post(
            "/session", content=f'{{"email": "{dora.email}", "password": "{PASSWORD}"}}', headers={"Content-Type": "text/plain"}
        )
        assert as_text.status_code == 422
