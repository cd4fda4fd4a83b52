"""Sign-in for the mailbox of one person: in a browser (authorization code with PKCE), or with a code on any device."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from connectors.base import Json
from connectors.errors import AuthFailed
from connectors.extras import LazyModule
from connectors.http import HttpClient
from connectors.microsoft.error_messages import entra_error
from connectors.microsoft.settings import OutlookSecrets, OutlookSettings
from connectors.microsoft.tokens import acquire_token, client_options, scopes

if TYPE_CHECKING:
    import msal
else:
    msal = LazyModule("msal", "microsoft")


_PENDING = ("authorization_pending", "slow_down")


class OutlookSignIn:
    """One sign-in attempt (connectors.sign_in)."""

    def __init__(self, settings: OutlookSettings, _: OutlookSecrets) -> None:
        self._settings = settings
        self._http = HttpClient(settings.ca_file, settings.ca)
        self._flow: dict[str, Any] = {}

    has_device_code = True

    def save(self) -> dict[str, Any]:
        return dict(self._flow)

    def restore(self, saved: Mapping[str, Any]) -> None:
        self._flow = dict(saved)

    def start_in_browser(self, redirect_uri: str) -> str:
        self._flow = dict(
            self._begin(lambda app: app.initiate_auth_code_flow(scopes(self._settings), redirect_uri=redirect_uri))
        )
        return str(self._flow["auth_uri"])

    def complete_in_browser(self, query: Mapping[str, str]) -> dict[str, str]:
        if query.get("error"):
            raise entra_error({"error": "invalid_grant", "error_description": query.get("error_description", "")}, ())
        return self._secrets(lambda: self._app().acquire_token_by_auth_code_flow(self._flow, dict(query)))

    def start_on_device(self) -> tuple[str, str]:
        self._flow = dict(self._begin(lambda app: app.initiate_device_flow(scopes(self._settings))))
        if "user_code" not in self._flow:
            raise entra_error({"error": "invalid_request", **self._flow}, ())
        return str(self._flow["verification_uri"]), str(self._flow["user_code"])

    def poll_on_device(self) -> dict[str, str] | None:
        once = dict(self._app().acquire_token_by_device_flow(self._flow, exit_condition=lambda _: True))
        if once.get("error") == "slow_down":
            self._flow["interval"] = float(self._flow.get("interval", 5)) + 5.0
        return None if once.get("error") in _PENDING else self._secrets(lambda: once)

    def complete_on_device(self) -> dict[str, str]:
        while (found := self.poll_on_device()) is None:
            self._http.pause(float(self._flow.get("interval", 5)))
        return found

    def close(self) -> None:
        self._http.close()

    def _app(self) -> Any:
        return msal.PublicClientApplication(self._settings.client_id, **client_options(self._settings, self._http))

    def _begin(self, ask: Callable[[Any], Mapping[str, Json]]) -> Mapping[str, Json]:
        """(This response contains no token yet.)"""
        found: dict[str, Json] = {}

        def begun() -> Mapping[str, Json]:
            with warnings.catch_warnings():  # msal prefers a form post, which can't be copied and pasted
                warnings.simplefilter("ignore")
                found.update(ask(self._app()))
            return {"access_token": ""}

        acquire_token(begun, ())
        return found

    def _secrets(self, ask: Callable[[], Mapping[str, Json]]) -> dict[str, str]:
        answer = acquire_token(ask, ())
        token = answer.get("refresh_token")
        if not isinstance(token, str) or not token:
            raise AuthFailed("Entra returned no refresh token: the app needs the delegated permission offline_access")
        return {"refresh_token": token}
