"""Each row of connectors/imap/providers.py, played by a server with the habits that the row describes."""

from __future__ import annotations

import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import pytest

from connectors.errors import AuthFailed, Unavailable
from connectors.imap import ImapConnector, ImapSecrets, ImapSettings, bodies, providers
from connectors.imap.providers import PROVIDERS, ImapProvider
from tests.contract.subject import QuietContext, Taken, nothing
from tests.support.dovecot import message
from tests.support.imap_server import Mail, Script, imap_server


def mails(*uids: int) -> dict[int, Mail]:
    return {uid: Mail(message(uid, 300), gmail_id=uid) for uid in uids}


@pytest.fixture(autouse=True)
def _all_names_are_this_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    """A name server that sends every provider's name to the server of the test."""
    real = socket.getaddrinfo
    monkeypatch.setattr(socket, "getaddrinfo", lambda host, port, *args, **named: real("127.0.0.1", port, *args, **named))


@contextmanager
def connected(host: str, script: Script, **settings: Any) -> Iterator[ImapConnector]:
    with imap_server(script) as port:
        values = {"host": host, "port": port, "tls": "none", "user": "alice@example.org", "timeout_seconds": 5, **settings}
        secrets = ImapSecrets.model_validate({"password": "secret"})
        connector = ImapConnector(ImapSettings.model_validate(values), secrets, QuietContext())
        try:
            yield connector
        finally:
            connector.close()


def everything(connector: ImapConnector, state: dict[str, Any] | None = None) -> Taken:
    return Taken().store(connector.fetch(next(iter(connector.mailboxes())), state or {}, nothing))


def provider(name: str) -> ImapProvider:
    return next(row for row in PROVIDERS if row.name == name)


@dataclass
class Case:
    host: str
    script: Callable[[], Script]
    expected: int
    """How many messages are archived."""
    settings: dict[str, Any] = field(default_factory=dict)
    skipped: int = 0


def _gmail() -> Script:
    box = mails(1, 2, 3)
    folders = {"INBOX": mails(1, 2), "[Gmail]/All Mail": box}
    return Script(folders, "IMAP4rev1 X-GM-EXT-1", {"[Gmail]/All Mail": "\\All"})


CASES: dict[str, Case] = {
    "Gmail": Case("imap.gmail.com", _gmail, 3),
    "Exchange Online, Outlook.com": Case(
        "outlook.office365.com", lambda: Script({"INBOX": mails(1, 2)}, sizes={1: 9, 2: 9000}), 2
    ),
    "Yahoo Mail, for export": Case(
        "export.imap.mail.yahoo.com",
        lambda: Script({"Inbox": mails(*range(1, 8))}, "IMAP4rev1 MESSAGELIMIT=3", message_limit=3),
        7,
    ),
    "Yahoo Mail, AOL": Case(
        "imap.mail.yahoo.com", lambda: Script({"Inbox": mails(*range(1, 8))}, "IMAP4rev1 MESSAGELIMIT=3", message_limit=3), 7
    ),
    "GMX, WEB.DE, mail.com": Case(
        "imap.web.de",
        lambda: Script({"INBOX": mails(743_024_218, 743_031_307), "Spamverdacht": mails(4)}),
        2,
        skipped=1,
    ),
    "iCloud Mail": Case(
        "imap.mail.me.com",
        lambda: Script({"INBOX": mails(1, 2), "Deleted Messages": mails(1)}),
        2,
        skipped=1,
    ),
    "Fastmail": Case("imap.fastmail.com", lambda: Script({"INBOX": mails(1, 2)}), 2),
    "Zoho Mail": Case("imappro.zoho.eu", lambda: Script({"INBOX": mails(1, 2)}), 2),
    "mail.de": Case("imap.mail.de", lambda: Script({"INBOX": mails(1)}, "IMAP4rev1 ID", bad_commands={"ID"}), 1),
    "Proton Mail Bridge": Case(
        "127.0.0.1",
        lambda: Script(
            {"INBOX": mails(1), "All Mail": mails(1, 2), "Labels/work": mails(1)},
            greeting="* OK Proton Mail Bridge 03.12 ready",
        ),
        1,
        {"folders_out": "All Mail,Labels/*"},
        3,
    ),
    "Courier": Case(
        "mail.example.org",
        lambda: Script({"INBOX": mails(1), "INBOX.Trash": mails(2)}, delimiter=".", greeting="* OK Courier-IMAP ready."),
        1,
        skipped=1,
    ),
    "Cyrus": Case("mail.example.org", lambda: Script({"INBOX": mails(1)}, greeting="* OK Cyrus IMAP 3.6.1 server ready"), 1),
    "Stalwart": Case(
        "mail.example.org", lambda: Script({"INBOX": mails(1)}, greeting="* OK Stalwart IMAP4rev2 at your service."), 1
    ),
    "Exchange Server": Case(
        "mail.example.org",
        lambda: Script(
            {"INBOX": mails(1), "Deleted Items": mails(2), "Junk Email": mails(3)},
            greeting="* OK The Microsoft Exchange IMAP4 service is ready.",
            sizes={1: 3},
        ),
        1,
        skipped=2,
    ),
    "hMailServer": Case(
        "mail.example.org",
        lambda: Script({"INBOX": mails(1), "INBOX.Old": mails(2)}, delimiter=".", greeting="* OK IMAPrev1"),
        2,
    ),
    "Dovecot": Case(
        "mail.example.org", lambda: Script({"INBOX": mails(1)}, greeting="* OK [CAPABILITY IMAP4rev1] Dovecot ready."), 1
    ),
}


def test_each_row_has_a_case_and_a_document() -> None:
    assert [row.name for row in PROVIDERS] == list(CASES)
    assert all(row.documented and all(url.startswith("https://") for url in row.documented) for row in PROVIDERS)
    assert all(row.hosts or row.says for row in PROVIDERS)


@pytest.mark.parametrize("name", CASES)
def test_a_server_with_these_habits_is_recognised_and_read_completely(name: str) -> None:
    case = CASES[name]
    script = case.script()
    with connected(case.host, script, **case.settings) as connector:
        connector.check()
        taken = everything(connector)
        again = everything(connector, taken.state)
    hint = provider(name).hint
    assert [note for note in connector.notes if hint and hint in note] == ([f"{name}: {hint}"] if hint else [])
    assert (len(taken.given), len(taken.skipped), taken.failed) == (case.expected, case.skipped, set())
    assert again.given == []
    assert not script.counts["too many asked"]
    assert not any("FETCH" in one and "RFC822)" in one for one in script.commands), "iCloud returns nothing for it"


def test_a_limited_search_is_continued_until_everything_is_listed() -> None:
    script = Script({"Inbox": mails(*range(1, 21))}, "IMAP4rev1 MESSAGELIMIT=3", message_limit=3)
    with connected("imap.mail.yahoo.com", script) as connector:
        taken = everything(connector)
    assert len(taken.listed["INBOX"]) == len(taken.given) == 20


def test_mail_that_leaves_the_window_is_not_reported_as_gone(monkeypatch: pytest.MonkeyPatch) -> None:
    rows = [row if not row.newest_only else _with_window(row, 10) for row in PROVIDERS]
    monkeypatch.setattr(providers, "PROVIDERS", tuple(rows))
    script = Script({"Inbox": mails(*range(1, 11))})
    with connected("imap.mail.yahoo.com", script) as connector:
        box = next(iter(connector.mailboxes()))
        connector.check()
        assert any("not shown over IMAP" in note for note in connector.notes)
        taken = Taken().store(connector.fetch(box, {}, nothing))
        script.folders["Inbox"] = mails(*range(2, 12))
        batches = list(connector.fetch(box, taken.state, taken.known))
    assert [message.provider_key for batch in batches for message in batch.messages] == ["INBOX␟7␟11"]
    assert [listing.is_whole for batch in batches for listing in batch.listings] == [False]


def _with_window(row: ImapProvider, size: int) -> ImapProvider:
    values = {name: getattr(row, name) for name in ImapProvider.__slots__}
    return ImapProvider(**{**values, "newest_only": size})


def test_a_server_that_lists_fewer_than_it_counts_loses_nothing_here() -> None:
    script = Script({"INBOX": mails(*range(1, 9))})
    with connected("mail.example.org", script) as connector:
        box = next(iter(connector.mailboxes()))
        taken = Taken().store(connector.fetch(box, {}, nothing))
        script.search_omits = {3, 4}
        script.folders["INBOX"] = mails(*range(2, 12))
        batches = list(connector.fetch(box, taken.state, taken.known))
    assert sum(len(batch.messages) for batch in batches) == 3
    assert [listing.is_whole for batch in batches for listing in batch.listings] == [False]


@pytest.mark.parametrize(("chosen", "most"), [(None, 2), (4, 4)])
def test_a_provider_gets_few_connections_unless_the_source_says_otherwise(
    chosen: int | None, most: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bodies, "_MANY_MESSAGES", 10)
    monkeypatch.setattr(QuietContext, "connections", 4)
    script = Script({"INBOX": mails(*range(1, 60))}, greeting="* OK Courier-IMAP ready.")
    with connected("mail.example.org", script, **({"connections": chosen} if chosen else {})) as connector:
        assert len(everything(connector).given) == 59
    assert script.counts["most"] == most


def test_a_refused_further_connection_is_no_failure(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bodies, "_MANY_MESSAGES", 10)
    script = Script({"INBOX": mails(*range(1, 60))}, greeting="* OK Courier-IMAP ready.", max_connections=1)
    with connected("mail.example.org", script) as connector:
        assert len(everything(connector).given) == 59


def test_folders_that_are_listed_and_do_not_exist_are_named() -> None:
    """iCloud lists folders of notes."""
    script = Script({"INBOX": mails(1), "Notes": {}}, select_says={"Notes": "NO [NONEXISTENT] Mailbox does not exist"})
    with connected("imap.mail.me.com", script) as connector, pytest.raises(Unavailable, match="Notes"):
        everything(connector)


def test_a_refused_password_is_explained() -> None:
    script = Script({"INBOX": {}}, login_says="NO [AUTHENTICATIONFAILED] LOGIN failed.")
    with connected("outlook.office365.com", script) as connector, pytest.raises(AuthFailed, match="accepts no passwords"):
        connector.check()
