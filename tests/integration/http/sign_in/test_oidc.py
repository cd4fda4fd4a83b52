"""Signing in with OpenID Connect, against a provider process that can be wrong in every way."""

from __future__ import annotations

import socket
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import httpx2
import pytest

from archiver.access.login.oidc import local_path
from archiver.config import load_settings
from archiver.errors import ConfigError
from tests.integration.http.conftest import Client, Company, Served
from tests.support.waiting import DEADLINE_SECONDS

CLAIMS = {"sub": "s1", "email": "grace@example.org", "email_verified": True, "name": "Grace", "groups": ["staff"]}


@dataclass
class World:
    url: str
    provider: str
    company: Company

    def set(self, wrong: str = "", **claims: Any) -> None:
        httpx2.post(
            f"{self.provider}/set", json={"claims": {**CLAIMS, **claims}, "wrong": wrong}, timeout=DEADLINE_SECONDS
        ).raise_for_status()

    def client(self) -> Client:
        return Client(base_url=self.url, verify=False)

    def walk(self, client: Client, return_to: str | None = None) -> httpx2.Response:
        """To the provider and back, as a browser does; the last answer is ours."""
        there = client.get("/oidc/start", params={"return_to": return_to} if return_to else {})
        assert there.status_code == 302, there.text
        back = httpx2.get(there.headers["Location"], timeout=DEADLINE_SECONDS)
        return client.get(back.headers["Location"])


@pytest.fixture(scope="module")
def provider() -> Iterator[str]:
    process = subprocess.Popen(
        [sys.executable, "-m", "tests.integration.http.sign_in.provider"], stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    yield process.stdout.readline().strip()
    process.terminate()
    process.wait()
    process.stdout.close()


@pytest.fixture
def world(company: Company, variables: dict[str, str], provider: str) -> Iterator[World]:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    own = {
        "OIDC_ISSUER": provider,
        "OIDC_CLIENT_ID": "archiver",
        "OIDC_CLIENT_SECRET": "provider-secret",
        "OIDC_ROLES": "admins=administrator,auditors=auditor,staff=user",
        "ARCHIVER_URL": f"http://127.0.0.1:{port}",
    }
    with Served(load_settings({**variables, **own}, Path("none")), port) as served:
        made = World(served.url, provider, company)
        made.set()
        yield made
    company.act("DELETE FROM users WHERE oidc_subject IS NOT NULL OR email = 'grace@example.org'")


def test_a_new_user_comes_in_with_the_role_of_their_groups(world: World) -> None:
    with world.client() as client:
        answer = world.walk(client, "/search?q=x")
        assert (answer.status_code, answer.headers["Location"]) == (302, "/search?q=x")
        me = client.get("/me").json()
        assert (me["email"], me["name"], me["role"]) == ("grace@example.org", "Grace", "user")
    user = "SELECT {} FROM users WHERE email = 'grace@example.org'"
    assert world.company.value(user.format("address_verified_at IS NOT NULL AND password_hash IS NULL"))
    world.set(groups=["auditors", "staff"])
    with world.client() as client:
        world.walk(client)
        assert client.get("/me").json()["role"] == "auditor", "groups count anew at each sign-in"
    assert world.company.value("SELECT count(*) FROM users WHERE email = 'grace@example.org'") == 1
    assert (
        world.company.value("SELECT count(*) FROM audit_log WHERE actor = 'grace@example.org' AND action = 'session.started'")
        == 2
    )


def test_somebody_who_is_known_by_address_is_linked_once(world: World) -> None:
    world.company.add_user("grace@example.org")
    with world.client() as client:
        assert world.walk(client).status_code == 302
    world.set(sub="another-subject-with-the-same-address")
    with world.client() as client:
        assert world.walk(client).status_code == 403
    assert world.company.value("SELECT oidc_subject FROM users WHERE email = 'grace@example.org'").endswith("|s1")


@pytest.mark.parametrize("address", ["Grace@example.org", "grace@EXAMPLE.org", "grace@example.or\u212a"])
def test_an_address_links_only_if_it_is_the_very_same(world: World, address: str) -> None:
    world.company.add_user("grace@example.org")
    world.company.add_user("grace@example.ork")
    world.set(email=address)
    with world.client() as client:
        assert world.walk(client).status_code in (400, 403)
    assert world.company.value("SELECT count(*) FROM users WHERE oidc_subject IS NOT NULL") == 0
    world.company.act("DELETE FROM users WHERE email = 'grace@example.ork'")


@pytest.mark.parametrize("groups", [["staff"], []])
def test_losing_a_role_loses_the_right_to_read_everything(world: World, groups: list[str]) -> None:
    world.set(groups=["admins"])
    with world.client() as client, world.client() as again:
        world.walk(client)
        world.company.act("UPDATE users SET may_read_all = true WHERE email = 'grace@example.org'")
        assert client.get("/me").json()["may_read_all"] is True
        world.set(groups=groups)
        world.walk(again)
        assert client.get("/me").status_code == 401, "the session of the role before has ended"
    assert world.company.value("SELECT may_read_all FROM users WHERE email = 'grace@example.org'") is False
    told = "SELECT count(*) FROM audit_log WHERE action = 'user.read_all_revoked'"
    assert world.company.value(told + " AND detail->>'email' = 'grace@example.org'") >= 1


def test_a_sign_in_at_the_provider_does_not_claim_our_second_factor(world: World) -> None:
    world.company.add_user("grace@example.org")
    world.company.act("UPDATE users SET totp_confirmed_at = now() WHERE email = 'grace@example.org'")
    with world.client() as client:
        assert world.walk(client).status_code == 302
    last = "SELECT detail->>'second_factor' FROM audit_log WHERE action = 'session.started' ORDER BY id DESC LIMIT 1"
    assert world.company.value(last) == "false"


def test_an_account_without_a_password_confirms_by_having_just_signed_in(world: World) -> None:
    with world.client() as client:
        world.walk(client)
        client.headers["X-CSRF-Token"] = client.get("/me").json()["csrf_token"]
        assert client.post("/me/keys", json={"name": "k", "scopes": ["read"]}).status_code == 201
        world.company.act("UPDATE sessions SET created_at = now() - interval '1 hour'")
        late = client.post("/me/keys", json={"name": "k", "scopes": ["read"]})
        assert (late.status_code, late.json()["code"]) == (400, "confirmation_needed")


@pytest.mark.parametrize(
    ("claims", "status"),
    [
        ({"groups": []}, 403),
        ({"groups": "others"}, 403),
        ({"email_verified": False}, 403),
        ({"email_verified": "true"}, 403),
        ({"email": ""}, 403),
        ({"email": "not an address"}, 400),
    ],
)
def test_who_is_not_let_in(world: World, claims: dict[str, Any], status: int) -> None:
    world.set(**claims)
    with world.client() as client:
        answer = world.walk(client)
        assert answer.status_code == status, answer.text
        assert client.get("/me").status_code == 401
    assert world.company.value("SELECT count(*) FROM users WHERE oidc_subject IS NOT NULL") == 0


@pytest.mark.parametrize("wrong", ["issuer", "audience", "expired", "future", "nonce", "subject", "unsigned", "signature"])
def test_a_token_that_is_wrong_is_not_believed(world: World, wrong: str) -> None:
    world.set(wrong)
    with world.client() as client:
        answer = world.walk(client)
        assert (answer.status_code, answer.json()["code"]) == (401, "not_signed_in")
        assert client.get("/me").status_code == 401


def test_a_provider_that_calls_itself_otherwise_is_not_used(company: Company, world: World) -> None:
    world.set("discovery")
    with world.client() as client:
        assert client.get("/oidc/start").status_code == 503


def test_a_sign_in_works_once_and_only_where_it_was_begun(world: World) -> None:
    """Replay of the address, a stolen address in another browser, a forged state, no cookie, a code of another sign-in."""
    with world.client() as client, world.client() as thief:
        location = client.get("/oidc/start").headers["Location"]
        back = httpx2.get(location, timeout=DEADLINE_SECONDS).headers["Location"]
        cookie = client.cookies["archiver-oidc"]
        assert thief.get(back).status_code == 401, "without the cookie"
        thief.get("/oidc/start")
        assert thief.get(back).status_code == 401, "with the cookie of another sign-in"
        forged = back.replace(parse_qs(urlsplit(back).query)["state"][0], "x" * 43)
        assert client.get(forged).status_code == 401
        assert client.get(back).status_code == 302
        thief.cookies.set("archiver-oidc", cookie, path="/api/v1/oidc")
        assert thief.get(back).status_code == 401, "again, with everything that was sent"
        assert client.get("/oidc/callback").status_code == 401
        thief.cookies.set("archiver-oidc", "forged", path="/api/v1/oidc")
        assert thief.get(back).status_code == 401


def test_a_code_needs_its_verifier(world: World) -> None:
    """PKCE: a code that somebody else got to sign in with is worth nothing to another sign-in."""
    with world.client() as client, world.client() as mallory:
        mine = httpx2.get(client.get("/oidc/start").headers["Location"], timeout=DEADLINE_SECONDS).headers["Location"]
        theirs = httpx2.get(mallory.get("/oidc/start").headers["Location"], timeout=DEADLINE_SECONDS).headers["Location"]
        code, state = parse_qs(urlsplit(mine).query)["code"][0], parse_qs(urlsplit(theirs).query)["state"][0]
        assert mallory.get("/oidc/callback", params={"code": code, "state": state}).status_code == 401


@pytest.mark.parametrize(
    "target",
    [
        "https://evil.example",
        "//evil.example",
        "/\\evil.example",
        "\\\\evil.example",
        "javascript:alert(1)",
        "/a\r\nX: y",
        "/\t/evil",
        "evil",
    ],
)
def test_nobody_is_sent_elsewhere(world: World, target: str) -> None:
    assert local_path(target) == "/"
    with world.client() as client:
        assert world.walk(client, target).headers["Location"] == "/"


def test_settings_that_do_not_fit_together() -> None:
    given = {
        "OIDC_ISSUER": "https://id.example",
        "OIDC_CLIENT_ID": "x",
        "ARCHIVER_URL": "https://a.example",
        "OIDC_ROLES": "*=user",
    }
    assert load_settings(given, Path("none")).oidc_roles == (("*", "user"),)
    for change in ({"OIDC_ROLES": ""}, {"OIDC_CLIENT_ID": ""}, {"ARCHIVER_URL": ""}, {"OIDC_ISSUER": "http://id.example"}):
        with pytest.raises(ConfigError, match="OIDC_ISSUER"):
            load_settings({**given, **change}, Path("none"))
    with pytest.raises(ConfigError, match="OIDC_ROLES"):
        load_settings({**given, "OIDC_ROLES": "admins=king"}, Path("none"))
