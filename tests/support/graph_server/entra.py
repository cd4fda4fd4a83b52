"""The part of Entra ID that hands out tokens."""

from __future__ import annotations

import base64
import hashlib
import json
import secrets
import time
from typing import Any
from urllib.parse import urlencode

import jwt
from cryptography.x509 import load_pem_x509_certificate

CLIENT_ID = "11111111-2222-3333-4444-555555555555"
TENANT = "contoso.example"
CLIENT_SECRET = "Zx8~the-client-secret-that-nobody-may-see"
SIGNS_IN = "boss@contoso.example"
"""Whoever agrees to sign in is this one."""


def _part(value: dict[str, Any]) -> str:
    return base64.urlsafe_b64encode(json.dumps(value).encode()).decode().rstrip("=")


class Entra:
    def __init__(self, url: str, certificate: str | None) -> None:
        self._url, self._certificate = url, certificate
        self.trouble: dict[str, Any] = {}
        self.roles = ["Mail.Read", "User.Read.All", "GroupMember.Read.All", "MailboxSettings.Read"]
        self.uses: dict[str, int] = {}
        """Calls that were made with each access token."""
        self.refresh_tokens: dict[str, str] = {}
        """token → the address of who signed in"""
        self.codes: dict[str, dict[str, str]] = {}
        self.polls = 0
        self.asked: list[str] = []
        """Grant types, in order."""

    def discovery(self, tenant: str) -> tuple[int, dict[str, Any]]:
        if tenant not in (TENANT, "common", "consumers", "organizations"):
            return 400, {"error": "invalid_tenant", "error_description": f"AADSTS90002: Tenant '{tenant}' not found."}
        root = f"{self._url}/{tenant}"
        return 200, {
            "issuer": f"{root}/v2.0",
            "authorization_endpoint": f"{root}/oauth2/v2.0/authorize",
            "token_endpoint": f"{root}/oauth2/v2.0/token",
            "device_authorization_endpoint": f"{root}/oauth2/v2.0/devicecode",
        }

    def authorize(self, query: dict[str, str]) -> str:
        """Whoever comes here agrees at once: the address to be sent back to."""
        code = secrets.token_urlsafe(8)
        self.codes[code] = query
        return f"{query['redirect_uri']}?{urlencode({'code': code, 'state': query['state']})}"

    def device_code(self) -> dict[str, Any]:
        self.polls = 0
        return {
            "device_code": "device-1",
            "user_code": "ABCD-EFGH",
            "verification_uri": f"{self._url}/device",
            "expires_in": 900,
            "interval": 1,
            "message": "Open the page and enter ABCD-EFGH",
        }

    def token(self, form: dict[str, str]) -> tuple[int, dict[str, Any]]:
        grant = form.get("grant_type", "")
        self.asked.append(grant)
        if self.trouble:
            return int(self.trouble.get("status", 400)), self.trouble
        if form.get("client_id") != CLIENT_ID:
            return _refused("unauthorized_client", "AADSTS700016: Application with identifier was not found.")
        match grant:
            case "client_credentials":
                return self._app(form)
            case "refresh_token":
                who = self.refresh_tokens.get(form.get("refresh_token", ""))  # (an old one stays good beside the new one)
                if who is None:
                    return _refused("invalid_grant", "AADSTS50173: The provided grant has expired due to it being revoked.")
                return 200, self._signed_in(who)
            case "authorization_code":
                return self._code(form)
            case "urn:ietf:params:oauth:grant-type:device_code" | "device_code":
                self.polls += 1
                if self.polls < 2:
                    return _refused("authorization_pending", "AADSTS70016: pending")
                return 200, self._signed_in(SIGNS_IN)
        return _refused("unsupported_grant_type", "AADSTS70003: unsupported")

    def _app(self, form: dict[str, str]) -> tuple[int, dict[str, Any]]:
        if "client_assertion" in form:
            try:
                assert self._certificate is not None
                key = load_pem_x509_certificate(self._certificate.encode()).public_key()
                options = {"verify_aud": False}
                jwt.decode(form["client_assertion"], key, algorithms=["PS256", "RS256"], options=options)  # type: ignore[arg-type]
            except (AssertionError, jwt.PyJWTError):
                return _refused("invalid_client", "AADSTS700027: Client assertion failed signature validation.")
        elif form.get("client_secret") != CLIENT_SECRET:
            return _refused("invalid_client", "AADSTS7000215: Invalid client secret provided.\r\nTrace ID: 1")
        return 200, {"token_type": "Bearer", "expires_in": 3600, "access_token": self.issue(roles=self.roles)}

    def _code(self, form: dict[str, str]) -> tuple[int, dict[str, Any]]:
        asked = self.codes.pop(form.get("code", ""), None)
        if asked is None:
            return _refused("invalid_grant", "AADSTS70008: The provided authorization code has expired.")
        digest = hashlib.sha256(form.get("code_verifier", "").encode()).digest()
        if base64.urlsafe_b64encode(digest).decode().rstrip("=") != asked.get("code_challenge"):
            return _refused("invalid_grant", "AADSTS501481: The Code_Verifier does not match the code_challenge.")
        return 200, self._signed_in(SIGNS_IN, asked.get("nonce"))

    def _signed_in(self, who: str, nonce: str | None = None) -> dict[str, Any]:
        refresh = f"refresh-{secrets.token_urlsafe(16)}"
        self.refresh_tokens[refresh] = who
        claims = {
            "aud": CLIENT_ID,
            "iss": f"{self._url}/{TENANT}/v2.0",
            "iat": int(time.time()),
            "exp": int(time.time()) + 3600,
            "sub": who,
            "preferred_username": who,
            **({"nonce": nonce} if nonce else {}),
        }
        return {
            "token_type": "Bearer",
            "expires_in": 3600,
            "scope": "Mail.Read User.Read",
            "access_token": self.issue(scp="Mail.Read User.Read", upn=who),
            "refresh_token": refresh,
            "id_token": f"{_part({'alg': 'none'})}.{_part(claims)}.",
        }

    def issue(self, **claims: Any) -> str:
        token = f"{_part({'typ': 'JWT'})}.{_part({**claims, 'jti': secrets.token_hex(8)})}.signature"
        self.uses[token] = 0
        return token

    def use(self, token: str, most: int) -> dict[str, Any] | None:
        """The claims of a token that is good for another call."""
        if token not in self.uses or (most and self.uses[token] >= most):
            return None
        self.uses[token] += 1
        payload = token.split(".")[1]
        return dict(json.loads(base64.urlsafe_b64decode(payload + "=" * (-len(payload) % 4))))


def _refused(error: str, description: str) -> tuple[int, dict[str, Any]]:
    return 401 if error == "invalid_client" else 400, {"error": error, "error_description": description}
