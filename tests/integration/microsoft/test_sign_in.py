"""Signing in: in a browser with PKCE, and with a code on another device."""

from __future__ import annotations

import ssl
import urllib.error
import urllib.request
from collections.abc import Iterator
from urllib.parse import parse_qsl, urlsplit

import pytest

from connectors.errors import AuthFailed, ConnectorError
from connectors.kinds import KINDS
from connectors.microsoft.settings import OutlookSecrets, OutlookSettings
from connectors.microsoft.sign_in import OutlookSignIn
from tests.contract.microsoft import KeepingContext
from tests.support.graph_server.running import GraphServer
from tests.support.waiting import DEADLINE_SECONDS

LOOPBACK = "http://localhost:8400"


@pytest.fixture(params=["common", "consumers", "contoso.example"])
def settings(graph: GraphServer, request: pytest.FixtureRequest) -> OutlookSettings:
    return OutlookSettings.model_validate({**graph.settings, "tenant": request.param})


@pytest.fixture
def sign_in(settings: OutlookSettings) -> Iterator[OutlookSignIn]:
    made = OutlookSignIn(settings, OutlookSecrets())
    yield made
    made.close()


class _Stay(urllib.request.HTTPRedirectHandler):
    def redirect_request(self, *_: object, **__: object) -> None:
        return None


def visit(graph: GraphServer, address: str) -> dict[str, str]:
    """What a browser does: it is sent back to where we would listen."""
    trust = urllib.request.HTTPSHandler(context=ssl.create_default_context(cafile=graph.ca_file))
    try:
        urllib.request.build_opener(trust, _Stay).open(address, timeout=DEADLINE_SECONDS)
    except urllib.error.HTTPError as sent:
        with sent:
            location = sent.headers["Location"]
    assert location.startswith(LOOPBACK)
    return dict(parse_qsl(urlsplit(location).query))


def works(settings: OutlookSettings, secrets: dict[str, str]) -> bool:
    kind = KINDS["outlook"]
    connector = kind.open(settings, kind.secrets.model_validate(secrets), KeepingContext())
    try:
        connector.check()
    finally:
        connector.close()
    return True


def test_in_a_browser_with_pkce(graph: GraphServer, settings: OutlookSettings, sign_in: OutlookSignIn) -> None:
    address = sign_in.start_in_browser(LOOPBACK)
    asked = dict(parse_qsl(urlsplit(address).query))
    assert asked["code_challenge_method"] == "S256"
    assert "offline_access" in asked["scope"]
    assert "Mail.Read" in asked["scope"]
    secrets = sign_in.complete_in_browser(visit(graph, address))
    assert works(settings, secrets)


def test_an_answer_to_another_question_is_refused(graph: GraphServer, sign_in: OutlookSignIn) -> None:
    answer = visit(graph, sign_in.start_in_browser(LOOPBACK))
    with pytest.raises(ConnectorError):
        sign_in.complete_in_browser({**answer, "state": "forged"})


def test_whoever_declines(sign_in: OutlookSignIn) -> None:
    sign_in.start_in_browser(LOOPBACK)
    with pytest.raises(AuthFailed, match="declined access"):
        sign_in.complete_in_browser({"error": "access_denied", "error_description": "AADSTS65004: User declined to consent."})


def test_with_a_code_on_another_device(graph: GraphServer, settings: OutlookSettings, sign_in: OutlookSignIn) -> None:
    assert sign_in.start_on_device() == (f"{graph.url}/device", "ABCD-EFGH")
    assert works(settings, sign_in.complete_on_device())
