"""The page of alerts and its API: the bell, history, channels with a test, rules; and who may do what."""

from __future__ import annotations

import re
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

from archiver.db.ids import uuid7
from tests.integration.http.conftest import Client, Company


class Receiver(BaseHTTPRequestHandler):
    received: list[bytes] = []  # noqa: RUF012

    def do_POST(self) -> None:
        self.received.append(self.rfile.read(int(self.headers["Content-Length"])))
        self.send_response(500 if self.path == "/broken" else 204)
        self.end_headers()

    def log_message(self, *_: Any) -> None: ...


@pytest.fixture(scope="module")
def receiver() -> Iterator[str]:
    with ThreadingHTTPServer(("127.0.0.1", 0), Receiver) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_address[1]}"
        server.shutdown()


@pytest.fixture
def alert(company: Company) -> Iterator[str]:
    alert_id = uuid7()
    company.act(
        "INSERT INTO alerts (id, rule, subject, severity, details, raised_at)"
        " VALUES (:i, 'gap', 'x', 'critical', '{\"source\": \"<work>\", \"n\": 3}', now())",
        i=alert_id,
    )
    yield str(alert_id)
    company.act("DELETE FROM alerts")


def page(client: Client, path: str = "/alerts", **form: str) -> Any:
    """As a browser without JavaScript asks for it."""
    if not form:
        return client.get(f"{client.base_url}{path}".replace("//alerts", "/alerts"))
    data = {"csrf": client.headers["X-CSRF-Token"], **form}
    return client.post(f"{client.base_url}".rstrip("/") + path, data=data, follow_redirects=True)


def test_the_bell_and_the_page_show_what_is_open(company: Company, alert: str) -> None:
    with company.client("admin") as client:
        shown = page(client).text
        assert re.search(r"data-open-alerts>1<", shown)
        assert "“&lt;work&gt;”: 3 messages are missing without an explanation" in shown
        assert page(client, do="acknowledge", id=alert).status_code == 200
        after = page(client).text
        assert "data-open-alerts" not in after
        assert "acknowledged by admin@example.org" in after
        company.act("UPDATE alerts SET resolved_at = now()")
        assert "Nothing is wrong." in page(client).text
        assert client.get("/alerts", params={"past": True}).json()["items"][0]["title"].startswith("“<work>”")
    with company.client("auditor") as client:
        assert page(client).status_code == 200
        assert "ALERT_URLS" not in page(client).text
        assert client.post(f"/alerts/{alert}/acknowledge").status_code == 403
        assert client.get("/alerts/channels").status_code == 403
    with company.client("alice") as client:
        assert page(client).status_code == 403
        assert client.get("/alerts").status_code == 403


def test_a_channel_is_added_tested_and_removed_without_showing_its_secret(company: Company, receiver: str) -> None:
    with company.client("admin") as client:
        wishes = {"quiet_from": "22:00", "quiet_until": "07:00", "zone": "Europe/Berlin", "muted": ["gap"]}
        added = client.post("/alerts/channels", json={"name": "hook", "address": f"{receiver}/ok#s3cret", **wishes})
        assert added.status_code == 201, added.text
        shown = client.get("/alerts/channels").text + page(client).text + added.text
        assert "s3cret" not in shown
        assert "22:00–07:00" in shown
        assert client.post(f"/alerts/channels/{added.json()['id']}/test").status_code == 204
        assert b"This channel works" in Receiver.received[-1]
        sent = page(client, do="test", id=added.json()["id"])
        assert "The test was sent." in sent.text
        assert company.value("SELECT address FROM alert_channels").find(b"s3cret") == -1
        assert client.delete(f"/alerts/channels/{added.json()['id']}").status_code == 204
        assert client.post(f"/alerts/channels/{added.json()['id']}/test").status_code == 404


def test_a_channel_that_does_not_work_is_reported_at_once(company: Company, receiver: str) -> None:
    with company.client("admin") as client:
        added = client.post("/alerts/channels", json={"address": f"{receiver}/broken"}).json()
        answer = client.post(f"/alerts/channels/{added['id']}/test")
        assert (answer.status_code, answer.json()["code"]) == (422, "not_sent")
        assert "status 500" in answer.json()["detail"]
        assert "status 500" in page(client, do="test", id=added["id"]).text
        for address in ("mailto:ann@example.org", "nosuch://x", "https://"):
            refused = client.post("/alerts/channels", json={"address": address})
            assert refused.status_code == 400, address
        assert "SMTP_URL" in client.post("/alerts/channels", json={"address": "mailto:ann@example.org"}).json()["detail"]
        page(client, do="remove", id=added["id"])
        assert client.get("/alerts/channels").json()["items"] == []


def test_rules_are_changed_and_wrong_values_refused(company: Company) -> None:
    with company.client("admin") as client:
        changed = client.put("/alerts/rules/index_lag", json={"threshold": 5, "for_minutes": 2})
        assert (changed.json()["threshold"], changed.json()["for_minutes"]) == (5, 2)
        page(client, do="rule", name="index_lag", threshold="7", for_minutes="", enabled="on")
        rules = {one["name"]: one for one in client.get("/alerts/rules").json()["items"]}
        assert (rules["index_lag"]["threshold"], rules["index_lag"]["for_minutes"]) == (7, 0)
        assert client.put("/alerts/rules/index_lag", json={"threshold": -1}).status_code == 422
        assert client.put("/alerts/rules/disk_full", json={"threshold": 1}).status_code == 400
        assert client.put("/alerts/rules/nothing", json={}).status_code == 404
        wrong = page(client, do="rule", name="index_lag", threshold="many", enabled="on")
        assert (wrong.status_code, "expected a number" in wrong.text) == (400, True)
        assert company.value("SELECT count(*) FROM audit_log WHERE action = 'alert_rule.changed'") == 2
