"""Mail into an account on a server that can do little and refuses some of it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import partial
from typing import Any

import pytest

from connectors.errors import Unavailable
from connectors.imap import ImapSecrets, ImapSettings, ImapTarget
from connectors.target import DeliveryResult, Outgoing
from tests.contract.subject import QuietContext
from tests.support.dovecot import message
from tests.support.imap_server import Script, imap_server

AT = datetime(2020, 2, 1, 10, tzinfo=UTC)


def outgoing(number: int, data: bytes | None = None, folder: str = "Back/日本") -> Outgoing:
    flags = ("\\Seen", "\\Recent", "\\Deleted", "X-GM-THRID=1", "work", "no (flag)")
    data = message(number) if data is None else data
    return Outgoing(str(number), folder, partial(iter, [data[:50], data[50:]]), flags, AT)


@dataclass
class Delivered:
    appended: int = 0
    present: int = 0
    failed: list[tuple[str, str]] = field(default_factory=list)


def deliver(script: Script, messages: list[Outgoing]) -> Delivered:
    with imap_server(script) as port:
        values: dict[str, Any] = {"host": "127.0.0.1", "port": port, "tls": "none", "user": "a"}
        target = ImapTarget(ImapSettings.model_validate(values), ImapSecrets.model_validate({"password": "x"}), QuietContext())
        try:
            found = [one for report in target.deliver(messages) for one in report]
        finally:
            target.close()
    results = [one.result for one in found]
    refused = [(one.id, one.reason) for one in found if one.result is DeliveryResult.REFUSED]
    return Delivered(results.count(DeliveryResult.DELIVERED), results.count(DeliveryResult.PRESENT), refused)


def test_folders_are_made_and_line_ends_and_flags_are_fit() -> None:
    script = Script({"INBOX": {}})
    done = deliver(script, [outgoing(1, message(1).replace(b"\r\n", b"\n")), outgoing(2)])
    assert (done.appended, done.present, done.failed) == (2, 0, [])
    mails = list(script.folders["Back/&ZeVnLA-"].values())
    assert [mail.data for mail in mails] == [message(1), message(2)]
    assert {mail.flags for mail in mails} == {"\\Seen work"}
    assert any('"01-Feb-2020 10:00:00 +0000"' in command for command in script.commands)


def test_what_is_there_is_skipped_also_when_it_was_ended_in_the_middle() -> None:
    script = Script({"INBOX": {}}, append_says={2: "NO [OVERQUOTA] the account is full"})
    with pytest.raises(Unavailable, match="full"):
        deliver(script, [outgoing(number) for number in range(1, 5)])
    script.append_says = {}
    done = deliver(script, [outgoing(number) for number in (1, 2, 3, 4, 4)])
    assert len(script.folders["Back/&ZeVnLA-"]) == 4
    assert done.appended + done.present == 5
    assert done.present >= 2


def test_one_that_is_refused_or_unreadable_is_named_and_the_others_go_on() -> None:
    def broken() -> Iterator[bytes]:
        yield b"From: x\r\n"
        raise OSError("the pack is damaged")

    script = Script({"INBOX": {}}, append_says={2: "NO not this one"})
    done = deliver(script, [outgoing(1), outgoing(2), Outgoing("3", "INBOX", broken), outgoing(4)])
    assert done.appended == 2
    assert sorted(done.failed) == [("2", "not this one"), ("3", "the pack is damaged")]
