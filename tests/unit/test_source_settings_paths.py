"""Settings by their type and mark: which name files of the server, and which decide where secrets go."""

from __future__ import annotations

from ipaddress import ip_address
from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel

from archiver.access.principal import LOCAL_OPERATOR, ROLE_RIGHTS, Principal
from archiver.db.states import UserRole
from archiver.errors import UsageError
from archiver.public_address import is_public
from archiver.sources.destinations import SecretsNeeded, check_hosts, moved_settings, secrets_to_keep
from archiver.sources.kinds import kind_of, kinds, refuse_server_paths, server_paths, validate
from connectors.selection import Destination, destinations

IMAP = {"host": "imap.example.org", "user": "ann@example.org"}
USER = Principal("bob", UserRole.USER, ROLE_RIGHTS[UserRole.USER])


def test_paths_are_found_by_their_type() -> None:
    assert server_paths(kind_of("imap")) == {"ca_file", "users_file"}
    assert server_paths(kind_of("files")) == {"paths"}
    assert {"trouble", "trouble_in", "journal_path", "memory_path", "down_path"} <= server_paths(kind_of("fake"))


@pytest.mark.parametrize(
    ("kind", "settings"),
    [
        ("imap", {**IMAP, "ca_file": "/etc/passwd"}),
        ("imap", {"host": "h", "users_file": "/etc/passwd"}),
        ("microsoft", {"ca_file": "/etc/passwd"}),
        ("files", {"paths": "/etc"}),
        ("fake", {"trouble": {"hold_path": "/etc/passwd"}}),
        ("fake", {"trouble": '{"hold_path": "/etc/passwd"}'}),
        ("fake", {"trouble_in": {"*": {"hold_path": "/etc/passwd"}}}),
        ("fake", {"trouble": "neither JSON nor anything"}),
    ],
)
def test_a_file_of_the_server_is_refused_wherever_it_is_named(kind: str, settings: dict[str, Any]) -> None:
    with pytest.raises(UsageError, match="on the server itself"):
        refuse_server_paths(kind_of(kind), settings)


def test_what_names_no_file_is_taken() -> None:
    refuse_server_paths(kind_of("imap"), {**IMAP, "ca_file": None, "ca": "-----BEGIN CERTIFICATE-----"})
    refuse_server_paths(kind_of("fake"), {"trouble": {"poison": ["INBOX/0"]}})


def test_samples_are_a_kind_of_their_own() -> None:
    assert {kind.name for kind in kinds()} - {kind.name for kind in kinds(samples=False)} == {"fake"}
    with pytest.raises(UsageError):
        kind_of("fake", samples=False)


def test_every_address_of_a_server_is_marked_as_a_destination() -> None:
    """By its name, so that a new setting can't be forgotten."""
    words = {"host", "hosts", "port", "tls", "url", "authority", "graph", "cloud", "ca", "certificate", "server"}
    for kind in kinds():
        named = {name for name in kind.settings.model_fields if words & set(name.split("_"))}
        assert named == set(destinations(kind.settings)), kind.name


def test_where_a_source_connects_to() -> None:
    def hosts(kind: str, settings: dict[str, Any]) -> tuple[str, ...]:
        return tuple(kind_of(kind).settings.model_validate(settings).hosts())  # type: ignore[attr-defined]

    assert hosts("imap", {**IMAP, "oauth_token_url": "https://login.example.org/token"}) == (
        "imap.example.org",
        "login.example.org",
    )
    assert hosts("microsoft", {"client_id": "x", "tenant": "t"}) == ("login.microsoftonline.com", "graph.microsoft.com")
    assert hosts("outlook", {"client_id": "x", "graph": "https://graph.example.org"})[1] == "graph.example.org"
    assert "gmail.googleapis.com" in hosts("google", {"admin": "a@example.org"})


@pytest.mark.parametrize(
    ("change", "moved"),
    [
        ({}, []),
        ({"folders_out": ["Junk"]}, []),
        ({"host": "evil.example.net"}, ["host"]),
        ({"port": 1993}, ["port"]),
        ({"tls": "starttls"}, ["tls"]),
        ({"accept_invalid_certificate": True}, ["accept_invalid_certificate"]),
        ({"oauth_token_url": "https://evil.example.net"}, ["oauth_token_url"]),
    ],
)
def test_a_source_moves_with_its_destination_alone(change: dict[str, Any], moved: list[str]) -> None:
    after = _settings({**IMAP, **change})
    assert moved_settings(kind_of("imap"), IMAP, after) == moved


def test_stored_secrets_are_needed_again_after_a_move() -> None:
    stored = {"password": "old", "token": ""}
    assert secrets_to_keep(stored, {}, []) == stored
    assert secrets_to_keep(stored, {"password": "new"}, ["host"]) == {}
    with pytest.raises(SecretsNeeded, match="host changed: enter password again"):
        secrets_to_keep(stored, {}, ["host"])


def test_only_allowed_servers() -> None:
    check_hosts(_settings(IMAP), ["imap.example.org"], LOCAL_OPERATOR)
    check_hosts(_settings(IMAP), ["*.Example.org"], LOCAL_OPERATOR)
    for patterns in (["example.org"], ["imap.example.org.evil.net"]):
        with pytest.raises(UsageError, match="SOURCE_HOSTS does not allow"):
            check_hosts(_settings(IMAP), patterns, LOCAL_OPERATOR)


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "10.1.2.3", "::1", "169.254.169.254", "2130706433", "no.invalid"])
def test_private_servers_are_for_administrators(host: str) -> None:
    check_hosts(_settings({**IMAP, "host": host}), [], LOCAL_OPERATOR)
    with pytest.raises(UsageError, match="not a public server"):
        check_hosts(_settings({**IMAP, "host": host}), [], USER)


@pytest.mark.parametrize(
    ("address", "public"),
    [
        ("8.8.8.8", True),
        ("2606:4700::1111", True),
        ("127.0.0.1", False),
        ("0.0.0.0", False),
        ("10.0.0.1", False),
        ("172.16.5.5", False),
        ("192.168.1.1", False),
        ("169.254.169.254", False),
        ("100.64.0.1", False),
        ("224.0.0.1", False),
        ("255.255.255.255", False),
        ("::", False),
        ("::1", False),
        ("::127.0.0.1", False),
        ("::ffff:10.0.0.1", False),
        ("64:ff9b::10.0.0.1", False),
        ("64:ff9b::8.8.8.8", True),
        ("2002:0a00:0001::", False),
        ("fe80::1", False),
        ("fd00::1", False),
        ("ff02::1", False),
    ],
)
def test_public_addresses(address: str, public: bool) -> None:
    assert is_public(ip_address(address)) is public


def test_certificates_and_lists_as_text(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="only one of ca and ca_file"):
        validate(kind_of("imap"), {**IMAP, "ca": "x", "ca_file": str(tmp_path)}, {})
    with pytest.raises(UsageError, match="exactly one of user, users, users_list and users_file"):
        validate(kind_of("imap"), {**IMAP, "users_list": "bob"}, {})


def _settings(values: dict[str, Any]) -> BaseModel:
    return kind_of("imap").settings.model_validate(values)


def test_marks_are_destinations() -> None:
    assert destinations(kind_of("imap").settings)["host"] is Destination.HOST
