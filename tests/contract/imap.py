"""IMAP for the contract suite: a real Dovecot, with and without ids of messages, a real Cyrus and a real Courier."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from functools import partial
from hashlib import sha256
from typing import Any

from connectors.base import Connector
from connectors.imap import ImapConnector, ImapSecrets, ImapSettings
from tests.contract.subject import QuietContext, Subject
from tests.support.dovecot import PASSWORD, Dovecot, message
from tests.support.other_imap import OtherImap
from tests.support.tcp_proxy import proxy

FOLDERS = {"INBOX": 260, "Projekte/Übersicht": 40, "日本語 フォルダ": 3, 'With a "quote" & more': 2, "Trash": 3}


@contextmanager
def imap(user: str, folders: dict[str, list[int]], settings: dict[str, Any], server: Dovecot) -> Iterator[Subject]:
    opened: list[ImapConnector] = []
    if not server.maildir(user).exists():
        for folder, sizes in folders.items():
            server.fill(user, folder, [message(number, size, folder.encode().hex()) for number, size in enumerate(sizes)])

    def connect(**more: Any) -> Connector:
        chosen = ImapSettings.model_validate({**server.settings(user), **settings, **more})
        opened.append(ImapConnector(chosen, ImapSecrets.model_validate({"password": PASSWORD}), QuietContext()))
        return opened[-1]

    def contents(address: str) -> Counter[str]:
        assert address == f"{user}@localhost"
        files = list(server.maildir(user).rglob("cur/*"))
        return Counter(sha256(path.read_bytes()).hexdigest() for path in files)

    with ExitStack() as stack:
        stalled = stack.enter_context(proxy(server.port, stall_after=255_000))
        yield Subject(
            open=connect,
            open_blocked=lambda: connect(port=stalled.port, user="stalled", connections=1),
            contents=contents,
            downloads=lambda: sum(connector.downloaded for connector in opened),
        )
        for connector in opened:
            connector.close()


@contextmanager
def imap_with_stalled(user: str, folders: dict[str, list[int]], settings: dict[str, Any], server: Dovecot) -> Iterator[Subject]:
    if not server.maildir("stalled").exists():
        server.fill("stalled", "INBOX", [message(number, 1000) for number in range(300)])
    with imap(user, folders, settings, server) as subject:
        yield subject


SMALL = {folder: [1000] * count for folder, count in FOLDERS.items()}
LARGE = {"INBOX": [9 << 20, 300, 9 << 20, 9 << 20, 5 << 20, 5 << 20, 5 << 20]}

IMAP_SUBJECTS: dict[str, Callable[[Dovecot], AbstractContextManager[Subject]]] = {
    "imap-ids": partial(imap_with_stalled, "contract", SMALL, {"date_from": "2020-09-13"}),
    "imap-uids": partial(imap_with_stalled, "uids", SMALL, {"connections": 1}),  # on a server that can do little
    "imap-spooled": partial(imap_with_stalled, "spooled", LARGE, {}),
}


def fill_for_the_suite(server: OtherImap, user: str = "contract", inbox: int = 230) -> None:
    if user not in server.filled:
        for folder, count in {**OTHERS, "INBOX": inbox}.items():
            server.fill(user, folder, [message(number, 1000, folder.encode().hex()) for number in range(count)])
    if "stalled" not in server.filled:
        server.fill("stalled", "INBOX", [message(number, 1000) for number in range(300)])


OTHERS = {"INBOX": 230, "Projekte/Übersicht": 40, "日本語 フォルダ": 3, "Trash": 3}


@contextmanager
def other_imap(server: OtherImap) -> Iterator[Subject]:
    """The suite on another server: what it holds is known from filling it."""
    opened: list[ImapConnector] = []
    fill_for_the_suite(server)

    def connect(**more: Any) -> Connector:
        chosen = ImapSettings.model_validate({**server.settings("contract"), **more})
        opened.append(ImapConnector(chosen, ImapSecrets.model_validate({"password": PASSWORD}), QuietContext()))
        return opened[-1]

    with proxy(server.port, stall_after=255_000) as stalled:
        yield Subject(
            open=connect,
            open_blocked=lambda: connect(port=stalled.port, user="stalled", connections=1),
            contents=lambda address: server.filled[address.partition("@")[0]],
            downloads=lambda: sum(connector.downloaded for connector in opened),
        )
        for connector in opened:
            connector.close()
