"""The first start: who may create the administrator, and how often."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

from archiver.access.login import first_start
from archiver.db.states import UserRole
from tests.integration.http.conftest import PASSWORD, Company
from tests.integration.http.sign_in.conftest import sign_in


def test_first_start(variables: dict[str, str], empty_company: Company) -> None:
    company = empty_company
    token = first_start.new_token(company.settings)
    given = {"token": token, "email": "first@example.org", "password": PASSWORD, "purpose": "own_mail"}
    with company.client() as client:
        assert client.get("/first-start").json() == {"needed": True}
        for path in ("/messages", "/users", "/sources", "/me", "/audit", "/mailboxes", "/status"):
            assert client.get(path).status_code == 401
        assert sign_in(client, "first@example.org") == 401
        assert client.post("/first-start", json={**given, "token": "x" * 24}).status_code == 401
        assert client.post("/first-start", json={**given, "token": ""}).status_code == 401
        assert client.post("/first-start", json={**given, "role": "administrator"}).status_code == 422
        assert client.post("/first-start", json={**given, "password": "short"}).status_code == 400

        def make(number: int) -> int:
            with company.client() as other:
                return other.post("/first-start", json={**given, "email": f"first{number}@example.org"}).status_code

        with ThreadPoolExecutor(6) as pool:
            statuses = sorted(pool.map(make, range(6)))
        assert statuses[0] == 201
        assert all(status in (401, 409) for status in statuses[1:]), statuses
        assert company.value("SELECT count(*) FROM users") == 1
        assert client.get("/first-start").json() == {"needed": False}
        assert client.post("/first-start", json=given).status_code == 401, "the token is used up"
    new = first_start.new_token(company.settings)
    with company.client() as client:
        assert client.post("/first-start", json={**given, "token": new}).status_code == 409
    email = company.value("SELECT email FROM users")
    with company.client() as client:
        assert sign_in(client, email) == 201
        me = client.get("/me").json()
        assert (me["role"], me["own_mail"], me["may_read_all"]) == (UserRole.ADMINISTRATOR, True, False)


def test_ones_own_mail_is_granted_when_a_source_is_added(empty_company: Company) -> None:
    company = empty_company
    for name, own in (("own", True), ("company", False)):
        company.add_user(f"{name}@example.org", UserRole.ADMINISTRATOR, settings={"own_mail": own})
        with company.client(name) as client:
            source = {"kind": "fake", "name": f"of {name}", "settings": {"mailboxes": 1}}
            added = client.post("/sources", json=source)
            assert added.status_code == 201, added.text
            user = client.get("/me").json()["id"]
            granted = client.get(f"/users/{user}/grants").json()["items"]
            assert [grant["source_id"] for grant in granted] == ([added.json()["id"]] if own else [])
    assert company.value("SELECT count(*) FROM audit_log WHERE action = 'grant.added'") == 1
