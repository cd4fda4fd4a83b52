"""Google's client over our connections: tokens, batches, broken answers, and connections that several connectors share."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import pytest

from connectors.base import MailboxRef
from connectors.errors import AuthFailed, ConnectorError, Throttled, Unavailable
from connectors.google import GmailConnector, GmailSecrets, GmailSettings
from connectors.google.services import directory, gmail_users
from tests.contract.subject import QuietContext, Taken, fetch_all, nothing
from tests.integration.google.conftest import ALICE, Open
from tests.integration.google.test_fetch import BOX, key
from tests.support.google_server import GoogleServer
from tests.support.waiting import DEADLINE_SECONDS, eventually

CALLS = ["profile", "labels", "list", "get", "history"]


def _held(connect: Open, call: str) -> Taken:
    return fetch_all(connect(), BOX) if call == "history" else Taken()


# --- tokens


@pytest.mark.parametrize(
    ("refusal", "error"),
    [
        ({"status": 429, "headers": {"Retry-After": "9"}}, Throttled),
        ({"status": 503, "headers": {"Retry-After": "9"}}, Throttled),
        ({"status": 500}, Unavailable),
        ({"status": 408}, Unavailable),
        ({"drop": True}, Unavailable),
        ({"body": {"text": "<html>"}}, Unavailable),
        ({"body": {"text": "[]"}}, Unavailable),
        ({"body": {"bytes": 3}}, Unavailable),
        ({"body": {"text": '{"error": "access_denied"}'}}, AuthFailed),
        ({"body": {"text": "{}"}}, AuthFailed),
    ],
)
def test_a_token_server_in_trouble(
    server: GoogleServer, connect: Open, refusal: dict[str, Any], error: type[Exception]
) -> None:
    server.tell(troubles=[{"match": "^token ", **refusal}])
    with pytest.raises(error) as raised:
        connect().check()
    assert isinstance(raised.value, ConnectorError)
    if isinstance(raised.value, Throttled):
        assert raised.value.retry_after_seconds == 9
    server.tell(troubles=[])
    connect().check()


@pytest.mark.parametrize("life", ['"3599"', '"soon"', "null", "-5", "1e999"])
def test_a_life_of_a_token_that_is_no_number_of_seconds(server: GoogleServer, connect: Open, life: str) -> None:
    """Google's library can't read all of these. The server does not know the token, so it is also renewed here."""
    answer = f'{{"access_token": "ya29.unknown", "expires_in": {life}, "token_type": "Bearer"}}'
    server.tell(troubles=[{"match": "^token ", "times": 1, "body": {"text": answer}}])
    assert len(fetch_all(connect(), BOX).given) == 30


@pytest.mark.parametrize("call", CALLS)
def test_a_token_that_expires_at_every_call(server: GoogleServer, connect: Open, call: str) -> None:
    held = _held(connect, call)
    server.tell(troubles=[{"match": f"^{call} ", "times": 1, "forget_tokens": True}])
    held.store(connect().fetch(BOX, held.state, held.known))
    assert len(held.given) == len(set(held.given)) == 30


@pytest.mark.parametrize("call", CALLS)
def test_a_sign_in_that_is_revoked_at_every_call(server: GoogleServer, call: str) -> None:
    """What was fetched before stays, the error says what to do, and a new sign-in goes on without loss."""
    settings = GmailSettings.model_validate(server.gmail_settings)
    opened: list[GmailConnector] = []

    def connect(**secrets: str) -> GmailConnector:
        given = {"refresh_token": "refresh-secret-1", **secrets}
        opened.append(GmailConnector(settings, GmailSecrets.model_validate(given), QuietContext()))
        return opened[-1]

    server.tell(allow=True)
    held = fetch_all(connect(client_secret="first"), BOX) if call == "history" else Taken()
    after = 5 if call == "get" else 0
    revoked = {"match": "^token ", "after": 1, "body": {"text": '{"error": "invalid_grant", "error_description": "revoked"}'}}
    server.tell(troubles=[{"match": f"^{call} ", "after": after, "status": 401}, revoked])
    connector = connect(client_secret=f"second-{call}")
    with pytest.raises(AuthFailed) as raised:
        held.store(connector.fetch(BOX, held.state, held.known))
    assert "sign in again" in str(raised.value)
    assert "refresh-secret" not in str(raised.value)
    assert "ya29" not in str(raised.value)
    server.tell(troubles=[])
    held.store(connect(client_secret=f"third-{call}").fetch(BOX, held.state, held.known))
    assert len(held.given) == len(set(held.given)) == 30
    for one in opened:
        one.close()


def test_a_token_in_an_error_is_not_shown(server: GoogleServer, connect: Open) -> None:
    connector = connect()
    token = connector._tokens(ALICE).get(connector._http)
    server.tell(troubles=[{"match": "^profile ", "status": 400, "said": f"Bad token {token}, really"}])
    with pytest.raises(AuthFailed, match="Bad token …, really"):
        list(connector.fetch(BOX, {}, nothing))


# --- bodies


@pytest.mark.parametrize("call", CALLS)
@pytest.mark.parametrize(
    "body", [{"bytes": 20}, {"bytes": 0}, {"text": '{"half": '}, {"text": "[1]"}, {"text": "\\ufffd<html>"}, {"seconds": 0.02}]
)
def test_bodies_that_are_slow_cut_off_or_something_else(
    server: GoogleServer, connect: Open, call: str, body: dict[str, Any]
) -> None:
    """A slow one is waited for, a broken one is asked for again or told; afterwards nothing is missing."""
    held = _held(connect, call)
    server.tell(troubles=[{"match": f"^{call} ", "times": 1, "body": body}])
    try:
        held.store(connect().fetch(BOX, held.state, held.known))
        is_told = bool(held.failed)
    except Unavailable:
        is_told = True
    assert is_told == ("text" in body)
    held.store(connect().refetch(BOX, sorted(held.failed)))
    held.store(connect().fetch(BOX, held.state, held.known))
    assert set(held.given) == {key(number) for number in range(30)}


def test_an_answer_without_end(server: GoogleServer, connect: Open) -> None:
    server.tell(troubles=[{"match": "^labels ", "body": {"text": "[" + "1," * (18 << 20)}}], reset_calls=True)
    with pytest.raises(Unavailable, match="a response from the Gmail API is too large"):
        list(connect().fetch(BOX, {}, nothing))
    assert server.calls()["labels"] == 1, "it would not be smaller the next time"


# --- batches


def _change_all(server: GoogleServer) -> None:
    changes = [{"in": ALICE, "what": "label", "id": key(number), "labels": ["Label_2"], "hide": True} for number in range(30)]
    server.tell(change=changes, reset_calls=True)


def _labelled(batches: Any) -> set[str]:
    return {change.provider_key for batch in batches for change in batch.changes if change.labels == ("Bills",)}


def test_labels_that_the_history_omits_come_in_batches(server: GoogleServer, connect: Open) -> None:
    held = fetch_all(connect(), BOX)
    _change_all(server)
    assert _labelled(connect().fetch(BOX, held.state, held.known)) == {key(number) for number in range(30)}
    calls = server.calls()
    assert (calls["minimal"], calls["batch"]) == (30, calls["history"]), "one call for each page of the history"


def test_a_server_without_batches(server: GoogleServer, connect: Open) -> None:
    held = fetch_all(connect(), BOX)
    _change_all(server)
    server.tell(troubles=[{"match": "^batch ", "status": 404}])
    assert len(_labelled(connect().fetch(BOX, held.state, held.known))) == 30


@pytest.mark.parametrize("refusal", [{"status": 429}, {"status": 403, "reason": "rateLimitExceeded"}])
@pytest.mark.parametrize("call", ["batch", "minimal"])
def test_a_batch_that_is_throttled_is_asked_for_again_later(
    server: GoogleServer, connect: Open, call: str, refusal: dict[str, Any]
) -> None:
    held = fetch_all(connect(), BOX)
    _change_all(server)
    server.tell(troubles=[{"match": f"^{call} ", "times": 1, "after": 4 if call == "minimal" else 0, **refusal}])
    with pytest.raises(Throttled):
        list(connect().fetch(BOX, held.state, held.known))
    assert len(_labelled(connect().fetch(BOX, held.state, held.known))) == 30


def test_a_message_that_a_batch_does_not_find_is_left_as_it_is(server: GoogleServer, connect: Open) -> None:
    held = fetch_all(connect(), BOX)
    _change_all(server)
    server.tell(troubles=[{"match": f"^minimal .*{key(3)}", "status": 404}])
    assert _labelled(connect().fetch(BOX, held.state, held.known)) == {key(number) for number in range(30) if number != 3}


# --- connections


def test_closing_one_connector_leaves_the_others_alone(server: GoogleServer, connect: Open) -> None:
    server.tell(world={"users": [{"address": "bob@acme.test"}]})
    server.tell(troubles=[{"match": f"^get .* {ALICE}$", "hang": True, "after": 3}], reset_calls=True)
    raised: list[BaseException] = []

    def run(connector: Any, box: MailboxRef, after: Callable[[], None]) -> None:
        try:
            list(connector.fetch(box, {}, nothing))
        except BaseException as error:
            raised.append(error)
        after()

    hanging, ended = connect(), threading.Event()
    thread = threading.Thread(target=run, args=(hanging, BOX, ended.set), daemon=True)
    thread.start()
    eventually(lambda: server.calls()["get"] >= 8)
    other = connect()
    assert len(Taken().store(other.fetch(MailboxRef("bob@acme.test"), {}, nothing)).given) == 30
    hanging.close()
    assert ended.wait(DEADLINE_SECONDS)
    assert [type(error) for error in raised] == [Unavailable]
    assert len(Taken().store(other.refetch(MailboxRef("bob@acme.test"), [key(1)])).given) == 1
    server.tell(troubles=[])
    assert len(fetch_all(connect(), BOX).given) == 30


def test_the_descriptions_of_the_apis_are_those_that_come_with_the_client() -> None:
    """A release of Google's client without them would ask Google for them, over a connection of its own."""
    assert (
        gmail_users("https://gmail.example").getProfile(userId="me").uri.startswith("https://gmail.example/gmail/v1/users/me/")
    )
    assert directory("https://a.example/b").users().list().uri.startswith("https://a.example/b/admin/directory/v1/users")
