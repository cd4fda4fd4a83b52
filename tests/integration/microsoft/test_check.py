"""`source check` says which step of the set-up is missing."""

from __future__ import annotations

from typing import Any

import pytest
import trustme

from connectors.errors import AuthFailed, Throttled, Unavailable
from connectors.kinds import KINDS
from tests.contract.microsoft import KeepingContext
from tests.integration.microsoft.conftest import connect
from tests.support.graph_server.running import GraphServer


def check(graph: GraphServer, **settings: Any) -> None:
    connector = connect(graph, **settings)
    try:
        connector.check()
    finally:
        connector.close()


def test_a_secret_or_a_certificate_opens_the_door(graph: GraphServer) -> None:
    check(graph)
    check(graph, secrets={"certificate": graph.certificate})
    check(graph, groups_in="staff")


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"secrets": {"client_secret": "wrong-and-secret"}}, "the client secret is wrong.*AADSTS7000215"),
        ({"tenant": "nowhere.example"}, "tenant does not exist.*AADSTS90002"),
        ({"client_id": "00000000-0000-0000-0000-000000000000"}, "no app with this client_id.*AADSTS700016"),
    ],
)
def test_what_entra_refuses(graph: GraphServer, settings: dict[str, Any], said: str) -> None:
    with pytest.raises(AuthFailed, match=said) as refused:
        check(graph, **settings)
    assert "wrong-and-secret" not in str(refused.value)


def test_a_certificate_that_entra_does_not_know(graph: GraphServer) -> None:
    other, third = (
        trustme.CA().issue_cert("other.example", key_type=trustme.KeyType.RSA).private_key_and_cert_chain_pem.bytes().decode()
        for _ in range(2)
    )
    with pytest.raises(AuthFailed, match="does not recognise this certificate"):
        check(graph, secrets={"certificate": other})
    curve = trustme.CA().issue_cert("other.example").private_key_and_cert_chain_pem.bytes().decode()
    mixed = other.partition("-----BEGIN CERTIFICATE")[0] + third.partition("-----BEGIN RSA PRIVATE KEY-----")[0] + third[-2000:]
    for wrong, said in (
        (other.replace("\nM", "\nX"), "can't be read"),
        (curve, "RSA key"),
        (mixed, "does not match the certificate"),
    ):
        with pytest.raises(AuthFailed, match=said):
            check(graph, secrets={"certificate": wrong})


@pytest.mark.parametrize(
    ("code", "said"),
    [
        ("7000222", "the client secret has expired"),
        ("7000229", "Grant admin consent"),
        ("65001", "Grant admin consent"),
        ("7000112", "the app is disabled"),
        ("700024", "clock of this machine"),
        ("53003", "Conditional Access"),
    ],
)
def test_other_codes_of_entra(graph: GraphServer, code: str, said: str) -> None:
    graph.control(entra={"status": 401, "error": "invalid_client", "error_description": f"AADSTS{code}: so it is."})
    with pytest.raises(AuthFailed, match=said):
        check(graph)


def test_an_error_of_entra_that_nobody_knows_is_quoted_without_secrets(graph: GraphServer) -> None:
    secret = graph.secrets["client_secret"]
    text = f"AADSTS999999: never heard of {secret} or eyJhbGciOi.eyJzdWIiOi.c2ln\r\nTrace ID: 7"
    graph.control(entra={"status": 401, "error": "invalid_client", "error_description": text})
    with pytest.raises(AuthFailed, match=r"AADSTS999999: never heard of … or …$"):
        check(graph)


def test_entra_that_is_away_or_asks_for_a_pause(graph: GraphServer) -> None:
    graph.control(entra={"status": 503, "error": "temporarily_unavailable"})
    with pytest.raises(Unavailable, match="Entra responded with HTTP 503"):
        check(graph)
    graph.control(entra={"status": 429, "error": "throttled"})
    with pytest.raises(Throttled):
        check(graph)
    with pytest.raises(Unavailable, match=r"no connection to 127\.0\.0\.1"):
        check(graph, authority="https://127.0.0.1:1")


@pytest.mark.parametrize(
    ("roles", "refused", "said"),
    [
        (
            ["User.Read.All"],
            {"folder": [403, "ErrorAccessDenied", 9]},
            "lacks the permission Mail.Read: .*It has: User.Read.All",
        ),
        (["Mail.Read"], {"users": [403, "Authorization_RequestDenied", 9]}, "lacks the permission User.Read.All"),
        ([], {"users": [403, "Authorization_RequestDenied", 9]}, "lacks the permissions User.Read.All and Mail.Read"),
        (
            ["User.Read.All", "Mail.Read"],
            {"folder": [403, "ErrorAccessDenied", 9]},
            "a policy .* excludes this mailbox|directory",
        ),
    ],
)
def test_missing_permissions(graph: GraphServer, roles: list[str], refused: dict[str, Any], said: str) -> None:
    graph.control(roles=roles, trouble={"fail": refused})
    with pytest.raises(AuthFailed, match=said):
        check(graph)


def test_a_certificate_authority_that_is_not_trusted(graph: GraphServer) -> None:
    with pytest.raises(Unavailable, match="certificate"):
        check(graph, ca_file=None)
    with pytest.raises(Unavailable, match="can't be read"):
        check(graph, ca_file="/nowhere/ca.pem")


@pytest.mark.parametrize(
    ("settings", "secrets", "said"),
    [
        ({"graph": "http://graph.example"}, {}, "https"),
        ({"tenant": "a/../b"}, {}, "letters, digits"),
        ({"cloud": "moon"}, {}, "us-government"),
        ({}, {"client_secret": "a", "certificate": "b"}, "either client_secret or certificate"),
        ({}, {}, "either client_secret or certificate"),
        ({}, {"certificate": "-----BEGIN CERTIFICATE-----"}, "private key"),
    ],
)
def test_settings_that_cannot_be(graph: GraphServer, settings: dict[str, Any], secrets: dict[str, str], said: str) -> None:
    kind = KINDS["microsoft"]
    model, given = (kind.settings, {**graph.settings, **settings}) if settings else (kind.secrets, secrets)
    with pytest.raises(ValueError, match=said):
        model.model_validate(given)


@pytest.mark.parametrize(
    ("cloud", "authority", "root"),
    [
        ("global", "https://login.microsoftonline.com", "https://graph.microsoft.com"),
        ("us-government", "https://login.microsoftonline.us", "https://graph.microsoft.us"),
        ("us-dod", "https://login.microsoftonline.us", "https://dod-graph.microsoft.us"),
        ("china", "https://login.partner.microsoftonline.cn", "https://microsoftgraph.chinacloudapi.cn"),
    ],
)
def test_national_clouds(cloud: str, authority: str, root: str) -> None:
    settings = KINDS["microsoft"].settings.model_validate({"client_id": "a", "tenant": "b", "cloud": cloud})
    assert (settings.authority_url, settings.graph_url) == (authority, root)  # type: ignore[attr-defined]


def test_a_sign_in_that_was_revoked_asks_for_another_one(graph: GraphServer) -> None:
    kind, context = KINDS["outlook"], KeepingContext()
    token = graph.control(sign_in="user39@contoso.example")["refresh_token"]
    settings = kind.settings.model_validate({**graph.settings, "tenant": "common"})
    connector = kind.open(settings, kind.secrets.model_validate({"refresh_token": token}), context)
    connector.check()
    assert [box.address for box in connector.mailboxes()] == ["user39@contoso.example"]
    assert context.saved["refresh_token"] not in ("", token), "the newer one is kept"
    connector.close()
    graph.control(revoke=True)
    for secrets, said in (({"refresh_token": token}, "revoked.*--sign-in"), ({}, "has not signed in yet")):
        refused = kind.open(settings, kind.secrets.model_validate(secrets), context)
        with pytest.raises(AuthFailed, match=said):
            refused.check()
        refused.close()
