"""Waits for new mail on an open connection (RFC 2177), for all folders at once if the server can (RFC 5465)."""

from __future__ import annotations

import re
import socket
from collections.abc import Callable

from connectors.errors import Unavailable
from connectors.imap.errors import CommandRefused, FolderClosed, FolderGone, Silent
from connectors.imap.session import ImapSession
from connectors.imap.settings import ImapSettings
from connectors.imap.wire import Wire

_RENEW_SECONDS = 20 * 60.0
"""Less than the half hour after which servers disconnect."""
_KEEP_ALIVE_SECONDS = 120
"""Less than the time after which firewalls drop an idle connection."""
_NEWS = re.compile(rb"\d+ (?:EXISTS|EXPUNGE)\b|STATUS |VANISHED|LIST ", re.IGNORECASE)
_NOTIFY = b"NOTIFY SET (SELECTED (MessageNew MessageExpunge)) (PERSONAL (MessageNew MessageExpunge MailboxName))"


def watch(session: ImapSession, settings: ImapSettings, on_news: Callable[[], None]) -> None:
    """Runs until the connection is lost; returns at once if the server has no IDLE. Each start counts as news, because mail may
    have arrived before."""
    while not session.closed.is_set():
        wire = session.wire
        if "IDLE" not in wire.capabilities:
            return
        _keep_alive(wire.sock)
        _open(session, settings, wire)
        tag = wire.send(b"IDLE")
        wire.wait_for_continuation(tag)
        on_news()
        wire.sock.settimeout(_RENEW_SECONDS)
        try:
            _listen(wire, tag, on_news)
        except Silent:
            session.close_all()  # the state of a connection idle for so long is unknown: open a new one


def _open(session: ImapSession, settings: ImapSettings, wire: Wire) -> None:
    folders = session.folders()
    everything = next((folder for folder in folders if settings.gmail_labels and "\\all" in folder.attributes), None)
    inbox = next((folder for folder in folders if folder.name == "INBOX"), folders[0])
    try:
        session.examine(everything or inbox)
        if "NOTIFY" in wire.capabilities:
            wire.run(_NOTIFY)
    except (FolderGone, FolderClosed) as error:
        raise Unavailable(f"the folder to watch can't be opened: {error}") from error
    except CommandRefused:
        return  # then only one folder is watched


def _listen(wire: Wire, tag: bytes, on_news: Callable[[], None]) -> None:
    while True:
        response = wire.read()
        if response.tag == tag:
            raise Unavailable("the server ended IDLE")
        if response.tag == b"*" and _NEWS.match(response.text):
            on_news()


def _keep_alive(sock: socket.socket) -> None:
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    if hasattr(socket, "TCP_KEEPIDLE"):
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, _KEEP_ALIVE_SECONDS)
