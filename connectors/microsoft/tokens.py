"""Access tokens: for an app, or for a signed-in user. All jobs of a process share one until it expires."""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Protocol

from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric.rsa import RSAPrivateKey
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat, load_pem_private_key
from cryptography.x509 import load_pem_x509_certificate

from connectors.base import Context, Json
from connectors.errors import AuthFailed, Throttled, Unavailable
from connectors.extras import LazyModule
from connectors.http import HttpClient, retry_after
from connectors.microsoft.error_messages import entra_error
from connectors.microsoft.settings import GraphSettings, Microsoft365Secrets, Microsoft365Settings, OutlookSettings
from connectors.oauth import TokenCache

if TYPE_CHECKING:
    import msal
else:
    msal = LazyModule("msal", "microsoft")

_THROTTLED_SECONDS = 30.0
_BEGIN = "-----BEGIN "
_LABEL_CHARS = 64
PERMISSIONS = ("Mail.Read", "User.Read")
WRITE_PERMISSIONS = ("Mail.ReadWrite", "User.Read")

logging.getLogger("msal").setLevel(logging.CRITICAL)  # it would log raw responses


class MicrosoftTokens(Protocol):
    @property
    def secrets(self) -> tuple[str, ...]:
        """Values that must not appear in any text."""

    def get(self, stale: str | None = None) -> str:
        """A token that differs from `stale`, which the server has rejected."""

    def renew(self) -> str:
        """A new token from the server, bypassing the cache."""


_TOKENS = TokenCache()


class AppTokens:
    """For an app with application permissions."""

    def __init__(self, settings: Microsoft365Settings, secrets: Microsoft365Secrets, http: HttpClient) -> None:
        self._settings, self._secrets, self._http = settings, secrets, http
        self.secrets = tuple(value.get_secret_value() for _, value in secrets if value is not None)
        self._key = _digest(settings.authority_url, settings.tenant, settings.client_id, settings.graph_url, *self.secrets)

    def get(self, stale: str | None = None) -> str:
        return _TOKENS.find(self._key, stale) or self.renew()

    def renew(self) -> str:
        answer = acquire_token(self._ask, self.secrets)
        _TOKENS.put(self._key, answer["access_token"], float(answer.get("expires_in", 3600)))
        return str(answer["access_token"])

    def _ask(self) -> Mapping[str, Json]:
        app = msal.ConfidentialClientApplication(
            self._settings.client_id,
            client_credential=_credential(self._secrets),
            **client_options(self._settings, self._http),
        )
        return dict(app.acquire_token_for_client([f"{self._settings.graph_url}/.default"]))


class SignedInTokens:
    """For a signed-in user. Microsoft sometimes issues a new refresh token, which is stored for later jobs."""

    def __init__(self, settings: OutlookSettings, refresh_token: str, http: HttpClient, context: Context) -> None:
        self._settings, self._http, self._context = settings, http, context
        self._refresh_token = refresh_token

    @property
    def secrets(self) -> tuple[str, ...]:
        return (self._refresh_token,)

    @property
    def _key(self) -> str:
        return _digest(self._settings.authority_url, self._settings.client_id, self._refresh_token)

    def get(self, stale: str | None = None) -> str:
        return _TOKENS.find(self._key, stale) or self.renew()

    def renew(self) -> str:
        answer = acquire_token(self._ask, self.secrets)
        token, seconds = str(answer["access_token"]), float(answer.get("expires_in", 3600))
        newer = answer.get("refresh_token")
        if isinstance(newer, str) and newer and newer != self._refresh_token:
            self._context.save_credentials({"refresh_token": newer})
            self._refresh_token = newer
        _TOKENS.put(self._key, token, seconds)
        return token

    def _ask(self) -> Mapping[str, Json]:
        if not self._refresh_token:
            raise AuthFailed("the account has not signed in yet: run `archiver source edit NAME --sign-in`")
        app = msal.PublicClientApplication(self._settings.client_id, **client_options(self._settings, self._http))
        return dict(app.acquire_token_by_refresh_token(self._refresh_token, scopes=scopes(self._settings)))


def scopes(settings: GraphSettings) -> list[str]:
    writes = isinstance(settings, OutlookSettings) and settings.write_access
    return [f"{settings.graph_url}/{permission}" for permission in (WRITE_PERMISSIONS if writes else PERMISSIONS)]


def client_options(settings: Microsoft365Settings | OutlookSettings, http: HttpClient) -> dict[str, Any]:
    """`instance_discovery` is off: the owner of the source chooses the authority, and no other server is asked about it."""
    return {
        "authority": f"{settings.authority_url}/{settings.tenant}",
        "instance_discovery": False,
        "http_client": EntraHttp(http),
    }


def acquire_token(ask: Callable[[], Mapping[str, Json]], secrets: tuple[str, ...]) -> Mapping[str, Json]:
    """Entra's response if it is a token; otherwise raises an error that explains the problem."""
    try:
        answer = ask()
    except (AuthFailed, Throttled, Unavailable):
        raise
    except Exception as error:  # noqa: BLE001  what msal raises is not documented
        raise entra_error({"error": "invalid_request", "error_description": str(error)}, secrets) from None
    if not isinstance(answer.get("access_token"), str):
        raise entra_error(answer, secrets)
    return answer


class EntraHttp:
    """Adapts our HTTP client to msal, with the same timeouts, closing and proxies."""

    def __init__(self, http: HttpClient) -> None:
        self._http = http

    def post(self, url: str, params: Any = None, data: Any = None, headers: Any = None, **_: Any) -> TokenResponse:
        form = {name: value.decode() if isinstance(value, bytes) else value for name, value in (data or {}).items()}
        return self._ask("POST", url, params=params, data=form, headers=headers)

    def get(self, url: str, params: Any = None, headers: Any = None, **_: Any) -> TokenResponse:
        return self._ask("GET", url, params=params, headers=headers)

    def close(self) -> None: ...

    def _ask(self, method: str, url: str, **more: Any) -> TokenResponse:
        with self._http.request(method, url, **{name: value for name, value in more.items() if value is not None}) as response:
            response.read()
            if response.status_code == 429:
                raise Throttled("Entra asks for a pause", retry_after(response.headers, _THROTTLED_SECONDS))
            if response.status_code >= 500:
                raise Unavailable(f"Entra responded with HTTP {response.status_code}")
            if response.status_code >= 400 and url.endswith("/openid-configuration"):  # msal would hide the reason
                raise entra_error({"error": "invalid_request", "error_description": response.text}, ())
            return TokenResponse(response.status_code, response.text, dict(response.headers))


class TokenResponse:
    def __init__(self, status_code: int, text: str, headers: dict[str, str]) -> None:
        self.status_code, self.text, self.headers = status_code, text, headers

    def raise_for_status(self) -> None:
        if self.status_code >= 400:
            raise Unavailable(f"Entra responded with HTTP {self.status_code}")


def _credential(secrets: Microsoft365Secrets) -> str | dict[str, str]:
    """In msal's format: a secret, or a key with its certificate."""
    if secrets.client_secret:
        return secrets.client_secret.get_secret_value()
    assert secrets.certificate is not None, "validated"
    text = secrets.certificate.get_secret_value()
    password = secrets.certificate_password.get_secret_value().encode() if secrets.certificate_password else None
    try:
        key = load_pem_private_key(_part("PRIVATE KEY", text), password)
        certificate = load_pem_x509_certificate(_part("CERTIFICATE", text))
    except (ValueError, TypeError, UnsupportedAlgorithm):
        raise AuthFailed("the certificate or its private key can't be read, or the password is wrong") from None
    if not isinstance(key, RSAPrivateKey):
        raise AuthFailed("Entra only accepts certificates with an RSA key")
    if certificate.public_key() != key.public_key():
        raise AuthFailed("the private key does not match the certificate")
    plain = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    return {"private_key": plain.decode(), "public_certificate": certificate.public_bytes(Encoding.PEM).decode()}


def _part(name: str, text: str) -> bytes:
    """The first PEM block whose label ends with `name`: a private key may be RSA, EC or encrypted."""
    at = 0
    while (start := text.find(_BEGIN, at)) >= 0:
        at = start + len(_BEGIN)
        label, dashes, _ = text[at : at + _LABEL_CHARS].partition("-----")
        if dashes and label.endswith(name):
            closing = f"-----END {label}-----"
            end = text.find(closing, at)
            return text[start : end + len(closing)].encode() if end >= 0 else b""
    return b""


def _digest(*parts: str) -> str:
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()
