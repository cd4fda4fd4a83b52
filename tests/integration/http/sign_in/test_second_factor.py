"""The second factor: set up, asked for, never reusable, part of the packs."""

from __future__ import annotations

from typing import Any

from archiver.access.login import totp
from archiver.access.users import User
from archiver.secrets import Keyring
from archiver.store.archive import entries
from archiver.store.frames import FrameKind
from archiver.store.journal import Config
from archiver.store.open import open_archive
from archiver.store.pack import PackLocation
from tests.integration.http.conftest import PASSWORD, Client, Company
from tests.integration.http.sign_in.conftest import sign_in
from tests.integration.http.sign_in.test_sign_in import pause


def enable(client: Client) -> tuple[bytes, list[str]]:
    import base64

    secret = base64.b32decode(client.post("/me/totp", json={"password": PASSWORD}).json()["secret"])
    answer = client.put("/me/totp", json={"code": totp.code_at(secret, totp.current_step() - 1)})
    assert answer.status_code == 200, answer.text
    return secret, answer.json()["recovery_codes"]


def test_the_second_factor(company: Company, dora: User, keyring: Keyring) -> None:
    with company.client(dora.email.partition("@")[0]) as client:
        assert client.post("/me/totp", json={"password": "wrong password"}).status_code == 401
        secret, recovery = enable(client)
        assert client.post("/me/totp", json={"password": PASSWORD}).status_code == 409
    sealed = company.value("SELECT totp_secret FROM users WHERE id = :u", u=dora.id)
    assert secret not in bytes(sealed)
    with company.client() as client:
        answer = client.post("/session", json={"email": dora.email, "password": PASSWORD})
        assert (answer.status_code, answer.json()["code"]) == (401, "code_needed")
        assert "Set-Cookie" not in answer.headers
        assert (
            sign_in(client, dora.email, code="000000" if totp.code_at(secret, totp.current_step()) != "000000" else "1") == 401
        )
        code = totp.code_at(secret, totp.current_step())
        assert sign_in(client, dora.email, code=code) == 201
        assert sign_in(client, dora.email, code=code) == 401, "a code is good once"
        assert sign_in(client, dora.email, code=recovery[0]) == 201
        assert sign_in(client, dora.email, code=recovery[0]) == 401, "a recovery code, too"
    company.act("DELETE FROM sign_in_pauses")
    with company.client() as client:
        assert sign_in(client, dora.email, code=recovery[1].upper().replace("-", "")) == 201
        assert client.post("/me/totp/disable", json={"password": "wrong password"}).status_code == 401
        assert client.post("/me/totp/disable", json={"password": PASSWORD}).status_code == 204
        assert sign_in(client, dora.email) == 201


def test_the_codes_are_those_of_the_standard() -> None:
    """RFC 6238, appendix B (SHA-1; the last six of eight digits)."""
    secret = b"12345678901234567890"
    expected = {59: "287082", 1111111109: "081804", 1234567890: "005924", 20000000000: "353130"}
    assert {at: totp.code_at(secret, totp.current_step(at)) for at in expected} == expected


def test_codes_cannot_be_tried_without_end(company: Company, dora: User) -> None:
    with company.client(dora.email.partition("@")[0]) as client:
        enable(client)
    company.act("DELETE FROM sign_in_pauses")
    with company.client() as client:
        for number in range(7):
            company.act("UPDATE sign_in_pauses SET blocked_until = now()")
            assert sign_in(client, dora.email, code=f"no{number}") == 401
        assert pause(company, "account") == 2, "a right password with a wrong code is a failure like any other"


def test_the_packs_know_the_second_factor_as_it_is(company: Company, dora: User) -> None:
    """So that a rebuild brings it back, without the codes that were used up."""

    def kept() -> dict[str, Any]:
        archive = open_archive(company.settings, company.engine)
        try:
            frames = [
                Config.decode(archive.frames.open(PackLocation(pack_id, entry.offset, entry.length)).bytes())
                for pack_id in archive.backend.packs()
                for entry in entries(archive.backend.open(pack_id), archive.frames)
                if entry.kind == FrameKind.CONFIG
            ]
        finally:
            archive.close()
        newest = max(frames, key=lambda config: config.at)
        return next(user for user in newest.tables["users"] if user["id"] == str(dora.id))

    with company.client(dora.email.partition("@")[0]) as client:
        _, recovery = enable(client)
        assert kept()["totp_confirmed_at"] is not None
        assert len(kept()["recovery_code_hashes"]) == 10
        assert sign_in(client, dora.email, code=recovery[0]) == 201
        assert len(kept()["recovery_code_hashes"]) == 9
        assert client.post("/me/totp/disable", json={"password": PASSWORD}).status_code == 204
        assert kept()["totp_secret"] is None
