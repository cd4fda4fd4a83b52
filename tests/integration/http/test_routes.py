"""Every route, every role, and mailboxes that are one's own, granted, or somebody else's.

The table is made from the router: a new route without a row here fails.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from fastapi.routing import APIRoute

from archiver.config import load_settings
from archiver.http.api.router import PARTS
from archiver.http.app import create_app
from tests.integration.http.conftest import Company

PEOPLE = ("anonymous", "nobody", "bob", "alice", "carol", "auditor", "admin")

# what a route answers to those who may use it and to those who may not; "mail" routes are asked for alice's message
OPEN, OIDC, ACCOUNT, ME, MAIL, MAILBOX, VIEW = "open", "oidc", "account", "me", "mail", "mailbox", "view"
ADMIN, AUDIT, INGEST, UPLOAD, EXPORT, SEARCH = "admin", "audit", "ingest", "upload", "export", "search"
MARK, LABEL = "mark", "label"
ROUTES: dict[tuple[str, str], str] = {
    ("GET", "/first-start"): OPEN,
    ("POST", "/first-start"): OPEN,
    ("POST", "/session"): OPEN,
    ("DELETE", "/session"): ACCOUNT,
    ("GET", "/oidc/start"): OIDC,
    ("GET", "/oidc/callback"): OIDC,
    ("GET", "/me"): ME,
    ("PUT", "/me/password"): ACCOUNT,
    ("GET", "/me/sessions"): ACCOUNT,
    ("DELETE", "/me/sessions/{session_id}"): ACCOUNT,
    ("POST", "/me/totp"): ACCOUNT,
    ("PUT", "/me/totp"): ACCOUNT,
    ("POST", "/me/totp/disable"): ACCOUNT,
    ("GET", "/me/keys"): ACCOUNT,
    ("POST", "/me/keys"): ACCOUNT,
    ("DELETE", "/me/keys/{key_id}"): ACCOUNT,
    ("GET", "/users"): ADMIN,
    ("POST", "/users"): ADMIN,
    ("GET", "/users/{user_id}"): ADMIN,
    ("PATCH", "/users/{user_id}"): ADMIN,
    ("DELETE", "/users/{user_id}"): ADMIN,
    ("PUT", "/users/{user_id}/password"): ADMIN,
    ("GET", "/users/{user_id}/grants"): ADMIN,
    ("POST", "/users/{user_id}/grants"): ADMIN,
    ("DELETE", "/users/{user_id}/grants/{grant_id}"): ADMIN,
    ("GET", "/keys"): ADMIN,
    ("DELETE", "/keys/{key_id}"): ADMIN,
    ("GET", "/audit"): AUDIT,
    ("GET", "/audit/export"): AUDIT,
    ("GET", "/audit/verify"): AUDIT,
    ("GET", "/retention-labels"): MAILBOX,
    ("PUT", "/retention-labels/{name}"): ADMIN,
    ("DELETE", "/retention-labels/{name}"): ADMIN,
    ("POST", "/retention-labels/{name}/messages"): LABEL,
    ("POST", "/retention-labels/{name}/removal"): LABEL,
    ("GET", "/messages/{message_id}/retention"): MAIL,
    ("GET", "/holds"): AUDIT,
    ("POST", "/holds"): ADMIN,
    ("GET", "/holds/{hold_id}"): AUDIT,
    ("POST", "/holds/{hold_id}/messages"): ADMIN,
    ("GET", "/holds/{hold_id}/notices"): AUDIT,
    ("POST", "/holds/{hold_id}/notices"): ADMIN,
    ("POST", "/holds/{hold_id}/release"): ADMIN,
    ("DELETE", "/holds/{hold_id}/release"): ADMIN,
    ("GET", "/erasures"): AUDIT,
    ("POST", "/erasures"): ADMIN,
    ("GET", "/erasures/{erasure_id}"): AUDIT,
    ("GET", "/erasures/{erasure_id}/messages"): AUDIT,
    ("POST", "/erasures/{erasure_id}/search"): ADMIN,
    ("POST", "/erasures/{erasure_id}/review"): ADMIN,
    ("POST", "/erasures/{erasure_id}/approve"): ADMIN,
    ("POST", "/erasures/{erasure_id}/reject"): ADMIN,
    ("GET", "/erasures/{erasure_id}/receipt"): AUDIT,
    ("GET", "/erasures/{erasure_id}/list"): AUDIT,
    ("GET", "/policies"): AUDIT,
    ("POST", "/policies"): ADMIN,
    ("POST", "/policies/{policy_id}/versions"): ADMIN,
    ("POST", "/policies/{policy_id}/retire"): ADMIN,
    ("POST", "/policies/versions/{version_id}/simulation"): ADMIN,
    ("GET", "/policies/versions/{version_id}/simulation"): AUDIT,
    ("GET", "/policies/versions/{version_id}/simulation.csv"): AUDIT,
    ("POST", "/policies/versions/{version_id}/approve"): ADMIN,
    ("POST", "/policies/versions/{version_id}/reject"): ADMIN,
    ("GET", "/retention-runs"): AUDIT,
    ("GET", "/retention-runs/{run_id}"): AUDIT,
    ("GET", "/retention-runs/{run_id}/list"): AUDIT,
    ("GET", "/alerts"): VIEW,
    ("GET", "/alerts/channels"): ADMIN,
    ("POST", "/alerts/channels"): ADMIN,
    ("DELETE", "/alerts/channels/{channel_id}"): ADMIN,
    ("POST", "/alerts/channels/{channel_id}/test"): ADMIN,
    ("POST", "/alerts/confirm-keys"): ADMIN,
    ("GET", "/alerts/rules"): VIEW,
    ("PUT", "/alerts/rules/{name}"): ADMIN,
    ("POST", "/alerts/{alert_id}/acknowledge"): ADMIN,
    ("GET", "/operator/queues/{queue}"): ADMIN,
    ("POST", "/operator/queues/{queue}/drain"): ADMIN,
    ("POST", "/operator/queues/{queue}/pause"): ADMIN,
    ("POST", "/operator/queues/{queue}/requeue"): ADMIN,
    ("POST", "/operator/queues/{queue}/resume"): ADMIN,
    ("POST", "/operator/replay"): ADMIN,
    ("POST", "/operator/schedules/{name}/run"): ADMIN,
    ("GET", "/source-kinds"): VIEW,
    ("GET", "/sources"): VIEW,
    ("POST", "/sources"): ADMIN,
    ("GET", "/sources/{source_id}"): VIEW,
    ("PATCH", "/sources/{source_id}"): ADMIN,
    ("DELETE", "/sources/{source_id}"): ADMIN,
    ("POST", "/sources/{source_id}/check"): ADMIN,
    ("POST", "/sources/{source_id}/sync"): ADMIN,
    ("POST", "/sources/{source_id}/pause"): ADMIN,
    ("POST", "/sources/{source_id}/resume"): ADMIN,
    ("GET", "/sources/{source_id}/mailboxes"): VIEW,
    ("GET", "/sources/{source_id}/runs"): VIEW,
    ("GET", "/status"): VIEW,
    ("GET", "/queues"): VIEW,
    ("GET", "/index"): VIEW,
    ("POST", "/index/reindex"): ADMIN,
    ("GET", "/progress"): VIEW,
    ("GET", "/runs/running"): VIEW,
    ("GET", "/dead-letters"): VIEW,
    ("GET", "/dead-letters/{letter_id}"): VIEW,
    ("POST", "/dead-letters/{letter_id}/retry"): ADMIN,
    ("POST", "/dead-letters/{letter_id}/discard"): ADMIN,
    ("GET", "/mailboxes"): MAILBOX,
    ("GET", "/messages"): MAILBOX,
    ("POST", "/messages"): INGEST,
    ("GET", "/messages/{message_id}"): MAIL,
    ("GET", "/messages/{message_id}/raw"): MAIL,
    ("GET", "/messages/{message_id}/attachments/{number}"): MAIL,
    ("GET", "/messages/{message_id}/thread"): MAIL,
    ("GET", "/messages/{message_id}/copies"): MAIL,
    ("POST", "/messages/{message_id}/split"): ADMIN,
    ("DELETE", "/messages/{message_id}/split"): ADMIN,
    ("GET", "/messages/{message_id}/notes"): MAIL,
    ("POST", "/messages/{message_id}/notes"): MARK,
    ("PUT", "/messages/{message_id}/notes/{note_id}"): MARK,
    ("DELETE", "/messages/{message_id}/notes/{note_id}"): MARK,
    ("GET", "/tags"): MAILBOX,
    ("DELETE", "/tags/{tag_id}"): MARK,
    ("POST", "/changes"): MARK,
    ("GET", "/changes/{change_id}"): MARK,
    ("POST", "/changes/{change_id}/undo"): MARK,
    ("GET", "/search"): SEARCH,
    ("GET", "/facets"): SEARCH,
    ("GET", "/suggestions"): MAILBOX,
    ("GET", "/uploads"): UPLOAD,
    ("POST", "/uploads"): UPLOAD,
    ("GET", "/uploads/{upload_id}"): UPLOAD,
    ("PATCH", "/uploads/{upload_id}"): UPLOAD,
    ("POST", "/uploads/{upload_id}/complete"): UPLOAD,
    ("POST", "/uploads/{upload_id}/import"): UPLOAD,
    ("DELETE", "/uploads/{upload_id}"): UPLOAD,
    ("GET", "/imports"): UPLOAD,
    ("GET", "/imports/{import_id}"): UPLOAD,
    ("DELETE", "/imports/{import_id}"): UPLOAD,
    ("GET", "/exports"): EXPORT,
    ("POST", "/exports"): EXPORT,
    ("GET", "/exports/{export_id}"): EXPORT,
    ("GET", "/exports/{export_id}/file"): EXPORT,
    ("GET", "/exports/{export_id}/files/{name}"): EXPORT,
    ("DELETE", "/exports/{export_id}"): EXPORT,
    ("GET", "/cleanups"): ADMIN,
    ("POST", "/cleanups"): ADMIN,
    ("GET", "/cleanups/{cleanup_id}"): ADMIN,
    ("DELETE", "/cleanups/{cleanup_id}"): ADMIN,
    ("POST", "/cleanups/{cleanup_id}/start"): ADMIN,
    ("GET", "/cleanups/{cleanup_id}/messages"): ADMIN,
    ("GET", "/restores"): ADMIN,
    ("POST", "/restores"): ADMIN,
    ("GET", "/restores/{restore_id}"): ADMIN,
    ("DELETE", "/restores/{restore_id}"): ADMIN,
    ("POST", "/restores/{restore_id}/start"): ADMIN,
    ("GET", "/restores/{restore_id}/messages"): ADMIN,
}

# the status with which each kind refuses; None: it lets them in (and may still say 404 or 422 for what was asked)
_USER = {"anonymous": 401, "nobody": 403, "bob": 403, "alice": 403, "carol": 403}
REFUSED: dict[str, dict[str, int]] = {
    OPEN: {},
    OIDC: dict.fromkeys(PEOPLE, 400),  # not set up here
    ACCOUNT: {"anonymous": 401},
    ME: {"anonymous": 401},
    MAIL: {"anonymous": 401, "nobody": 404, "bob": 404, "admin": 404},
    MAILBOX: {"anonymous": 401},
    INGEST: {"anonymous": 401, "nobody": 404, "bob": 404, "auditor": 403, "carol": 403},
    UPLOAD: {"anonymous": 401, "auditor": 403},
    SEARCH: {"anonymous": 401},
    EXPORT: {"anonymous": 401},
    MARK: {"anonymous": 401},
    LABEL: {"anonymous": 401, "auditor": 403},
    VIEW: _USER,
    AUDIT: _USER,
    ADMIN: {**_USER, "auditor": 403},
}


def routes() -> list[tuple[str, str]]:
    """As the application publishes them; a route that hid from the document would be found by the second look."""
    app = create_app(load_settings({}, Path("none")))
    published = [(method.upper(), path) for path, ways in app.openapi()["paths"].items() for method in ways]
    parts = [route for part in PARTS for route in part.router.routes if isinstance(route, APIRoute)]
    assert len(parts) == sum(path.startswith("/api/v1/") for _, path in published) > 40
    return [(method, path.removeprefix("/api/v1")) for method, path in published if path.startswith("/api/v1/")]


def test_every_route_has_a_row() -> None:
    assert set(routes()) == set(ROUTES)


NOWHERE = "01900000-0000-7000-8000-000000000000"


def ask(company: Company, who: str, method: str, path: str) -> Any:
    """With a body that is wrong, so that nothing changes: who may not use the route must not even learn that."""
    client = company.client(None if who == "anonymous" else who)
    filled = path.replace("{message_id}", str(company.messages["alice"])).replace("{number}", "0")
    for name in (
        "user_id",
        "session_id",
        "key_id",
        "grant_id",
        "source_id",
        "letter_id",
        "upload_id",
        "export_id",
        "restore_id",
        "cleanup_id",
        "hold_id",
        "erasure_id",
        "policy_id",
        "version_id",
        "run_id",
        "note_id",
        "tag_id",
        "change_id",
    ):
        filled = filled.replace(f"{{{name}}}", NOWHERE)
    options: dict[str, Any] = {}
    if method in ("POST", "PUT", "PATCH"):
        options = {"json": {"no_such_field": 1}}
    if (method, path) == ("POST", "/messages"):
        options = {"content": company.raw["alice"], "params": {"mailbox": "alice@example.org"}}
    if path == "/suggestions":
        options = {"params": {"prefix": "alice"}}
    if path == "/facets":
        options = {"params": {"facet": "year"}}
    if path == "/progress":
        options = {"params": {"once": True}}
    if (method, path) == ("DELETE", "/session"):
        options = {"headers": {"X-CSRF-Token": "wrong"}}
    with client:
        return client.request(method, filled, **options)


@pytest.mark.parametrize(("method", "path"), sorted(ROUTES))
def test_who_may_use_it(company: Company, method: str, path: str) -> None:
    refused = REFUSED[ROUTES[method, path]]
    for who in PEOPLE:
        answer = ask(company, who, method, path)
        if (method, path) == ("DELETE", "/session") and who != "anonymous":
            assert answer.json()["code"] == "csrf"
        elif who in refused:
            assert answer.status_code == refused[who], (who, answer.text)
            assert answer.headers["Content-Type"] == "application/problem+json"
        else:
            assert answer.status_code not in (401, 403), (who, answer.text)
            assert answer.status_code < 500, (who, answer.text)
            if ROUTES[method, path] in (MAIL, MAILBOX, INGEST):
                assert answer.status_code in (200, 201), (who, answer.text)


SEES = {"nobody": set(), "bob": {"bob", "both"}, "alice": {"alice", "both"}, "carol": {"alice", "both"}, "admin": set()}


@pytest.mark.parametrize("who", ["nobody", "bob", "alice", "carol", "admin", "auditor"])
def test_lists_show_what_one_may_see(company: Company, who: str) -> None:
    expected = {company.messages[name] for name in SEES.get(who, set(company.messages))}
    with company.client(who) as client:
        shown = client.get("/messages").json()["items"]
        assert {item["id"] for item in shown} == {str(one) for one in expected}
        boxes = {item["address"].partition("@")[0] for item in client.get("/mailboxes").json()["items"]}
        assert boxes == ({"alice", "bob"} if who == "auditor" else {name for name in ("alice", "bob") if name in SEES[who]})


def test_a_message_of_two_mailboxes_shows_each_only_their_own_place(company: Company) -> None:
    for who, other in (("alice", "bob"), ("bob", "alice"), ("carol", "bob")):
        with company.client(who) as client:
            for path in ("", "/copies", "/thread"):
                answer = client.get(f"/messages/{company.messages['both']}{path}")
                assert answer.status_code == 200
                assert f"{other}s-" not in answer.text
                assert str(company.mailboxes[other]) not in answer.text
            thread = client.get(f"/messages/{company.messages['both']}/thread").json()["items"]
            assert str(company.messages[other]) not in {item["id"] for item in thread}


def test_what_one_may_not_see_looks_like_what_is_not_there(company: Company) -> None:
    """Word for word, but for the ids."""
    with company.client("bob") as client:
        for path in ("", "/raw", "/copies", "/thread", "/attachments/0"):
            hidden = client.get(f"/messages/{company.messages['alice']}{path}")
            absent = client.get(f"/messages/{NOWHERE}{path}")
            assert hidden.status_code == absent.status_code == 404
            texts = [
                answer.text.replace(str(message), "ID").replace(answer.headers["X-Request-Id"], "R")
                for answer, message in ((hidden, company.messages["alice"]), (absent, NOWHERE))
            ]
            assert texts[0] == texts[1]
        narrowed = client.get("/messages", params={"mailbox_id": str(company.mailboxes["alice"])})
        assert narrowed.json() == {"items": [], "next": None}
        folder = client.get("/messages", params={"folder": "alices-secret-folder"})
        assert folder.json()["items"] == []


def test_an_administrator_gets_sums_and_no_names_of_folders(company: Company) -> None:
    with company.client("admin") as client:
        answer = client.get(f"/sources/{company.source}/mailboxes")
    assert "secret-folder" not in answer.text
    boxes = answer.json()["items"]
    assert [len(box["folders"]) for box in boxes] == [1, 1]
    assert all(box["folders"][0]["archived"] >= 2 for box in boxes)


def test_reading_all_is_a_right_of_its_own_and_on_record(company: Company) -> None:
    company.add_user("boss@example.org")
    boss = company.people["boss"].id
    path = f"/messages/{company.messages['bob']}/raw"
    with company.client("boss") as client, company.client("admin") as admin:
        assert client.get(path).status_code == 404
        assert admin.patch(f"/users/{boss}", json={"may_read_all": True}).json()["may_read_all"] is True
        assert client.get(path).content == company.raw["bob"]
        assert admin.patch(f"/users/{boss}", json={"may_read_all": False}).status_code == 200
        assert client.get(path).status_code == 404
        actions = [entry["action"] for entry in admin.get("/audit", params={"object_id": str(boss)}).json()["items"]]
        assert actions[:2] == ["user.read_all_revoked", "user.read_all_granted"]


@pytest.mark.parametrize(
    ("target", "sees"),
    [
        ({"pattern": "*@example.org"}, {"alice", "bob", "both"}),
        ({"pattern": "b*@example.org"}, {"bob", "both"}),
        ({"pattern": "%@example.org"}, set()),
        ({"pattern": "_ob@example.org"}, set()),
        ({"pattern": "\\*@example.org"}, set()),
        ({"mailbox": "ALICE@example.org"}, {"alice", "both"}),
        ({"source": "work"}, {"alice", "bob", "both"}),
    ],
)
def test_grants(company: Company, target: dict[str, str], sees: set[str]) -> None:
    name = f"u{abs(hash(str(target))) % 10**9}"
    company.add_user(f"{name}@example.com")
    user = company.people[name].id
    with company.client(name) as client, company.client("admin") as admin:
        assert client.get("/messages").json()["items"] == []
        granted = admin.post(f"/users/{user}/grants", json=target)
        assert granted.status_code == 201
        assert admin.post(f"/users/{user}/grants", json=target).json() == granted.json()
        shown = {item["id"] for item in client.get("/messages").json()["items"]}
        assert shown == {str(company.messages[one]) for one in sees}
        grant = granted.json()["items"][0]["id"]
        assert admin.delete(f"/users/{user}/grants/{grant}").status_code == 204
        assert client.get("/messages").json()["items"] == []


def test_an_address_counts_only_when_it_is_verified(company: Company) -> None:
    company.add_user("mallory@Example.ORG")
    mallory = company.people["mallory"].id
    company.act(
        "INSERT INTO mailboxes (id, source_id, address) VALUES (gen_random_uuid(), :s, 'Mallory@example.org')", s=company.source
    )
    with company.client("mallory") as client, company.client("admin") as admin:
        assert len(client.get("/mailboxes").json()["items"]) == 1
        assert admin.patch(f"/users/{mallory}", json={"address_verified": False}).status_code == 200
        assert client.get("/mailboxes").json()["items"] == []
    company.act("DELETE FROM mailboxes WHERE address = 'Mallory@example.org'")
