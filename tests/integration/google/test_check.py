"""`check` names the one step of the setup that is missing; users are listed with all their pages and rules."""

from __future__ import annotations

import json
from typing import Any

import pytest

from connectors.errors import AuthFailed
from connectors.google import WorkspaceConnector, WorkspaceSecrets, WorkspaceSettings
from tests.contract.subject import QuietContext
from tests.integration.google.conftest import ALICE, BOB, Open
from tests.support.google_server import GoogleServer
from tests.support.google_world import CLIENT_ID

SCOPE = "https://www.googleapis.com/auth/"


def test_everything_is_right(connect: Open) -> None:
    connect().check()


def test_nothing_is_delegated(server: GoogleServer, connect: Open) -> None:
    server.tell(world={"scopes": []})
    with pytest.raises(AuthFailed, match=rf"client ID {CLIENT_ID} needs the scope {SCOPE}admin.directory.user.readonly"):
        connect().check()


def test_only_one_scope_is_delegated(server: GoogleServer, connect: Open) -> None:
    server.tell(world={"scopes": [f"{SCOPE}admin.directory.user.readonly"]})
    with pytest.raises(AuthFailed, match=rf"domain-wide delegation is missing.*needs the scope {SCOPE}gmail.readonly \("):
        connect().check()


@pytest.mark.parametrize(("kind", "name"), [("users", "Admin SDK API"), ("profile", "Gmail API")])
def test_an_api_is_not_enabled(server: GoogleServer, connect: Open, kind: str, name: str) -> None:
    said = f"{name} has not been used in project 4711 before or it is disabled. Enable it by visiting https://console.example"
    server.tell(troubles=[{"match": f"^{kind}", "status": 403, "reason": "accessNotConfigured", "said": said}])
    with pytest.raises(AuthFailed, match=f"the {name} is not enabled in the project: .*visiting https://console.example"):
        connect().check()


def test_the_administrator_is_none(connect: Open) -> None:
    with pytest.raises(AuthFailed, match=r"bob@acme.test may not list the users: it must be an administrator"):
        connect(admin=BOB).check()


def test_the_administrator_does_not_exist(connect: Open) -> None:
    with pytest.raises(AuthFailed, match=r"there is no user nobody@acme.test in this Workspace"):
        connect(admin="nobody@acme.test").check()


def test_the_key_was_deleted(server: GoogleServer) -> None:
    from cryptography.hazmat.primitives import serialization
    from cryptography.hazmat.primitives.asymmetric import rsa

    other = rsa.generate_private_key(public_exponent=65537, key_size=2048).private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    key = json.dumps({**json.loads(server.key), "private_key": other.decode()})
    settings = WorkspaceSettings.model_validate(server.settings)
    connector = WorkspaceConnector(settings, WorkspaceSecrets.model_validate({"key": key}), QuietContext())
    with pytest.raises(AuthFailed, match=r"the key of archiver-.*@archive-test.* was deleted"):
        connector.check()
    connector.close()


def test_mail_is_not_enabled_for_a_user(server: GoogleServer, connect: Open) -> None:
    refusal = {"match": "^profile", "status": 400, "reason": "failedPrecondition", "said": "Mail service not enabled"}
    server.tell(troubles=[refusal])
    with pytest.raises(AuthFailed, match=r"Gmail denies access to alice@acme.test: Mail service not enabled"):
        connect().check()


def test_a_clock_that_is_wrong_by_an_hour_is_corrected(server: GoogleServer, connect: Open) -> None:
    server.tell(world={"skew": 3600})
    connect().check()


# --- users


def _addresses(connect: Open, **settings: Any) -> list[str]:
    return [box.address.partition("@")[0] for box in connect(**settings).mailboxes()]


def test_suspended_and_archived_users_by_choice(connect: Open) -> None:
    assert _addresses(connect) == ["alice", "bob"]
    assert _addresses(connect, include_suspended="yes") == ["alice", "bob", "carol"]
    assert _addresses(connect, include_archived="yes") == ["alice", "bob", "dan"]


def test_users_by_address_and_unit(connect: Open) -> None:
    assert _addresses(connect, mailboxes_out="b*@acme.test") == ["alice"]
    assert _addresses(connect, mailboxes_in="b*@acme.test") == ["bob"]
    everybody = {"include_suspended": True, "include_archived": True}
    assert _addresses(connect, units_in="/Sales", **everybody) == ["bob"], "/Salesmen is another unit"
    assert _addresses(connect, units_out="/sales/", **everybody) == ["alice", "carol", "dan"]


def test_users_by_group(server: GoogleServer, connect: Open) -> None:
    server.tell(world={"groups": {"staff@acme.test": [ALICE, "Bob@acme.test"], "quiet@acme.test": [BOB]}})
    with pytest.raises(AuthFailed, match=r"admin\.directory\.group\.member\.readonly"):
        _addresses(connect, groups_in="staff@acme.test")
    scopes = ["gmail.readonly", "admin.directory.user.readonly", "admin.directory.group.member.readonly"]
    server.tell(world={"scopes": [f"{SCOPE}{scope}" for scope in scopes]})
    assert _addresses(connect, groups_in="staff@acme.test") == ["alice", "bob"]
    assert _addresses(connect, groups_in="staff@acme.test", groups_out="quiet@acme.test") == ["alice"]
    with pytest.raises(AuthFailed, match=r"group none@acme\.test can't be listed: there is no such group"):
        _addresses(connect, groups_out="none@acme.test")


def test_all_pages_of_1200_users(server: GoogleServer, connect: Open) -> None:
    server.tell(world={"users": [{"address": f"u{number}@acme.test", "messages": 0} for number in range(1200)]})
    server.tell(world={"admin": "u0@acme.test"})
    boxes = list(connect(admin="u0@acme.test").mailboxes())
    assert len({box.address for box in boxes}) == 1200
    assert len({box.provider_id for box in boxes}) == 1200
    assert server.calls()["users"] == 3
