"""JMAP for the contract suite: a real Cyrus, filled over IMAP and read over JMAP."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from connectors.base import Connector
from connectors.jmap import JmapConnector, JmapSecrets, JmapSettings
from tests.contract.imap import fill_for_the_suite
from tests.contract.subject import QuietContext, Subject
from tests.support.dovecot import PASSWORD
from tests.support.other_imap import OtherImap
from tests.support.tcp_proxy import proxy


@contextmanager
def jmap(server: OtherImap) -> Iterator[Subject]:
    opened: list[JmapConnector] = []
    fill_for_the_suite(server, "jmap", inbox=360)

    def connect(port: int = server.http_port, user: str = "jmap", **more: Any) -> Connector:
        settings = JmapSettings.model_validate({"url": f"http://127.0.0.1:{port}", "user": user, **more})
        opened.append(JmapConnector(settings, JmapSecrets.model_validate({"password": PASSWORD}), QuietContext()))
        return opened[-1]

    with proxy(server.http_port, stall_after=300_000) as stalled:
        yield Subject(
            open=connect,
            open_blocked=lambda: connect(stalled.port, "stalled", downloads_at_once=1),
            contents=lambda address: server.filled[address.partition("@")[0]],
            downloads=lambda: sum(connector.downloaded for connector in opened),
        )
        for connector in opened:
            connector.close()
