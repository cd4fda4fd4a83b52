"""The pages and the API of restores: forms, rights, what others may not see."""

from __future__ import annotations

import re
from typing import Any

from archiver.access.principal import KeyScope
from tests.integration.http.conftest import Company


def csrf_of(text: str) -> str:
    found = re.search(r'name="csrf" value="([^"]+)"', text)
    assert found is not None
    return found[1]


def post(client: Any, path: str, **fields: str) -> Any:
    page = client.get(f"{client.base_url}/restores")
    return client.post(f"{client.base_url}{path}", data={"csrf": csrf_of(page.text), **fields}, follow_redirects=False)


def test_from_the_selection_to_the_dry_run(company: Company) -> None:
    with company.client("admin") as admin:
        message = str(company.messages["alice"])
        page = post(admin, "/restores/select", **{f"id.{message}": "", "do": "restore", "q": "x"})
        assert page.status_code == 200
        assert message in page.text
        assert post(admin, "/restores/select", do="restore").status_code == 400
        created = post(admin, "/restores", ids=message, to="origins")
        assert created.status_code == 303
        shown = admin.get(f"{company.url}{created.headers['location']}")
        assert shown.status_code == 200
        listed = admin.get("/restores").json()["items"]
        assert listed[0]["selection"] == {"message_ids": [message]}
        assert post(admin, created.headers["location"], do="start").status_code == 409
        assert post(admin, created.headers["location"], do="cancel").status_code == 303


def test_a_wrong_form_says_why_and_never_repeats_the_password(company: Company) -> None:
    with company.client("admin") as admin:
        for fields in (
            {"to": "imap", "host": "", "user": "a", "password": "hunter2"},
            {"to": "imap", "host": "mail.example.org", "user": "a"},
            {"to": "mailbox", "destination": str(company.mailboxes["alice"]), "password": "hunter2"},
            {"to": "origins", "query": "from:(", "password": "hunter2"},
        ):
            refused = post(admin, "/restores", **fields)
            assert refused.status_code == 400, fields
            assert 'role="alert"' in refused.text
            assert "hunter2" not in refused.text


def test_a_user_needs_the_right_and_sees_only_their_own(company: Company) -> None:
    alice = company.people["alice"].id
    body = {"everything": True, "to_origins": True}
    with company.client("alice") as client, company.client("admin") as admin, company.client("bob") as bob:
        assert client.post("/restores", json=body).status_code == 403
        assert "/restores/select" not in client.get(f"{company.url}/?q=alice").text
        assert admin.patch(f"/users/{alice}", json={"may_restore": True}).json()["may_restore"] is True
        made = client.post("/restores", json=body)
        assert made.status_code == 202
        assert made.json()["destination_name"] == "origins"
        path = f"/restores/{made.json()['id']}"
        assert client.get(path).status_code == 200
        assert client.get(f"{path}/messages").json() == {"items": [], "next": None}
        assert client.get(f"{path}/messages", params={"cursor": "nonsense"}).status_code == 400
        assert admin.patch(f"/users/{company.people['bob'].id}", json={"may_restore": True}).status_code == 200
        assert bob.get(path).status_code == 404
        assert bob.post(f"{path}/start").status_code == 404
        assert bob.delete(path).status_code == 404
        other = {"everything": True, "to_mailbox_id": str(company.mailboxes["bob"])}
        assert client.post("/restores", json=other).status_code == 403
        imap = {"everything": True, "to_imap": {"host": "10.0.0.1", "user": "a"}, "password": "x"}
        assert client.post("/restores", json=imap).status_code == 403
        assert client.delete(path).status_code == 204
        for user in (alice, company.people["bob"].id):
            assert admin.patch(f"/users/{user}", json={"may_restore": False}).status_code == 200
        assert client.get("/restores").status_code == 403
        actions = [entry["action"] for entry in admin.get("/audit", params={"object_id": str(alice)}).json()["items"]]
        assert actions[:2] == ["user.restore_revoked", "user.restore_granted"]


def test_a_key_restores_only_with_its_scope(company: Company) -> None:
    for scope, status in ((KeyScope.ADMIN, 403), (KeyScope.RESTORE, 200)):
        with company.client() as client:
            client.headers["Authorization"] = f"Bearer {company.key('admin', scope)}"
            assert client.get("/restores").status_code == status
