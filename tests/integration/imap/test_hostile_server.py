"""What servers do that Dovecot never does. Nothing may be lost silently, and nothing may hang or blow up."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from connectors.base import Batch
from connectors.errors import AuthFailed, ConnectorError, Throttled, Unavailable
from connectors.imap import ImapConnector, ImapSecrets, ImapSettings, session
from tests.contract.subject import QuietContext, Taken, nothing
from tests.support.dovecot import message
from tests.support.imap_server import Mail, Script, imap_server


@pytest.fixture(autouse=True)
def _no_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    """The pauses between connections are for servers that have feelings."""
    monkeypatch.setattr(session, "_PAUSE_SECONDS", 0.01)


def mails(*uids: int, size: int = 300) -> dict[int, Mail]:
    return {uid: Mail(message(uid, size)) for uid in uids}


@contextmanager
def connected(script: Script, **settings: Any) -> Iterator[ImapConnector]:
    with imap_server(script) as port:
        values = {
            "host": "127.0.0.1",
            "port": port,
            "tls": "none",
            "user": "alice@example.org",
            "timeout_seconds": 5,
            **settings,
        }
        connector = ImapConnector(
            ImapSettings.model_validate(values), ImapSecrets.model_validate({"password": 'it\'s "secret"'}), QuietContext()
        )
        try:
            yield connector
        finally:
            connector.close()


def everything(connector: ImapConnector, state: dict[str, Any] | None = None) -> Taken:
    box = next(iter(connector.mailboxes()))
    return Taken().store(connector.fetch(box, state or {}, nothing))


def uids(keys: Any) -> list[int]:
    return sorted(int(key.rsplit("␟", 1)[1]) for key in keys)


def test_it_never_changes_anything() -> None:
    script = Script({"INBOX": mails(*range(1, 30))})
    with connected(script) as connector:
        everything(connector)
    words = " ".join(script.commands).upper()
    assert not any(word in words for word in ("SELECT", "STORE", "EXPUNGE", "APPEND", " BODY[]"))


@pytest.mark.parametrize(
    ("says", "error", "seconds"),
    [
        ("NO [AUTHENTICATIONFAILED] wrong password", AuthFailed, None),
        ("NO wrong password", AuthFailed, None),
        ("NO [UNAVAILABLE] the directory is down", Unavailable, None),
        ("NO [LIMIT] too many connections", Throttled, 60),
        ("NO [ALERT] Too many simultaneous connections. (Failure)", Throttled, 60),
        ("NO [OVERQUOTA] Account exceeded command or bandwidth limits", Throttled, 900),
        ("BAD what", AuthFailed, None),
    ],
)
def test_a_refused_login_is_what_it_says(says: str, error: type[ConnectorError], seconds: float | None) -> None:
    with connected(Script({"INBOX": {}}, login_says=says)) as connector, pytest.raises(error) as caught:
        everything(connector)
    assert "secret" not in str(caught.value)
    if isinstance(caught.value, Throttled):
        assert caught.value.retry_after_seconds == seconds


@pytest.mark.parametrize("greeting", ["* BYE too busy", "* BYE [UNAVAILABLE] maintenance", "SSH-2.0-OpenSSH_9.2", "* NO"])
def test_a_server_that_does_not_let_us_in_is_unavailable(greeting: str) -> None:
    with connected(Script({}, greeting=greeting)) as connector, pytest.raises(Unavailable):
        connector.check()


def test_a_message_at_which_the_server_hangs_up_is_named_and_the_rest_goes_on() -> None:
    script = Script({"INBOX": mails(*range(1, 51))}, drop_on={7})
    with connected(script) as connector:
        taken = everything(connector)
    assert uids(taken.failed) == [7]
    assert uids(taken.hashes) == [uid for uid in range(1, 51) if uid != 7]
    assert len(taken.listed["INBOX"]) == 50


def test_messages_that_are_refused_are_named_and_the_rest_goes_on() -> None:
    script = Script({"INBOX": mails(*range(1, 151))}, refuse={1, 80, 150})
    with connected(script) as connector:
        taken = everything(connector)
    assert uids(taken.failed) == [1, 80, 150]
    assert len(taken.hashes) == 147
    assert len(taken.given) == 147


def test_messages_that_are_listed_and_not_given_are_named() -> None:
    """An empty answer to a FETCH of known UIDs is an error, never the end of the folder."""
    script = Script({"INBOX": mails(*range(1, 21))}, withhold={3, 4}, nil={9})
    script.sizes = {9: 500}
    with connected(script) as connector:
        taken = everything(connector)
        box = next(iter(connector.mailboxes()))
        again = Taken().store(connector.refetch(box, taken.listed["INBOX"] - taken.keys))
    assert uids(taken.failed | again.failed) == [3, 4, 9]
    assert len(taken.hashes) == 17


def test_a_message_that_spoils_the_metadata_is_named() -> None:
    script = Script({"INBOX": mails(*range(1, 40))}, refuse_meta={13})
    with connected(script) as connector:
        taken = everything(connector)
    assert uids(taken.failed) == [13]
    assert len(taken.hashes) == 38


def test_a_server_that_hangs_up_every_few_messages_is_read_to_the_end() -> None:
    script = Script({"INBOX": mails(*range(1, 61))}, drop_every=8)
    with connected(script) as connector:
        taken = everything(connector)
    assert uids(taken.hashes) == list(range(1, 61))
    assert taken.failed == set()
    assert script.counts["bodies"] == 60, "something was fetched twice"


def test_a_server_that_hangs_up_too_often_is_left_alone_for_a_while() -> None:
    script = Script({"INBOX": mails(*range(1, 100))}, drop_every=3)
    taken = Taken()
    with connected(script) as connector, pytest.raises(Throttled):
        taken.store(connector.fetch(next(iter(connector.mailboxes())), {}, nothing))
    assert len(taken.hashes) >= 30
    with connected(script) as connector:
        box = next(iter(connector.mailboxes()))
        with pytest.raises(Throttled):
            taken.store(connector.fetch(box, taken.state, nothing))
    assert len(taken.given) == len(set(taken.given)) >= 60


def test_goodbye_with_a_reason_is_a_pause() -> None:
    script = Script({"INBOX": mails(*range(1, 9))}, drop_every=4, bye="[OVERQUOTA] bandwidth limit exceeded")
    taken = Taken()
    with connected(script) as connector, pytest.raises(Throttled) as caught:
        taken.store(connector.fetch(next(iter(connector.mailboxes())), {}, nothing))
    assert caught.value.retry_after_seconds == 900
    assert len(taken.hashes) == 4, "what came before is kept"


def test_overquota_in_answer_to_a_fetch_is_a_pause() -> None:
    script = Script({"INBOX": mails(1, 2)}, says_to_fetch="NO [OVERQUOTA] Account exceeded bandwidth limits")
    with connected(script) as connector, pytest.raises(Throttled):
        everything(connector)


def test_a_server_that_never_gives_anything_is_unavailable_after_a_few() -> None:
    script = Script({"INBOX": mails(*range(1, 90))}, drop_on=set(range(1, 90)))
    taken = Taken()
    with connected(script) as connector, pytest.raises(Unavailable):
        taken.store(connector.fetch(next(iter(connector.mailboxes())), {}, nothing))
    assert len(taken.failed) <= 3


def test_lies_about_size_do_no_harm() -> None:
    script = Script({"INBOX": mails(*range(1, 6), size=3000)})
    script.sizes = {1: 1, 2: 0, 3: 4_000_000_000, 4: 20 << 20}
    with connected(script) as connector:
        taken = everything(connector)
    assert uids(taken.hashes) == [1, 2, 3, 4, 5]


def test_a_message_that_is_larger_than_was_said_goes_to_disk() -> None:
    script = Script({"INBOX": {1: Mail(message(1, 9 << 20)), 2: Mail(message(2))}}, sizes={1: 100})
    with connected(script) as connector:
        box = next(iter(connector.mailboxes()))
        batches = list(connector.fetch(box, {}, nothing))
        large = [(item.path, item) for batch in batches for item in batch.messages if item.path is not None]
        assert [item.provider_key.rsplit("␟", 1)[1] for _, item in large] == ["1"]
        assert large[0][0].stat().st_size == len(script.folders["INBOX"][1].data)


def test_an_announced_terabyte_is_not_believed() -> None:
    script = Script({"INBOX": mails(1, 2, 3)}, literals={2: 1 << 40})
    with connected(script) as connector:
        taken = everything(connector)
    assert uids(taken.failed) == [2]
    assert uids(taken.hashes) == [1, 3]


def test_bodies_in_another_order_keep_their_names() -> None:
    script = Script({"INBOX": mails(*range(1, 250))}, backwards=True)
    with connected(script) as connector:
        taken = everything(connector)
    straight = Script({"INBOX": mails(*range(1, 250))})
    with connected(straight) as connector:
        assert everything(connector).hashes == taken.hashes


def test_folders_that_can_not_be_opened_are_told_and_the_others_are_read() -> None:
    script = Script({"INBOX": mails(1, 2), "Broken": mails(1), "Zoo": mails(5)}, select_says={"Broken": "NO internal error"})
    taken = Taken()
    with (
        connected(script) as connector,
        pytest.raises(Unavailable, match="1 of 3 folders can't be opened"),
    ):
        taken.store(connector.fetch(next(iter(connector.mailboxes())), {}, nothing))
    assert len(taken.hashes) == 3, "the others"


def test_a_login_that_works_while_no_folder_can_be_opened_is_unavailable() -> None:
    script = Script({"INBOX": mails(1)}, select_says={"INBOX": "NO [SERVERBUG] storage is down"})
    with connected(script) as connector:
        connector.check()
        with pytest.raises(Unavailable, match="storage is down"):
            everything(connector)


def test_a_folder_that_is_deleted_in_the_middle_is_no_error() -> None:
    script = Script({"INBOX": mails(1, 2), "Short": mails(*range(1, 30)), "Tail": mails(9)}, delete_folder_after=10)
    with connected(script) as connector:
        taken = everything(connector)
    assert {key.split("␟")[0] for key in taken.hashes} == {"INBOX", "Short", "Tail"}
    assert taken.failed == set()


def test_mail_that_appears_below_the_last_uid_is_found() -> None:
    script = Script({"INBOX": mails(10, 20, 30)})
    with connected(script) as connector:
        first = everything(connector)
        script.folders["INBOX"] |= mails(5, 15)
        box = next(iter(connector.mailboxes()))
        again = Taken().store(connector.fetch(box, first.state, first.known))
        assert uids(again.hashes) == [5, 15]
        assert uids(again.listed["INBOX"]) == [5, 10, 15, 20, 30]
        assert not list(connector.fetch(box, again.state, nothing))


def test_another_uidvalidity_starts_the_folder_again() -> None:
    script = Script({"INBOX": mails(1, 2, 3)})
    with connected(script) as connector:
        first = everything(connector)
        script.folders["INBOX"] = mails(1, 2)
        script.validity["INBOX"] = 8
        again = everything(connector, first.state)
    assert uids(again.hashes) == [1, 2]
    assert not set(again.hashes) & set(first.hashes)


def test_sparse_uids_are_never_walked_through() -> None:
    script = Script({"INBOX": mails(1, 1_000_000, 4_294_967_295)})
    with connected(script) as connector:
        taken = everything(connector)
    assert uids(taken.hashes) == [1, 1_000_000, 4_294_967_295]
    assert len([command for command in script.commands if command.startswith("UID FETCH")]) == 2


def test_an_empty_search_of_a_full_folder_is_not_believed() -> None:
    script = Script({"INBOX": mails(1, 2, 3)})
    with connected(script) as connector:
        first = everything(connector)
        script.empty_search = True
        script.folders["INBOX"] |= mails(4)
        with pytest.raises(Unavailable):
            everything(connector, first.state)


def test_no_folders_at_all_are_not_believed() -> None:
    with connected(Script({})) as connector, pytest.raises(Unavailable, match="no folders"):
        everything(connector)


@pytest.mark.parametrize(
    "answer",
    [
        b"\0\0\0\0",
        b"* LIST (((((((\r\n" * 3,
        b"* LIST " + b"(" * 100_000 + b"\r\n",
        b'* LIST () "/" {99999999999999999999}\r\n',
        b'* LIST () "/" {5}\r\nab',
        b"* 1 FETCH (UID 1 BODY[] {5}\r\nabcde\r\n",
        b"a9999 OK whatever\r\n",
        b"\r\n\r\n",
        b"x" * 100_000,
    ],
)
@pytest.mark.parametrize("command", ["LIST", "EXAMINE", "SEARCH", "FETCH"])
def test_rubbish_is_an_error_of_ours(command: str, answer: bytes) -> None:
    script = Script({"INBOX": mails(1, 2)}, raw_answers={command: answer})
    with connected(script) as connector, pytest.raises(ConnectorError):
        everything(connector)


@pytest.mark.parametrize("command", ["LIST", "EXAMINE", "SEARCH", "FETCH"])
def test_a_server_that_says_nothing_is_given_up(command: str, caplog: pytest.LogCaptureFixture) -> None:
    script = Script({"INBOX": mails(1, 2)}, silent_on=command)
    with connected(script, timeout_seconds=1) as connector, pytest.raises(Unavailable, match="timed out"):
        everything(connector)
    script.released.set()
    assert "imap_connection_lost drops=1 received=0 reason=timed out waiting for the server" in caplog.text


def test_gmail_gives_each_message_once_with_its_labels() -> None:
    inbox = {1: Mail(message(1), gmail_id=1001, labels='"\\\\Inbox" Work'), 2: Mail(message(2), gmail_id=1002)}
    everywhere = {**inbox, 3: Mail(message(3), gmail_id=1003, labels='"&ZeVnLIqe-"')}
    script = Script(
        {
            "INBOX": inbox,
            "Work": {1: inbox[1]},
            "[Gmail]/All Mail": everywhere,
            "[Gmail]/Trash": {1: Mail(message(9), gmail_id=1009)},
        },
        capabilities="IMAP4rev1 X-GM-EXT-1",
        attributes={"[Gmail]/All Mail": "\\All", "[Gmail]/Trash": "\\Trash"},
    )
    with connected(script) as connector:
        box = next(iter(connector.mailboxes()))
        batches: list[Batch] = list(connector.fetch(box, {}, nothing))
        given = {item.provider_key: item for batch in batches for item in batch.messages}
        assert sorted(given) == ["X-GM-MSGID␟1001", "X-GM-MSGID␟1002", "X-GM-MSGID␟1003"]
        assert given["X-GM-MSGID␟1001"].labels == ("Work", "\\Inbox")
        assert given["X-GM-MSGID␟1003"].labels == ("日本語",)
        assert "X-GM-THRID=1002" in given["X-GM-MSGID␟1001"].flags
        assert {item.folder for item in given.values()} == {"[Gmail]/All Mail"}
        assert [item.rule for batch in batches for item in batch.skipped] == ["include_trash: no"]
        again = Taken().store(connector.refetch(box, ["X-GM-MSGID␟1003"]))
        assert list(again.hashes) == ["X-GM-MSGID␟1003"]
        script.validity = dict.fromkeys(script.folders, 8)
        held = Taken().store(batches)
        assert not Taken().store(connector.fetch(box, held.state, held.known)).given, "downloaded twice"


@pytest.mark.parametrize(
    ("raw", "delimiter", "name"),
    [
        ("INBOX.Sent", ".", "INBOX/Sent"),
        ("inbox", "/", "INBOX"),
        ("Entw&APw-rfe", "/", "Entwürfe"),
        ("日本語", "/", "日本語"),
        ("Broken &*-", "/", "Broken &*-"),
        ("a\\\\b", "/", "a\\\\b"),
    ],
)
def test_folder_names_of_all_kinds(raw: str, delimiter: str, name: str) -> None:
    script = Script({raw: mails(1)}, delimiter=delimiter)
    with connected(script, include_drafts=True) as connector:
        taken = everything(connector)
    assert len(taken.hashes) == 1
    if "\\" not in raw:
        assert list(taken.listed) == [name]
