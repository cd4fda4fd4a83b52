"""The server of an address: from published facts only."""

from __future__ import annotations

import socket
import struct
import threading

import pytest
from hypothesis import given
from hypothesis import strategies as st

from archiver.errors import UsageError
from archiver.sources.discovery import FoundServer, fetch_document, find_server, read_autoconfig
from archiver.sources.srv_records import SrvRecord, decode_answer, encode_question, find_srv

CONFIG = b"""<?xml version="1.0"?><clientConfig version="1.1"><emailProvider id="example.org"><domain>example.org</domain>
<incomingServer type="pop3"><hostname>pop.example.org</hostname><port>995</port><socketType>SSL</socketType></incomingServer>
<incomingServer type="imap"><hostname>plain.example.org</hostname><port>143</port><socketType>plain</socketType>
</incomingServer>
<incomingServer type="imap"><hostname>IMAP.example.org</hostname><port>993</port><socketType>SSL</socketType>
<username>%EMAILLOCALPART%</username><authentication>password-cleartext</authentication></incomingServer>
</emailProvider></clientConfig>"""


def _nowhere(host: str, path: str) -> bytes | None:
    return None


def _no_srv(name: str) -> list[SrvRecord]:
    return []


def test_a_well_known_provider_needs_no_network_and_has_a_hint() -> None:
    def forbidden(*_: str) -> bytes | None:
        raise AssertionError("the network was asked")

    found = find_server("Ann@GMail.com", forbidden, forbidden)  # type: ignore[arg-type]
    assert found is not None
    assert (found.host, found.port, found.origin, found.oauth) == ("imap.gmail.com", 993, "provider", "google")
    assert "app password" in found.hint
    assert found.settings() == {
        "host": "imap.gmail.com",
        "tls": "implicit",
        "user": "Ann@GMail.com",
        "oauth_provider": "google",
    }
    icloud = find_server("ann@icloud.com", forbidden, forbidden)  # type: ignore[arg-type]
    assert icloud is not None
    assert icloud.user == "ann"


def test_what_the_domain_publishes_comes_before_srv_records() -> None:
    asked: list[str] = []

    def fetch(host: str, path: str) -> bytes | None:
        asked.append(f"{host}{path}")
        return CONFIG if host == "example.org" else None

    found = find_server("ann@example.org", fetch, lambda _: [SrvRecord(1, 1, 993, "other.example.org")])
    assert found == FoundServer("imap.example.org", 993, "implicit", "ann", "autoconfig")
    assert asked == [
        "autoconfig.example.org/mail/config-v1.1.xml?emailaddress=ann@example.org",
        "example.org/.well-known/autoconfig/mail/config-v1.1.xml",
    ]


def test_srv_records_are_the_last_resort_and_nothing_is_guessed() -> None:
    records = {"_imap._tcp.example.org": [SrvRecord(1, 1, 1430, "mail.example.net")]}
    found = find_server("ann@example.org", _nowhere, lambda name: records.get(name, []))
    assert found is not None
    assert (found.host, found.port, found.tls, found.user) == ("mail.example.net", 1430, "starttls", "ann@example.org")
    assert found.settings()["port"] == 1430
    assert find_server("ann@example.org", _nowhere, _no_srv) is None


def test_the_server_of_a_known_provider_for_an_own_domain_can_sign_in() -> None:
    found = find_server("ann@company.example", _nowhere, lambda _: [SrvRecord(0, 0, 993, "outlook.office365.com")])
    assert found is not None
    assert found.oauth == "microsoft"


@pytest.mark.parametrize(
    "address", ["", "ann", "ann@", "@example.org", "a@b", "a@exa mple.org", "a@-x.org", "x" * 400 + "@a.org", "a@../x.org"]
)
def test_what_is_no_address_is_refused_before_anything_is_asked(address: str) -> None:
    with pytest.raises(UsageError, match="not an address"):
        find_server(address, _nowhere, _no_srv)


@pytest.mark.parametrize(
    "document",
    [
        b"",
        b"not xml",
        b"<clientConfig/>",
        b'<!DOCTYPE a [<!ENTITY x "y">]>' + CONFIG,
        CONFIG.replace(b"IMAP.example.org", b"host with spaces").replace(b"plain.", b"p."),
        CONFIG.replace(b">993<", b">99999<"),
        CONFIG.replace(b">993<", "²".join(["", ""]).encode()),
    ],
)
def test_broken_and_hostile_documents_give_nothing(document: bytes) -> None:
    assert read_autoconfig(document, "ann@example.org") is None


@pytest.mark.parametrize("host", ["localhost", "127.0.0.1", "169.254.169.254", "no.such.host.invalid"])
def test_no_document_is_fetched_from_our_own_network(host: str) -> None:
    assert fetch_document(host, "/") is None


def _answer(question: bytes) -> bytes:
    record = struct.pack(">HHH", 10, 5, 993) + b"\x04imap\x07example\x03org\0"
    other = b"\xc0\x0c" + struct.pack(">HHIH", 1, 1, 60, 4) + b"\x7f\0\0\1"
    srv = b"\xc0\x0c" + struct.pack(">HHIH", 33, 1, 60, len(record)) + record
    return question[:2] + struct.pack(">HHHHH", 0x8180, 1, 2, 0, 0) + question[12:] + other + srv


def test_a_resolver_is_asked_for_srv_records() -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as server:
        server.bind(("127.0.0.1", 0))

        def serve() -> None:
            question, client = server.recvfrom(4096)
            server.sendto(_answer(question), client)

        thread = threading.Thread(target=serve)
        thread.start()
        found = find_srv("_imaps._tcp.example.org", ["127.0.0.1"], server.getsockname()[1])
        thread.join()
    assert found == [SrvRecord(10, 5, 993, "imap.example.org")]


@given(st.binary(max_size=200))
def test_any_answer_is_read_or_left_out(data: bytes) -> None:
    decode_answer(data)
    decode_answer(_answer(encode_question("a.example", 1))[:12] + data)


def test_a_name_that_points_to_itself_ends() -> None:
    assert decode_answer(struct.pack(">HHHHHH", 1, 0, 1, 1, 0, 0) + b"\xc0\x0c") == []
