"""Notices to the people of a hold: sent by mail, acknowledged by a link, and by nobody else."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace
from email import message_from_bytes, policy
from email.message import EmailMessage
from typing import Any

import pytest
from aiosmtpd.controller import Controller
from pydantic import SecretStr

from archiver.access.principal import LOCAL_OPERATOR
from archiver.alerts import custodian_notices
from archiver.errors import UsageError
from archiver.retention import holds
from archiver.retention.holds import Hold, NewHold
from tests.integration.http.conftest import Company
from tests.support.ports import free_port


class Inbox:
    def __init__(self) -> None:
        self.mails: list[EmailMessage] = []
        self.answer = "250 OK"

    async def handle_DATA(self, _server: Any, _session: Any, envelope: Any) -> str:
        if self.answer.startswith("250"):
            self.mails.append(message_from_bytes(envelope.content, policy=policy.default))
        return self.answer


@pytest.fixture
def inbox() -> Iterator[tuple[Inbox, int]]:
    made, port = Inbox(), free_port()
    controller = Controller(made, hostname="127.0.0.1", port=port)
    controller.start()
    yield made, port
    controller.stop()


@pytest.fixture
def hold(company: Company) -> Iterator[Hold]:
    people = ["ann@example.org", "bo@example.org"]
    yield holds.place(company.engine, LOCAL_OPERATOR, NewHold("Case Lamp", "x", addresses=people))
    company.act("DELETE FROM holds")


def settings_of(company: Company, port: int) -> Any:
    server = f"smtp://127.0.0.1:{port}?from=archiver@example.org"
    return company.settings.model_copy(update={"smtp_url": SecretStr(server), "archiver_url": SecretStr(company.url)})


def states(company: Company, hold: Hold) -> dict[str, str]:
    with company.engine.connect() as connection:
        return {one.address: one.state for one in custodian_notices.list_notices(connection, hold)}


def test_a_notice_is_sent_once_and_acknowledged_by_its_link(company: Company, hold: Hold, inbox: tuple[Inbox, int]) -> None:
    mails, settings = inbox[0], settings_of(company, inbox[1])
    with company.engine.begin() as connection:
        custodian_notices.request_notices(connection, settings, LOCAL_OPERATOR, hold, "Please keep everything.")
    mails.answer = "451 later"
    assert custodian_notices.send_pending(company.engine, settings) == 0
    mails.answer = "250 OK"
    assert custodian_notices.send_pending(company.engine, settings) == 2
    assert custodian_notices.send_pending(company.engine, settings) == 0
    assert sorted(mail["To"] for mail in mails.mails) == ["ann@example.org", "bo@example.org"]
    mail = next(one for one in mails.mails if one["To"] == "ann@example.org")
    assert "Please keep everything." in mail.get_content()
    (link,) = re.findall(r"http\S+/hold-notices/\S+", mail.get_content())
    with company.client() as client:
        page = client.get(link)
        assert page.status_code == 200
        assert "Please keep everything." in page.text
        assert states(company, hold) == {"ann@example.org": "sent", "bo@example.org": "sent"}, "opening it confirms nothing"
        assert client.post(link, headers={"Origin": "https://evil.example"}).status_code == 403
        assert client.post(link).status_code == 200
        assert client.get(f"{company.url}/hold-notices/wrong").status_code == 404
    assert states(company, hold) == {"ann@example.org": "acknowledged", "bo@example.org": "sent"}
    assert company.value("SELECT count(*) FROM audit_log WHERE action = 'hold.notice_acknowledged'") == 1
    with company.client("admin") as client:
        listed = client.get(f"/holds/{hold.id}/notices").json()["items"]
        assert [one["state"] for one in listed] == ["acknowledged", "sent"]
        assert "token" not in str(listed)
        assert "ann@example.org: acknowledged" in client.get(f"{company.url}/retention").text
    with company.engine.begin() as connection:
        custodian_notices.request_notices(connection, settings, LOCAL_OPERATOR, hold, "Another text.")
    custodian_notices.send_pending(company.engine, settings)
    with company.client() as client:
        assert client.get(link).status_code == 404, "a newer notice has replaced it"


def test_what_can_not_be_sent_is_refused(company: Company, hold: Hold) -> None:
    settings = settings_of(company, 1)
    without = company.settings.model_copy(update={"smtp_url": None})
    for chosen, changed, text, says in (
        (settings, hold, " ", "needs a text"),
        (settings, replace(hold, addresses=[]), "x", "names no people"),
        (without, hold, "x", "SMTP_URL"),
    ):
        with company.engine.begin() as connection, pytest.raises(UsageError, match=says):
            custodian_notices.request_notices(connection, chosen, LOCAL_OPERATOR, changed, text)
