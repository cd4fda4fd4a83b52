"""Connects and logs in."""

from __future__ import annotations

import base64
import contextlib
import imaplib
import logging
import re
import socket
import ssl
from collections.abc import Iterable

from imapclient import IMAPClient, SocketTimeout
from imapclient.exceptions import IMAPClientError

from connectors.errors import AuthFailed, Unavailable
from connectors.imap.accounts import Account
from connectors.imap.errors import CommandRefused, Dropped, one_line, refused_login, throttling
from connectors.imap.settings import ImapSettings
from connectors.imap.takeover import quieten, take_over
from connectors.imap.wire import Response, Sink, Wire, quoted

_CAPABILITY = re.compile(rb"CAPABILITY ([^\]\r\n]*)", re.IGNORECASE)

log = logging.getLogger("connectors.imap")


def connect(settings: ImapSettings, sink: Sink) -> Wire:
    """A connection that is not logged in yet."""
    where = f"{settings.host}:{settings.port_number}"
    try:
        context = None if settings.tls == "none" else _tls_context(settings)
        client = IMAPClient(
            settings.host,
            settings.port_number,
            ssl=settings.tls == "implicit",
            ssl_context=context,
            timeout=SocketTimeout(settings.connect_timeout_seconds, settings.timeout_seconds),
        )
        quieten(client)
        try:
            if settings.tls == "starttls":
                client.starttls(context)
            capabilities = _names(client.capabilities())
        except BaseException:
            with contextlib.suppress(OSError):
                client.shutdown()
            raise
    except ssl.SSLCertVerificationError as error:
        hint = "set ca or ca_file to its authority, or set accept_invalid_certificate"
        raise Unavailable(f"the certificate of {where} is not trusted: {error.verify_message} ({hint})") from error
    except (OSError, EOFError) as error:
        raise Unavailable(f"{where} can't be reached: {getattr(error, 'strerror', None) or error}") from error
    except (IMAPClientError, imaplib.IMAP4.error) as error:
        text = _text(error)
        raise throttling("", text) or Unavailable(f"{where} refused the connection: {one_line(text)}") from error
    sock, file = take_over(client)
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    greeting = client.welcome if isinstance(client.welcome, bytes) else b""
    return Wire(sock, file, capabilities, sink, greeting.decode("latin-1"))


def _names(capabilities: Iterable[bytes]) -> frozenset[str]:
    return frozenset(name.decode("latin-1").upper() for name in capabilities)


def log_in(wire: Wire, settings: ImapSettings, account: Account, token: str | None) -> None:
    """Raises AuthFailed, Throttled or Unavailable."""
    try:
        if settings.auth == "password":
            said = _with_password(wire, settings, account)
        else:
            said = _with_token(wire, settings, account, token)
    except CommandRefused as refused:
        raise refused_login(refused.text, account.user) from refused
    except Dropped as dropped:
        pause = throttling(dropped.code, dropped.said)
        raise pause or Unavailable(f"the server did not respond to the login of {account.user}: {dropped}") from dropped
    wire.capabilities = _capabilities(*said) or _ask_capabilities(wire)


def _with_password(wire: Wire, settings: ImapSettings, account: Account) -> list[bytes]:
    if account.password is None:
        raise AuthFailed(f"there is no password for {account.user}")
    user, on_behalf_of = account.user, ""
    if settings.master_user and settings.master_login == "suffix":
        user = f"{account.user}{settings.master_separator}{settings.master_user}"
    elif settings.master_user:
        user, on_behalf_of = settings.master_user, account.user
    if "AUTH=PLAIN" in wire.capabilities or on_behalf_of:
        return _authenticate(wire, b"PLAIN", f"{on_behalf_of}\0{user}\0{account.password}".encode())
    if "LOGINDISABLED" in wire.capabilities:
        raise AuthFailed("the server accepts no password without TLS: set tls to starttls or implicit")
    try:
        return _conclude(wire, wire.send(b"LOGIN " + quoted(user) + b" " + quoted(account.password)))
    except ValueError:
        raise AuthFailed(f"the password of {account.user} contains a line break") from None


def _with_token(wire: Wire, settings: ImapSettings, account: Account, token: str | None) -> list[bytes]:
    if token is None:
        raise AuthFailed(f"there is no OAuth token for {account.user}")
    if settings.auth == "xoauth2":
        return _authenticate(wire, b"XOAUTH2", f"user={account.user}\1auth=Bearer {token}\1\1".encode())
    payload = f"n,a={account.user},\1host={settings.host}\1port={settings.port_number}\1auth=Bearer {token}\1\1"
    return _authenticate(wire, b"OAUTHBEARER", payload.encode())


def _authenticate(wire: Wire, mechanism: bytes, payload: bytes) -> list[bytes]:
    encoded = base64.b64encode(payload)
    if "SASL-IR" in wire.capabilities:
        return _conclude(wire, wire.send(b"AUTHENTICATE " + mechanism + b" " + encoded))
    tag = wire.send(b"AUTHENTICATE " + mechanism)
    wire.wait_for_continuation(tag)
    wire.write(encoded + b"\r\n")
    return _conclude(wire, tag)


def _conclude(wire: Wire, tag: bytes) -> list[bytes]:
    """All responses until the command ends. A challenge after ours is an error message that expects a reply."""
    said = []
    while True:
        response = wire.read()
        if response.tag == b"+":
            wire.write(b"\r\n")
            continue
        said.append(response.text)
        if response.tag == tag:
            wire.forget(tag)
            status, _, rest = response.text.partition(b" ")
            if status.upper() != b"OK":
                raise CommandRefused(status.decode("latin-1"), rest.decode("utf-8", "replace"))
            return said


def _capabilities(*said: bytes) -> frozenset[str]:
    for text in reversed(said):
        found = _CAPABILITY.search(text)
        if found:
            return frozenset(found[1].decode("latin-1").upper().split())
    return frozenset()


def _ask_capabilities(wire: Wire) -> frozenset[str]:
    try:
        responses: list[Response] = wire.run(b"CAPABILITY")
    except (Dropped, CommandRefused) as error:
        raise Unavailable(f"the server did not report its capabilities: {error}") from error
    return _capabilities(*(response.text for response in responses))


def _tls_context(settings: ImapSettings) -> ssl.SSLContext:
    try:
        context = ssl.create_default_context(cafile=settings.ca_file, cadata=settings.ca)
    except (OSError, ValueError) as error:
        named = f"ca_file {settings.ca_file}" if settings.ca_file else "ca"
        raise Unavailable(f"{named} can't be used: {getattr(error, 'strerror', None) or error}") from error
    if settings.accept_invalid_certificate:
        log.warning("the certificate of %s is not verified: anyone on the network path can read the traffic", settings.host)
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    return context


def _text(error: Exception) -> str:
    first = error.args[0] if error.args else error
    return first.decode("utf-8", "replace") if isinstance(first, bytes) else str(first)
