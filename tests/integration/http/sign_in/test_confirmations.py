"""What a stolen session, an old key or a lost role can no longer do."""

from __future__ import annotations

import base64
import threading
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from archiver.access import grants, users
from archiver.access.grants import GrantTarget
from archiver.access.login import logins, totp
from archiver.access.principal import LOCAL_OPERATOR, ROLE_RIGHTS, KeyScope, Principal
from archiver.access.users import User
from archiver.config import load_settings
from archiver.db.states import UserRole
from archiver.exports import service as exports
from archiver.exports.selection import Selection
from tests.integration.http.conftest import PASSWORD, Client, Company, Served
from tests.support.export_runs import run_exports
from tests.support.waiting import DEADLINE_SECONDS


@pytest.fixture
def erin(company: Company) -> Iterator[User]:
    user = company.add_user("erin@example.org", password=PASSWORD)
    yield user
    company.act("DELETE FROM users WHERE id = :i", i=user.id)
    company.act("DELETE FROM sign_in_pauses")


def turn_on(client: Client) -> tuple[bytes, list[str]]:
    """The secret of the second factor, and its recovery codes."""
    secret = base64.b32decode(client.post("/me/totp", json={"password": PASSWORD}).json()["secret"])
    answer = client.put("/me/totp", json={"code": totp.code_at(secret, totp.current_step())})
    assert answer.status_code == 200, answer.text
    return secret, answer.json()["recovery_codes"]


KEY = {"name": "k", "scopes": ["read"]}


# --- confirmations


def test_a_key_is_made_with_the_password_or_a_code_only(company: Company, erin: User) -> None:
    with company.client("erin") as client:
        refused = client.post("/me/keys", json=KEY)
        assert (refused.status_code, refused.json()["code"]) == (400, "confirmation_needed")
        assert client.post("/me/keys", json={**KEY, "password": "wrong"}).status_code == 401
        assert client.post("/me/keys", json={**KEY, "code": "123456"}).status_code == 400, "there is no second factor yet"
        assert client.post("/me/keys", json={**KEY, "password": PASSWORD}).status_code == 201
        _, codes = turn_on(client)
        assert client.post("/me/keys", json={**KEY, "code": "abcd-efgh-ijkl-mnop"}).status_code == 401
        assert client.post("/me/keys", json={**KEY, "code": codes[0]}).status_code == 201
        assert client.post("/me/keys", json={**KEY, "code": codes[0]}).status_code == 401, "used up"
    assert company.value("SELECT count(*) FROM api_keys WHERE user_id = :u", u=erin.id) == 2


def test_the_page_asks_as_well(company: Company, erin: User) -> None:
    with company.client("erin") as client:
        form = {"do": "add", "name": "k", "scope.read": "on", "csrf": client.headers["X-CSRF-Token"]}
        page = f"{company.url}/settings/keys"
        assert client.post(page, data=form).status_code == 400
        assert client.post(page, data={**form, "password": PASSWORD}).status_code == 201
        _, codes = turn_on(client)
        assert client.post(page, data={**form, "password": codes[0]}).status_code == 201, "a code in its place"
        off = {"do": "disable", "csrf": form["csrf"]}
        page = f"{company.url}/settings/second-factor"
        assert client.post(page, data=off).status_code == 400
        assert client.post(page, data={**off, "password": codes[1]}).status_code == 303
        assert client.get("/me").json()["second_factor"] is False


def test_the_second_factor_is_switched_off_with_the_password_or_a_code_only(company: Company, erin: User) -> None:
    with company.client("erin") as client:
        for number, good in enumerate(("password", "code")):
            _, codes = turn_on(client)
            assert client.post("/me/totp/disable", json={}).status_code == 400
            assert client.post("/me/totp/disable", json={"code": "000000"}).status_code == 401
            given = {"password": PASSWORD} if good == "password" else {"code": codes[0]}
            assert client.post("/me/totp/disable", json=given).status_code == 204, number
            company.act("UPDATE users SET totp_last_step = NULL WHERE id = :u", u=erin.id)


def test_confirmations_cannot_be_tried_without_end(company: Company, erin: User) -> None:
    with company.client("erin") as client:
        statuses = [client.post("/me/keys", json={**KEY, "password": "wrong"}).status_code for _ in range(8)]
    assert statuses[:5] == [401] * 5
    assert statuses[-1] == 429


def test_switching_the_second_factor_on_ends_other_sessions(company: Company, erin: User) -> None:
    with company.client("erin") as client, company.client("erin") as other:
        turn_on(client)
        assert client.get("/me").status_code == 200
        assert other.get("/me").status_code == 401


# --- keys


def test_keys_expire(company: Company, erin: User, variables: dict[str, str]) -> None:
    with company.client("erin") as client:
        made = client.post("/me/keys", json={**KEY, "password": PASSWORD}).json()
        (listed,) = client.get("/me/keys").json()["items"]
        days = (datetime.fromisoformat(listed["expires_at"]) - datetime.now(UTC)).days
        assert 360 <= days <= 366
        far = (datetime.now(UTC) + timedelta(days=400)).isoformat()
        assert client.post("/me/keys", json={**KEY, "password": PASSWORD, "expires_at": far}).status_code == 400
        with Served(load_settings({**variables, "API_KEY_DAYS": "30"}, Path("none"))) as served:
            url = f"{served.url}/api/v1/me/keys"
            later = (datetime.now(UTC) + timedelta(days=60)).isoformat()
            assert client.post(url, json={**KEY, "password": PASSWORD, "expires_at": later}).status_code == 400
            assert client.post(url, json={**KEY, "password": PASSWORD}).status_code == 201
    assert company.value("SELECT max(expires_at) > now() + interval '300 days' FROM api_keys WHERE user_id = :u", u=erin.id)
    assert company.value("SELECT min(expires_at) < now() + interval '31 days' FROM api_keys WHERE user_id = :u", u=erin.id)
    # one that an older version made without an end
    company.act("UPDATE api_keys SET expires_at = NULL, created_at = now() - interval '13 months' WHERE id = :i", i=made["id"])
    with company.client() as client:
        assert client.get("/messages", headers={"Authorization": f"Bearer {made['key']}"}).status_code == 401


@pytest.mark.parametrize("way", ["api", "command line"])
def test_a_password_that_an_administrator_sets_revokes_keys(company: Company, erin: User, way: str) -> None:
    key = company.key("erin", KeyScope.READ)
    with company.client() as client, company.client("admin") as admin:
        client.headers["Authorization"] = f"Bearer {key}"
        assert client.get("/messages").status_code == 200
        if way == "api":
            admin.put(f"/users/{erin.id}/password", json={"new_password": "another horse battery"})
        else:
            with company.engine.begin() as connection:
                users.set_password(connection, LOCAL_OPERATOR, erin, "another horse battery")
        assert client.get("/messages").status_code == 401
    assert company.value("SELECT count(*) FROM audit_log WHERE action = 'key.revoked'") >= 1


def test_ones_own_new_password_keeps_keys(company: Company, erin: User) -> None:
    key = company.key("erin", KeyScope.READ)
    with company.client() as client, company.client("erin") as own:
        assert own.put("/me/password", json={"password": PASSWORD, "new_password": "another horse"}).status_code == 204
        client.headers["Authorization"] = f"Bearer {key}"
        assert client.get("/messages").status_code == 200


# --- roles


@pytest.mark.parametrize(("before", "after"), [("administrator", "user"), ("auditor", "user"), ("user", "administrator")])
def test_a_change_of_role_takes_the_right_to_read_everything(company: Company, erin: User, before: str, after: str) -> None:
    company.act("UPDATE users SET role = :r, may_read_all = true WHERE id = :u", r=before, u=erin.id)
    with company.client("admin") as admin:
        changed = admin.patch(f"/users/{erin.id}", json={"role": after}).json()
        assert (changed["role"], changed["may_read_all"]) == (after, False)
        again = admin.patch(f"/users/{erin.id}", json={"role": before, "may_read_all": True}).json()
        assert again["may_read_all"] is True, "if somebody says so"
        same = admin.patch(f"/users/{erin.id}", json={"role": before, "name": "Erin"}).json()
        assert same["may_read_all"] is True, "nothing has changed"


# --- what was begun before


def export_of(company: Company, user: User) -> str:
    with company.engine.begin() as connection:
        user = users.load(connection, user.id)
        who = Principal(user.email, user.role, ROLE_RIGHTS[user.role], user.id, user.may_read_all)
        export_id = exports.request(connection, company.settings, who, Selection(everything=True))
    run_exports(company.settings, company.engine)
    return str(export_id)


def test_an_export_is_given_to_whoever_may_still_read_all_of_it(company: Company, erin: User) -> None:
    with company.engine.begin() as connection:
        for name in ("alice", "bob"):
            grants.add(connection, LOCAL_OPERATOR, erin, GrantTarget(mailbox_id=company.mailboxes[name]))
    export = export_of(company, erin)
    with company.client("erin") as client:
        assert client.get(f"/exports/{export}/file").status_code == 200
        with company.engine.begin() as connection:
            grants.remove_target(connection, LOCAL_OPERATOR, erin, GrantTarget(mailbox_id=company.mailboxes["bob"]))
        refused = client.get(f"/exports/{export}/file")
        assert (refused.status_code, refused.json()["code"]) == (409, "conflict")
        company.act("UPDATE users SET may_read_all = true WHERE id = :u", u=erin.id)
        assert client.get(f"/exports/{export}/file").status_code == 200
        everything = export_of(company, erin)
        company.act("UPDATE users SET may_read_all = false WHERE id = :u", u=erin.id)
        assert client.get(f"/exports/{everything}/file").status_code == 409
        for one in (export, everything):
            client.delete(f"/exports/{one}")


@pytest.mark.parametrize("end", ["session", "disabled", "role", "key"])
def test_a_stream_ends_with_its_session(company: Company, end: str) -> None:
    user = company.add_user(f"stream-{end}@example.org", UserRole.ADMINISTRATOR)
    with company.client(f"stream-{end}") as client:
        if end == "key":
            client.headers = {"Authorization": f"Bearer {company.key(f'stream-{end}', KeyScope.ADMIN)}"}
            client.cookies.clear()
        got: list[Any] = []
        began = threading.Event()

        def listen() -> None:
            with client.stream("GET", f"{company.url}/api/v1/progress") as answer:
                got.append(answer.status_code)
                for _ in answer.iter_raw():
                    began.set()

        watching = threading.Thread(target=listen, daemon=True)
        watching.start()
        assert began.wait(DEADLINE_SECONDS)
        acts = {
            "session": "DELETE FROM sessions WHERE user_id = :u",
            "disabled": "UPDATE users SET disabled_at = now() WHERE id = :u",
            "role": "UPDATE users SET role = 'user' WHERE id = :u",
            "key": "UPDATE api_keys SET revoked_at = now() WHERE user_id = :u",
        }
        company.act(acts[end], u=user.id)
        watching.join(DEADLINE_SECONDS)
        assert not watching.is_alive()
    assert got == [200]
    company.act("DELETE FROM users WHERE id = :u", u=user.id)


def test_watching_is_no_sign_of_life(company: Company, erin: User) -> None:
    """A stream that nobody looks at must not keep a session from ending."""
    company.act("UPDATE users SET role = 'auditor' WHERE id = :u", u=erin.id)
    with company.client("erin") as client:
        client.get("/progress?once=true")
        company.act("UPDATE sessions SET last_seen_at = now() - interval '2 hours' WHERE user_id = :u", u=erin.id)
        assert logins.resolve(company.engine, company.settings, client.cookies["archiver"], touch=False) is not None
    seen = "SELECT last_seen_at < now() - interval '1 hour' FROM sessions WHERE user_id = :u"
    assert company.value(seen, u=erin.id)
