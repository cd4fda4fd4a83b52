"""A JMAP server that refuses, forgets, lies, or points elsewhere."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from pydantic import ValidationError

from connectors.errors import AuthFailed, ConnectorError, Throttled, Unavailable
from connectors.jmap import JmapConnector, JmapSecrets, JmapSettings, client
from tests.contract.subject import QuietContext, Taken, nothing
from tests.support.dovecot import message
from tests.support.jmap_server import JmapScript, jmap_server
from tests.support.waiting import eventually


@pytest.fixture(autouse=True)
def _no_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client, "BROKEN", (0.01, 0.01))


def mails(count: int) -> dict[str, bytes]:
    return {f"M{number}": message(number, 300) for number in range(count)}


@contextmanager
def connected(script: JmapScript, **secrets: str) -> Iterator[JmapConnector]:
    with jmap_server(script) as port:
        settings = JmapSettings.model_validate({"url": f"http://127.0.0.1:{port}", "user": "alice@example.org"})
        found = JmapConnector(settings, JmapSecrets.model_validate(secrets or {"token": "a-secret-token"}), QuietContext())
        try:
            yield found
        finally:
            found.close()


def everything(connector: JmapConnector, state: dict[str, Any] | None = None) -> Taken:
    return Taken().store(connector.fetch(next(iter(connector.mailboxes())), state or {}, nothing))


def test_everything_is_read_newest_first_and_a_second_time_costs_one_request() -> None:
    script = JmapScript(mails(120))
    with connected(script) as connector:
        taken = everything(connector)
        assert taken.given == list(reversed(script.messages))
        assert taken.listed == {"INBOX": set(script.messages)}
        before = connector.client.round_trips
        assert everything(connector, taken.state).given == []
        assert connector.client.round_trips == before + 1
    assert script.authorizations == {"Bearer a-secret-token"}


def test_a_password_is_sent_as_basic_authentication() -> None:
    script = JmapScript(mails(1))
    with connected(script, password="x") as connector:
        connector.check()
    assert script.authorizations == {"Basic YWxpY2VAZXhhbXBsZS5vcmc6eA=="}


@pytest.mark.parametrize("what", ["session", "api", "download"])
@pytest.mark.parametrize(
    ("status", "error"), [(401, AuthFailed), (403, AuthFailed), (429, Throttled), (418, Unavailable)], ids=str
)
def test_a_refusal_at_each_call_is_what_it_says(what: str, status: int, error: type[ConnectorError]) -> None:
    script = JmapScript(mails(3), statuses={what: [status] * 50}, headers={"Retry-After": "7"})
    with connected(script) as connector:
        if (what, status) == ("download", 418):
            assert everything(connector).failed == set(script.messages)
            return
        with pytest.raises(error) as raised:
            everything(connector)
        assert "a-secret-token" not in str(raised.value)
        if isinstance(raised.value, Throttled):
            assert raised.value.retry_after_seconds == 7


@pytest.mark.parametrize("what", ["session", "api", "download"])
@pytest.mark.parametrize("status", [500, 502, 503])
def test_a_server_that_recovers_is_asked_again(what: str, status: int) -> None:
    script = JmapScript(mails(3), statuses={what: [status, status]})
    with connected(script) as connector:
        assert len(everything(connector).given) == 3


def test_one_message_that_can_not_be_returned_is_named_and_the_others_arrive() -> None:
    script = JmapScript(mails(10), bad_blobs={"M3": 500, "M5": 404, "M7": 400})
    with connected(script) as connector:
        taken = everything(connector)
    assert taken.failed == {"M3", "M5", "M7"}
    assert len(taken.given) == 7


def test_a_server_that_returns_no_message_at_all_is_unavailable() -> None:
    script = JmapScript(mails(20), bad_blobs=dict.fromkeys(mails(20), 500))
    with connected(script) as connector, pytest.raises(Unavailable):
        everything(connector)


def test_a_state_that_the_server_forgot_lists_again_and_downloads_nothing_twice() -> None:
    script = JmapScript(mails(20))
    with connected(script) as connector:
        box = next(iter(connector.mailboxes()))
        taken = Taken().store(connector.fetch(box, {}, nothing))
        script.messages["M99"] = message(99, 300)
        del script.messages["M4"]
        script.method_errors = {"Email/changes": ["cannotCalculateChanges"]}
        again = Taken().store(connector.fetch(box, taken.state, taken.known))
    assert again.given == ["M99"]
    assert again.listed == {"INBOX": set(script.messages)}


def test_a_position_that_was_deleted_lists_again() -> None:
    script = JmapScript(mails(120))
    with connected(script) as connector:
        box = next(iter(connector.mailboxes()))
        taken = Taken()
        for batch in connector.fetch(box, {}, nothing):
            taken.store([batch])
            break
        key = f"jmap:{box.address}"
        taken.state[key] = {**taken.state[key], "listing": True, "anchor": "M50"}
        del script.messages["M50"]
        again = Taken().store(connector.fetch(box, taken.state, taken.known))
    assert set(taken.given) | set(again.given) | {"M50"} == set(mails(120))


@pytest.mark.parametrize(
    "raw", [b"", b"[]", b"{}", b'{"methodResponses":[["Mailbox/get",{},"0"]]}', b'{"methodResponses":[7,7,7,7]}', b"<html>"]
)
def test_rubbish_is_an_error_of_ours(raw: bytes) -> None:
    with connected(JmapScript(mails(1), raw_api=raw)) as connector, pytest.raises(Unavailable):
        everything(connector)


@pytest.mark.parametrize("name", ["apiUrl", "downloadUrl", "eventSourceUrl"])
def test_the_credentials_go_nowhere_else(name: str) -> None:
    script = JmapScript(mails(1), session={name: "https://evil.example/collect"})
    with connected(script) as connector, pytest.raises(Unavailable, match=r"evil\.example.*other_hosts"):
        connector.check()


def test_a_session_without_mail_says_so() -> None:
    script = JmapScript(session={"accounts": {}, "primaryAccounts": {}})
    with connected(script) as connector, pytest.raises(Unavailable, match="no mail"):
        connector.check()


def test_folders_that_contain_each_other_do_no_harm() -> None:
    boxes: list[dict[str, Any]] = [
        {"id": "in", "name": "a", "parentId": "b", "role": None},
        {"id": "b", "name": "b", "parentId": "in", "role": None},
        {"id": "c", "name": "a/b", "parentId": None, "role": None},
        {"name": "without an id"},
    ]
    with connected(JmapScript(mails(2), folders=boxes)) as connector:
        assert len(everything(connector).given) == 2


def test_events_are_news_and_closing_ends_the_watch() -> None:
    script = JmapScript(mails(1), events=["event: ping\ndata: {}\n\n", 'event: state\ndata: {"changed":{}}\n\n'])
    news: list[int] = []
    raised: list[BaseException] = []
    with connected(script) as connector:
        box = next(iter(connector.mailboxes()))

        def work() -> None:
            try:
                connector.watch(box, lambda: news.append(1))
            except BaseException as error:
                raised.append(error)

        thread = threading.Thread(target=work, daemon=True)
        thread.start()
        eventually(lambda: len(news) == 2, what="the news")
        connector.close()
        thread.join(10)
    assert [type(error) for error in raised] == [Unavailable]


@pytest.mark.parametrize(
    "wrong",
    [
        {"url": "http://mail.example.org"},
        {"url": "mail.example.org"},
        {"url": "ftp://mail.example.org"},
        {"url": "https://mail.example.org", "ca": "x", "ca_file": "/y"},
    ],
)
def test_wrong_settings_are_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        JmapSettings.model_validate(wrong)


def test_fastmail_needs_no_list_of_hosts() -> None:
    settings = JmapSettings.model_validate({"url": "https://api.fastmail.com/jmap/session"})
    assert "www.fastmailusercontent.com" in settings.hosts()
