"""Who may hand messages in: reading a mailbox is no right to write to it; and what was handed in is shown as such."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from archiver.maintenance import snapshot
from archiver.store.journal import Config
from tests.integration.http.conftest import Client, Company, mail

ALICE = {"mailbox": "alice@example.org"}


def grant(company: Company, admin: Client, name: str, **given: object) -> None:
    answer = admin.post(f"/users/{company.people[name].id}/grants", json=given)
    assert answer.status_code == 201, answer.text


@pytest.mark.parametrize("how", ["mailbox", "pattern", "source"])
def test_who_may_only_read_a_mailbox_hands_nothing_in(company: Company, how: str) -> None:
    name = f"reader-{how}"
    company.add_user(f"{name}@example.org")
    target = {
        "mailbox": {"mailbox": "alice@example.org"},
        "pattern": {"pattern": "al*@example.org"},
        "source": {"source": "work"},
    }
    raw = mail(500, "evil@example.net", "alice@example.org", f"planted {how}")
    with company.client(name) as client, company.client("admin") as admin:
        assert client.post("/messages", params=ALICE, content=raw).status_code == 404, "they know nothing of it"
        grant(company, admin, name, **target[how])
        refused = client.post("/messages", params=ALICE, content=raw)
        assert (refused.status_code, refused.json()["code"]) == (403, "not_allowed")
        assert company.value("SELECT count(*) FROM message_copies WHERE provider_key LIKE 'api:%'") == 0
        grant(company, admin, name, **target[how], may_ingest=True)
        (given,) = admin.get(f"/users/{company.people[name].id}/grants").json()["items"]
        assert given["may_ingest"] is True
        handed_in = client.post("/messages", params=ALICE, content=raw)
        assert handed_in.status_code == 201
        (copy,) = client.get(f"/messages/{handed_in.json()['id']}/copies").json()["items"]
        assert (copy["handed_in"], copy["mailbox"]) == (True, "alice@example.org")
        assert "submitted through the API" in client.get(f"{company.url}/messages/{handed_in.json()['id']}").text
        grant(company, admin, name, **target[how])
        assert client.post("/messages", params=ALICE, content=raw).status_code == 403, "taken back"
    company.act("DELETE FROM message_copies WHERE provider_key LIKE 'api:%'")


def test_what_was_fetched_is_not_shown_as_handed_in(company: Company) -> None:
    with company.client("alice") as client:
        (copy,) = client.get(f"/messages/{company.messages['alice']}/copies").json()["items"]
        assert copy["handed_in"] is False
        assert "handed in through" not in client.get(f"{company.url}/messages/{company.messages['alice']}").text


def test_the_right_survives_a_rebuild_and_older_snapshots_have_none(company: Company) -> None:
    with company.engine.connect() as connection:
        tables = {table: snapshot._read(connection, table) for table in snapshot._COLUMNS}
    assert all("may_ingest" in row for row in tables["grants"])
    for row in tables["grants"]:
        row.pop("may_ingest")
    company.act("DELETE FROM grants WHERE NOT may_ingest")
    with company.engine.begin() as connection:
        statuses = "SELECT id, status, status_message FROM ingestion_sources"
        before = connection.exec_driver_sql(statuses).all()
        snapshot.restore_config(connection, Config(datetime.now(UTC), tables))
        for source in before:  # it pauses sources without credentials, as after a loss
            connection.exec_driver_sql(
                "UPDATE ingestion_sources SET status = %s, status_message = %s WHERE id = %s", (source[1], source[2], source[0])
            )
    assert company.value("SELECT count(*) FROM grants") == len(tables["grants"])
    assert company.value("SELECT count(*) FROM grants WHERE may_ingest") == 0
