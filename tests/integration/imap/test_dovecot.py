"""The connector against a real Dovecot: how one logs in, what costs a round trip, and what happens between two looks."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import pytest
from imapclient import IMAPClient

from connectors.base import Batch
from connectors.errors import AuthFailed, ConnectorError, Unavailable
from connectors.imap import ImapConnector, ImapSecrets, ImapSettings, session
from tests.contract.subject import QuietContext, Taken, nothing
from tests.support.dovecot import MASTER, MASTER_PASSWORD, PASSWORD, TOKEN, Dovecot, message
from tests.support.tcp_proxy import proxy
from tests.support.waiting import DEADLINE_SECONDS


class Context(QuietContext):
    def __init__(self) -> None:
        super().__init__()
        self.saved: dict[str, Any] = {}

    def save_credentials(self, credentials: Any) -> None:
        self.saved |= credentials


@contextmanager
def opened(settings: dict[str, Any], context: Context | None = None, **secrets: str) -> Iterator[ImapConnector]:
    chosen = ImapSettings.model_validate(settings)
    connector = ImapConnector(chosen, ImapSecrets.model_validate(secrets or {"password": PASSWORD}), context or Context())
    try:
        yield connector
    finally:
        connector.close()


def everything(connector: ImapConnector, state: dict[str, Any] | None = None, known: Any = nothing) -> Taken:
    taken = Taken()
    for box in connector.mailboxes():
        taken.store(connector.fetch(box, state or {}, known))
    return taken


def login(server: Dovecot, user: str) -> IMAPClient:
    client = IMAPClient("localhost", server.port, ssl=False)
    client.login(user, PASSWORD)
    return client


# --- the door


def test_tls_with_an_authority_of_ones_own(dovecot: Dovecot) -> None:
    dovecot.fill("tls", "INBOX", [message(1)])
    settings = dovecot.settings("tls", port=dovecot.tls_port, tls="implicit", ca_file=str(dovecot.ca_file))
    with opened(settings) as connector:
        assert len(everything(connector).hashes) == 1
    with opened(dovecot.settings("tls", tls="starttls", ca_file=str(dovecot.ca_file))) as connector:
        assert len(everything(connector).hashes) == 1


@pytest.mark.parametrize("tls", ["implicit", "starttls"])
def test_a_certificate_that_nobody_vouches_for_is_refused_unless_it_is_said_so(
    dovecot: Dovecot, caplog: pytest.LogCaptureFixture, tls: str
) -> None:
    dovecot.fill("tls", "INBOX", [message(1)])
    settings = dovecot.settings("tls", tls=tls, port=dovecot.tls_port if tls == "implicit" else dovecot.port)
    with opened(settings) as connector, pytest.raises(Unavailable, match="is not trusted"):
        connector.check()
    with opened({**settings, "accept_invalid_certificate": True}) as connector:
        connector.check()
    assert "is not verified" in caplog.text


def test_a_wrong_password_is_refused_and_never_shown(dovecot: Dovecot) -> None:
    with opened(dovecot.settings("alice"), password="hunter2") as connector, pytest.raises(AuthFailed) as caught:
        connector.check()
    assert "hunter2" not in str(caught.value)
    assert "hunter2" not in repr(connector._secrets)


@pytest.mark.parametrize("auth", ["xoauth2", "oauthbearer"])
def test_a_token_opens_the_door_and_a_wrong_one_does_not(dovecot: Dovecot, auth: str) -> None:
    settings = dovecot.settings("oauth", auth=auth)
    with opened(settings, token=TOKEN) as connector:
        connector.check()
    with opened(settings, token="rubbish") as connector, pytest.raises(AuthFailed) as caught:
        connector.check()
    assert "rubbish" not in str(caught.value)


def test_a_token_that_has_expired_is_renewed_and_kept(dovecot: Dovecot) -> None:
    asked: list[bytes] = []

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            asked.append(self.rfile.read(int(self.headers["Content-Length"])))
            answer = json.dumps({"access_token": TOKEN, "refresh_token": "the next one"}).encode()
            self.send_response(200)
            self.send_header("Content-Length", str(len(answer)))
            self.end_headers()
            self.wfile.write(answer)

        def log_message(self, *_: Any) -> None: ...

    with HTTPServer(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        url = f"http://127.0.0.1:{server.server_port}/token"
        settings = dovecot.settings("oauth", auth="xoauth2", oauth_token_url=url, oauth_client_id="us")
        context = Context()
        with opened(settings, context, token="expired", refresh_token="old") as connector:
            connector.check()
        server.shutdown()
    assert context.saved == {"token": TOKEN, "refresh_token": "the next one"}
    assert b"refresh_token=old" in asked[0]


def test_many_accounts_each_with_its_own_password(dovecot: Dovecot) -> None:
    for user in ("ann@corp.example", "ben@corp.example"):
        dovecot.fill(user, "INBOX", [message(1, more=user)])
    settings = {**dovecot.settings("x"), "users": "ann@corp.example, ben@corp.example"}
    del settings["user"]
    with opened(settings, passwords=f"ann@corp.example,{PASSWORD}\nben@corp.example,{PASSWORD}\n") as connector:
        assert [box.address for box in connector.mailboxes()] == ["ann@corp.example", "ben@corp.example"]
        assert len(everything(connector).hashes) == 2


@pytest.mark.parametrize("way", ["suffix", "sasl"])
def test_a_master_user_reads_the_mail_of_others(dovecot: Dovecot, way: str) -> None:
    dovecot.fill(f"boss-{way}", "INBOX", [message(1)])
    with opened(dovecot.settings(f"boss-{way}", master_user=MASTER, master_login=way), password=MASTER_PASSWORD) as connector:
        assert len(everything(connector).hashes) == 1


@pytest.mark.parametrize(
    "wrong",
    [
        {"user": None},
        {"users": "a,b"},
        {"port": 0},
        {"tls": "ssl"},
        {"tls": "none", "accept_invalid_certificate": True},
        {"host": "a\r\nb"},
        {"user": "a\r\nb"},
        {"timeout_seconds": -1},
        {"colour": "red"},
        {"oauth_token_url": "http://example.org/token"},
    ],
    ids=str,
)
def test_wrong_settings_are_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(ValueError):
        ImapSettings.model_validate({"host": "h", "user": "u", **wrong})


def test_a_server_that_is_not_there_is_unavailable() -> None:
    with opened({"host": "127.0.0.1", "port": 1, "user": "u", "tls": "none"}) as connector, pytest.raises(Unavailable):
        connector.check()


# --- what it costs


def test_a_second_look_at_many_folders_takes_one_round_trip_and_opens_none(dovecot: Dovecot) -> None:
    for number in range(200):
        dovecot.fill("folders", f"Folder {number:03}/日本語 {number}", [message(number)])
    with proxy(dovecot.port) as line:
        settings = dovecot.settings("folders", port=line.port)
        with opened(settings) as connector:
            first = everything(connector)
        assert len(first.hashes) == 200
        line.sent, before = b"", line.turns
        with opened(settings) as connector:
            assert not everything(connector, first.state).state
    commands = [part for part in line.sent.split(b"\r\n") if part and b"AUTHENTICATE" not in part]
    assert len([part for part in commands if b"CAPABILITY" not in part]) == 1
    assert line.turns - before <= 4, "greeting, login, list"


def test_a_server_that_can_do_little_is_asked_in_two_round_trips(plain_dovecot: Dovecot) -> None:
    for number in range(50):
        plain_dovecot.fill("folders", f"Folder {number:03}", [message(number)])
    with proxy(plain_dovecot.port) as line:
        settings = plain_dovecot.settings("folders", port=line.port)
        with opened(settings) as connector:
            first = everything(connector)
        line.sent = b""
        with opened(settings) as connector:
            assert not everything(connector, first.state).state
    assert b"EXAMINE" not in line.sent
    assert line.sent.count(b"STATUS") == 53  # the INBOX and those that Dovecot makes, too


def test_new_mail_is_found_by_its_uid_alone(dovecot: Dovecot) -> None:
    dovecot.fill("grows", "INBOX", [message(number) for number in range(300)])
    with opened(dovecot.settings("grows")) as connector:
        first = everything(connector)
    dovecot.fill("grows", "INBOX", [message(number) for number in range(300, 310)])
    with proxy(dovecot.port) as line, opened(dovecot.settings("grows", port=line.port)) as connector:
        again = everything(connector, first.state)
    assert len(again.hashes) == 10
    assert again.listed == {}
    assert b"UID SEARCH RETURN (ALL) UID 301:*" in line.sent
    assert line.sent.count(b"UID FETCH 301:310 ") == 2
    assert b"SEARCH RETURN (ALL) ALL" not in line.sent


@pytest.mark.parametrize("compress", ["always", "never"])
def test_compressed_or_not_the_bytes_are_the_same(dovecot: Dovecot, compress: str) -> None:
    dovecot.fill(f"packed-{compress}", "INBOX", [message(number, 50_000) for number in range(50)])
    settings = dovecot.settings(f"packed-{compress}", compress=compress)
    with proxy(dovecot.port) as line, opened({**settings, "port": line.port}) as connector:
        taken = everything(connector)
    assert len(taken.hashes) == 50
    assert (b"COMPRESS DEFLATE" in line.sent) == (compress == "always")


# --- between two looks


def test_another_numbering_downloads_nothing_where_messages_have_ids(dovecot: Dovecot) -> None:
    dovecot.fill("renumbered", "INBOX", [message(number) for number in range(40)])
    with opened(dovecot.settings("renumbered")) as connector:
        first = everything(connector)
        dovecot.lose_numbering("renumbered")
        dovecot.fill("renumbered", "INBOX", [message(99)])
        again = everything(connector, first.state, first.known)
    validities = [json.dumps(state["imap:renumbered@localhost:INBOX"]["validity"]) for state in (first.state, again.state)]
    assert validities[0] != validities[1], "Dovecot kept its numbering"
    assert len(again.hashes) == 1
    assert len(again.listed["INBOX"]) == 41


def test_another_numbering_starts_again_where_they_have_none(plain_dovecot: Dovecot) -> None:
    plain_dovecot.fill("renumbered", "INBOX", [message(number) for number in range(40)])
    with opened(plain_dovecot.settings("renumbered")) as connector:
        first = everything(connector)
        plain_dovecot.lose_numbering("renumbered")
        again = everything(connector, first.state, first.known)
    assert sorted(again.hashes.values()) == sorted(first.hashes.values())
    assert not set(again.hashes) & set(first.hashes)


def test_changed_flags_are_told(dovecot: Dovecot) -> None:
    dovecot.fill("flags", "INBOX", [message(number) for number in range(5)], flags="")
    with opened(dovecot.settings("flags")) as connector:
        box = next(iter(connector.mailboxes()))
        first = everything(connector)
        with login(dovecot, "flags") as client:
            client.select_folder("INBOX")
            client.add_flags([2], ["\\Seen", "important"])
        batches: list[Batch] = list(connector.fetch(box, first.state, first.known))
    changes = [change for batch in batches for change in batch.changes]
    assert [(change.flags, change.provider_key) for change in changes] == [(("\\Seen", "important"), first.given[1])]


def test_a_deleted_folder_leaves_its_name_with_nothing_in_it(dovecot: Dovecot) -> None:
    dovecot.fill("folderless", "Old", [message(1)])
    with opened(dovecot.settings("folderless")) as connector:
        first = everything(connector)
        with login(dovecot, "folderless") as client:
            client.delete_folder("Old")
        box = next(iter(connector.mailboxes()))
        (last,) = [
            batch
            for batch in connector.fetch(box, first.state, first.known)
            if [one.folder for one in batch.listings] == ["Old"]
        ]
    assert list(last.listings[0].provider_keys) == []
    assert last.state == {"imap:folderless@localhost:Old": None}


def test_a_daily_look_finds_what_counts_do_not_show(dovecot: Dovecot, monkeypatch: pytest.MonkeyPatch) -> None:
    dovecot.fill("daily", "INBOX", [message(number) for number in range(10)])
    with opened(dovecot.settings("daily")) as connector:
        first = everything(connector)
        lost = first.given[3]
        monkeypatch.setattr("time.time", lambda: 86400.0 * 30_000)
        again = everything(connector, first.state, lambda keys: first.known(keys) - {lost})
    assert again.given == [lost]
    assert len(again.listed["INBOX"]) == 10


@pytest.mark.parametrize("connections", [1, 2])
def test_lines_that_break_again_and_again_lose_nothing(
    dovecot: Dovecot, connections: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(session, "_PAUSE_SECONDS", 0.01)
    user = f"breaks{connections}"
    dovecot.fill(user, "INBOX", [message(number, 5000) for number in range(900)])
    settings = dovecot.settings(user, connections=connections)
    with proxy(dovecot.port, drop_after=700_000, times=7) as line, opened({**settings, "port": line.port}) as connector:
        taken = everything(connector)
    assert line.connections > 4
    assert len(taken.hashes) == len(taken.given) == 900
    assert taken.failed == set()


def test_a_server_that_is_killed_in_a_fetch_is_unavailable_and_what_came_is_kept(
    monkeypatch: pytest.MonkeyPatch, dovecot: Dovecot
) -> None:
    from tests.support.dovecot import dovecot as running

    with running() as server:
        server.fill("killed", "INBOX", [message(number, 20_000) for number in range(600)])
        with opened(server.settings("killed", connections=1)) as connector:
            box = next(iter(connector.mailboxes()))
            batches = connector.fetch(box, {}, nothing)
            taken = Taken()
            while not taken.hashes:
                taken.store([next(batches)])
            server.kill()
            with pytest.raises(ConnectorError):
                taken.store(batches)
        assert 100 <= len(taken.hashes) < 600
        server.start()
        with opened(server.settings("killed")) as connector:
            rest = everything(connector, json.loads(json.dumps(taken.state)))
    assert len(rest.hashes) + len(taken.hashes) == 600
    assert not set(rest.hashes) & set(taken.hashes)


def test_twenty_thousand_messages(dovecot: Dovecot) -> None:
    dovecot.fill("many", "INBOX", [message(number, 400) for number in range(20_000)])
    with opened(dovecot.settings("many")) as connector:
        box = next(iter(connector.mailboxes()))
        keys, largest = set(), 0
        for batch in connector.fetch(box, {}, nothing):
            keys |= {item.provider_key for item in batch.messages}
            largest = max(largest, len(batch.messages))
    assert len(keys) == 20_000
    assert largest == 200


def test_waiting_for_news(dovecot: Dovecot) -> None:
    dovecot.fill("waits", "INBOX", [message(1)])
    heard = threading.Semaphore(0)
    with opened(dovecot.settings("waits")) as connector:
        box = next(iter(connector.mailboxes()))
        ended: list[BaseException] = []

        def work() -> None:
            try:
                connector.watch(box, heard.release)
            except BaseException as error:
                ended.append(error)

        thread = threading.Thread(target=work)
        thread.start()
        assert heard.acquire(timeout=DEADLINE_SECONDS), "the beginning"
        with login(dovecot, "waits") as client:
            client.append("INBOX", message(2))
            assert heard.acquire(timeout=DEADLINE_SECONDS), "a message"
        connector.close()
        thread.join(DEADLINE_SECONDS)
        assert [type(error) for error in ended] == [Unavailable]


def test_a_server_that_can_not_tell_is_not_waited_for(plain_dovecot: Dovecot) -> None:
    with opened(plain_dovecot.settings("waits")) as connector:
        connector.watch(next(iter(connector.mailboxes())), lambda: None)


def test_real_mail_comes_out_as_it_lies_there(dovecot: Dovecot, corpus: Path) -> None:
    """As Dovecot serves it, which is with CRLF line ends."""
    files = [path for path in sorted((corpus / "public" / "torture").rglob("*")) if path.is_file()][:400]
    mails = [path.read_bytes().replace(b"\r\n", b"\n").replace(b"\n", b"\r\n") for path in files]
    mails = [data for data in dict.fromkeys(mails) if data and b"\0" not in data]
    user = f"torture-{corpus.name}"
    dovecot.fill(user, "INBOX", mails)
    from hashlib import sha256

    with opened(dovecot.settings(user)) as connector:
        taken = everything(connector)
    assert sorted(taken.hashes.values()) == sorted(sha256(data).hexdigest() for data in mails)
