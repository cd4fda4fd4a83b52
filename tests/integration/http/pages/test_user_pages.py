"""One user on a page: role, password, a second factor with a QR code, and what they can read, and why."""

from __future__ import annotations

import re

import pytest

from archiver.access.principal import Right
from archiver.access.scope import explain_scope, scope_of
from archiver.access.users import principal_of
from archiver.db.states import UserRole
from archiver.http.catalogue import Texts
from tests.integration.http.conftest import PASSWORD, Company

PEOPLE = ("alice", "bob", "carol", "nobody", "admin")


@pytest.mark.parametrize("name", PEOPLE)
def test_what_is_explained_is_what_can_be_read(company: Company, name: str) -> None:
    user = company.people[name]
    with company.engine.connect() as connection:
        explained, is_cut = explain_scope(connection, user.id, 100)
        scope = scope_of(connection, principal_of(connection, user.id))
    assert not is_cut
    assert {one.id for one in explained} == scope.mailboxes
    with company.client("admin") as client:
        html = client.get(f"{company.url}/settings/users/{user.id}").text
    reasons = {"alice": "their own address", "carol": "of the grant", "nobody": "No mailbox", "admin": "No mailbox"}
    assert reasons.get(name, "their own address") in html


def test_only_administrators_see_it(company: Company) -> None:
    for who in ("alice", "auditor"):
        with company.client(who) as client:
            assert client.get(f"{company.url}/settings/users/{company.people['bob'].id}").status_code == 403


def test_role_and_password(company: Company) -> None:
    user = company.add_user("dora@example.org")

    def post(do: str, **fields: str) -> int:
        with company.client("admin") as client:
            form = {"do": do, "id": str(user.id), "next": f"/settings/users/{user.id}", **fields}
            answer = client.post(f"{company.url}/settings/users", data=form)
        return int(answer.status_code)

    assert post("role", role="auditor") == 303
    assert company.value("SELECT role FROM users WHERE id = :i", i=user.id) == UserRole.AUDITOR
    assert post("role", role="emperor") == 400
    assert post("password", password="short") == 400
    assert post("password", password=PASSWORD) == 303
    with company.client() as client:
        signed_in = client.post("/session", json={"email": "dora@example.org", "password": PASSWORD})
        assert signed_in.status_code == 201
    assert post("role", role="user") == 303
    assert company.value("SELECT count(*) FROM sessions WHERE user_id = :i", i=user.id) == 0, "signed out everywhere"


def test_the_last_administrator_stays_one(company: Company) -> None:
    admin = company.people["admin"]
    with company.client("admin") as client:
        form = {"do": "role", "role": "user", "id": str(admin.id)}
        assert client.post(f"{company.url}/settings/users", data=form).status_code == 400
    assert company.value("SELECT role FROM users WHERE id = :i", i=admin.id) == UserRole.ADMINISTRATOR


def test_the_second_factor_has_a_qr_code_inside_of_the_page(company: Company) -> None:
    company.add_user("erin@example.org", password=PASSWORD)
    with company.client("erin") as client:
        html = client.post(f"{company.url}/settings/second-factor", data={"do": "begin", "password": PASSWORD}).text
    assert re.search(r'<p class="qr"><svg[^>]*>.*<path', html, re.DOTALL)
    assert "<script" not in html[html.index('class="qr"') : html.index("</svg>", html.index('class="qr"'))]


def test_every_right_has_a_name() -> None:
    for language in ("en", "de"):
        assert [right for right in Right if not Texts(language).has(f"right.{right.value}")] == []
