"""Sign-in attempts belong to one session, can be completed once, and hold their secrets sealed."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any
from urllib.parse import parse_qsl, urlsplit

import httpx2
import pytest

from archiver.access.principal import ROLE_RIGHTS, Principal
from archiver.db.ids import uuid7
from archiver.db.states import UserRole
from archiver.errors import NotFound, UsageError
from archiver.secrets import Keyring
from archiver.sources.access import SourceCheckFailed, signs_in
from archiver.sources.kinds import kind_of, validate
from archiver.sources.page_sign_in import PendingSignIn, SignIns, SourceDraft
from tests.support.oauth_provider import CLIENT_SECRET, OAuthProvider, oauth_provider

CALLBACK = "https://archive.example/sources/sign-in/callback"


class Memory:
    """Redis, as far as it is used here."""

    def __init__(self) -> None:
        self.values: dict[str, Any] = {}

    def set(self, name: str, value: bytes, *, ex: int) -> None:
        assert 0 < ex <= 600
        self.values[name] = value.decode()

    def get(self, name: str) -> Any:
        return self.values.get(name)

    def getdel(self, name: str) -> Any:
        return self.values.pop(name, None)


@pytest.fixture
def provider() -> Iterator[OAuthProvider]:
    with oauth_provider("an access token") as server:
        yield server


@pytest.fixture
def sign_ins() -> SignIns:
    return SignIns(Memory(), Keyring.generate())


def _person() -> Principal:
    role = UserRole.ADMINISTRATOR
    return Principal("ann@example.org", role, ROLE_RIGHTS[role], user_id=uuid7(), session_id=uuid7())


def _draft(provider: OAuthProvider, *, device: bool = False) -> SourceDraft:
    settings = {"host": "127.0.0.1", "user": "ann@example.org", **provider.settings(device=device)}
    return SourceDraft("imap", "Mine", settings, {"client_secret": CLIENT_SECRET})


def _consent(pending: PendingSignIn, link: int = 0) -> dict[str, str]:
    page = httpx2.get(pending.url).text.replace("&amp;", "&")
    return dict(parse_qsl(urlsplit(page.split('href="')[1 + link].split('"')[0]).query))


def test_a_sign_in_by_redirect_ends_with_tokens(provider: OAuthProvider, sign_ins: SignIns) -> None:
    ann = _person()
    pending = sign_ins.begin(ann, _draft(provider), CALLBACK)
    assert pending.mode == "browser"
    assert dict(parse_qsl(urlsplit(pending.url).query))["login_hint"] == "ann@example.org"
    answer = _consent(pending)
    draft, tokens = sign_ins.complete(ann, answer["state"], answer)
    assert draft == pending.draft
    assert tokens == {"token": "an access token", "refresh_token": next(iter(provider.refresh_tokens))}
    with pytest.raises(NotFound, match="already completed"):
        sign_ins.complete(ann, answer["state"], answer)


def test_another_session_completes_nothing_and_uses_the_attempt_up(provider: OAuthProvider, sign_ins: SignIns) -> None:
    """A victim who follows an attacker's redirect must not add the attacker's mailbox, or lend theirs."""
    pending = sign_ins.begin(_person(), _draft(provider), CALLBACK)
    answer = _consent(pending)
    with pytest.raises(NotFound, match="not started in this browser session"):
        sign_ins.complete(_person(), answer["state"], answer)
    assert not provider.asked


def test_what_waits_is_sealed_and_bound_to_its_purpose(provider: OAuthProvider, sign_ins: SignIns) -> None:
    pending = sign_ins.begin(_person(), _draft(provider), CALLBACK)
    memory = sign_ins.cache
    assert isinstance(memory, Memory)
    held = str(memory.values)
    assert CLIENT_SECRET not in held
    assert pending.id not in held
    assert CLIENT_SECRET not in repr(pending)


def test_a_refusal_and_a_forged_code_are_reported_in_the_words_of_the_provider(
    provider: OAuthProvider, sign_ins: SignIns
) -> None:
    ann = _person()
    denied = _consent(sign_ins.begin(ann, _draft(provider), CALLBACK), link=1)
    with pytest.raises(SourceCheckFailed, match="access_denied"):
        sign_ins.complete(ann, denied["state"], denied)
    answer = _consent(sign_ins.begin(ann, _draft(provider), CALLBACK))
    with pytest.raises(SourceCheckFailed, match="the code is not valid"):
        sign_ins.complete(ann, answer["state"], {**answer, "code": "forged"})
    wrong = replace(_draft(provider), secrets={"client_secret": "wrong"})
    answer = _consent(sign_ins.begin(ann, wrong, CALLBACK))
    with pytest.raises(SourceCheckFailed, match="invalid_client"):
        sign_ins.complete(ann, answer["state"], answer)


def test_without_a_way_back_a_code_is_entered_on_any_device(provider: OAuthProvider, sign_ins: SignIns) -> None:
    ann = _person()
    pending = sign_ins.begin(ann, _draft(provider, device=True), None)
    assert (pending.mode, pending.code, pending.url) == ("device", "ABCD-1234", f"{provider.url}/enter")
    assert sign_ins.poll(ann, pending.id) is None
    provider.entered = True
    found = sign_ins.poll(ann, pending.id)
    assert found is not None
    assert found[1]["token"] == "an access token"
    with pytest.raises(NotFound):
        sign_ins.poll(ann, pending.id)


def test_without_a_device_code_the_address_is_pasted(provider: OAuthProvider, sign_ins: SignIns) -> None:
    ann = _person()
    pending = sign_ins.begin(ann, _draft(provider), None)
    assert pending.mode == "paste"
    assert dict(parse_qsl(urlsplit(pending.url).query))["redirect_uri"] == "http://localhost:1"
    answer = _consent(pending)
    assert answer["state"] != pending.id
    assert sign_ins.complete(ann, pending.id, answer)[1]["token"] == "an access token"


def test_a_server_that_is_not_allowed_gets_nothing(provider: OAuthProvider, sign_ins: SignIns) -> None:
    with pytest.raises(UsageError, match="SOURCE_HOSTS"):
        sign_ins.begin(_person(), _draft(provider, device=True), None, hosts=["*.example.org"])
    assert not provider.asked


@pytest.mark.parametrize("name", ["google", "microsoft", "yahoo", "fastmail"])
def test_a_preset_fills_in_everything_but_the_app(name: str) -> None:
    given = {"oauth_provider": name, "user": "ann@example.org", "oauth_client_id": "x", "auth": "password", "host": ""}
    settings, secrets = validate(kind_of("imap"), given, {})
    kept = settings.model_dump(mode="json", exclude_defaults=True)
    assert kept["auth"] != "password"
    assert kept["oauth_token_url"].startswith("https://")
    assert signs_in("imap", kept)
    assert kind_of("imap").settings.model_validate(kept) == settings
    sign_in = kind_of("imap").sign_in
    assert sign_in is not None
    attempt = sign_in(settings, secrets)
    assert attempt.start_in_browser(CALLBACK).startswith("https://")
    attempt.close()


def test_a_preset_without_an_app_leaves_the_password(sign_ins: SignIns) -> None:
    """As the form has it after the server of a Gmail address was found."""
    given = {"oauth_provider": "google", "user": "ann@gmail.com", "host": "imap.gmail.com", "auth": "password"}
    settings, _ = validate(kind_of("imap"), given, {"password": "app password"})
    kept = settings.model_dump(mode="json", exclude_defaults=True)
    assert kept == {"oauth_provider": "google", "user": "ann@gmail.com", "host": "imap.gmail.com"}
    assert not signs_in("imap", kept)


def test_a_password_source_does_not_sign_in(sign_ins: SignIns) -> None:
    plain = {"host": "imap.example.org", "user": "ann"}
    assert not signs_in("imap", plain)
    with pytest.raises(SourceCheckFailed, match="oauth_provider"):
        sign_ins.begin(_person(), SourceDraft("imap", "x", plain, {}), CALLBACK)
