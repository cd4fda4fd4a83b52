"""Explains Microsoft's errors to the owner of a source: what they mean and what to do."""

from __future__ import annotations

import base64
import binascii
import json
import re
from collections.abc import Collection, Iterable, Mapping

from connectors.base import Json
from connectors.errors import AuthFailed, ConnectorError, Unavailable
from connectors.http import one_line

_ENTRA = {
    "7000215": "the client secret is wrong: enter the secret's Value, not its Secret ID (Certificates & secrets)",
    "7000222": "the client secret has expired: create a new one (Certificates & secrets) and enter its Value",
    "7000216": "Entra expects a client secret or a certificate, but got neither",
    "700016": "this tenant has no app with this client_id: compare both with the app's Overview page",
    "7000229": "the app was never approved in this tenant: an administrator has to select “Grant admin consent”",
    "7000112": "the app is disabled in this tenant (Enterprise applications, Properties, Enabled for users to sign-in)",
    "90002": "this tenant does not exist: compare it with Directory (tenant) ID on the app's Overview page",
    "900023": "this tenant does not exist: compare it with Directory (tenant) ID on the app's Overview page",
    "90013": "Entra could not read the request: compare client_id and tenant with the app's Overview page",
    "700027": "Entra does not recognise this certificate: upload its public part (Certificates & secrets, Certificates)",
    "700021": "Entra does not recognise this certificate: upload its public part (Certificates & secrets, Certificates)",
    "700024": "the clock of this machine differs from Entra's by minutes: correct it",
    "65001": "consent is missing: an administrator has to select “Grant admin consent” (API permissions)",
    "65004": "the user who signed in declined access",
    "90094": "an administrator has to approve this app (API permissions, “Grant admin consent”)",
    "50011": "the app has no redirect URI http://localhost (Authentication, Mobile and desktop applications)",
    "7000218": "the app does not allow public client flows (Authentication, “Allow public client flows”: Yes)",
    "50194": "the app is for one tenant only: set tenant to it, or open the app to other accounts (Authentication)",
    "9002346": "the app is for personal accounts only: set tenant=consumers",
    "50020": "this account does not belong to the tenant: set tenant to the account's own, or to common",
    "50057": "the account is disabled",
    "53003": "a Conditional Access policy blocks access",
    "53000": "a Conditional Access policy requires a managed device",
}
_SIGN_IN_AGAIN = {
    "70008": "the sign-in has expired",
    "700082": "the sign-in has expired: it was not used for too long",
    "700084": "the sign-in has expired",
    "50173": "the sign-in was revoked, for example by a password change",
    "50076": "the account requires a second factor",
    "50078": "the account requires its second factor again",
    "50079": "the account has to set up a second factor",
    "50132": "the sign-in was revoked",
    "70043": "the sign-in has expired because of a Conditional Access policy",
    "50089": "the sign-in has expired",
    "70000": "the sign-in is no longer valid",
}
_LASTING = {"invalid_client", "invalid_grant", "unauthorized_client", "invalid_request", "invalid_scope", "consent_required"}
_NO_MAILBOX = {
    "MailboxNotEnabledForRESTAPI": "it has no mailbox in the cloud (none at all, inactive, or on premises)",
    "MailboxNotSupportedForRESTAPI": "its mailbox is of a kind that Microsoft Graph can't read",
    "ErrorNonExistentMailbox": "it has no mailbox",
    "ErrorInvalidUser": "the user no longer exists",
    "Request_ResourceNotFound": "the user no longer exists",
    "ResourceNotFound": "the user no longer exists",
    "ErrorMailboxMoveInProgress": "its mailbox is being moved",
    "ErrorMailboxStoreUnavailable": "its mailbox is temporarily unavailable",
}
_WIDER = {
    "Mail.Read": ("Mail.Read", "Mail.ReadWrite"),
    "Mail.ReadWrite": ("Mail.ReadWrite",),
    "User.Read.All": ("User.Read.All", "User.ReadWrite.All", "Directory.Read.All", "Directory.ReadWrite.All"),
    "GroupMember.Read.All": ("GroupMember.Read.All", "Group.Read.All", "Group.ReadWrite.All", "Directory.Read.All"),
    "MailboxSettings.Read": ("MailboxSettings.Read", "MailboxSettings.ReadWrite"),
}


def entra_error(answer: Mapping[str, Json], secrets: Iterable[str]) -> ConnectorError:
    """For Entra's response if it is not a token."""
    text = str(answer.get("error_description") or answer.get("error") or "")
    found = re.search(r"AADSTS(\d+)", text)
    code = found.group(1) if found else ""
    if code in _SIGN_IN_AGAIN:
        return AuthFailed(f"{_SIGN_IN_AGAIN[code]} (AADSTS{code}). Sign in again: `archiver source edit NAME --sign-in`")
    if code in _ENTRA:
        return AuthFailed(f"{_ENTRA[code]} (AADSTS{code})")
    said = one_line(text, secrets)
    if answer.get("error") in _LASTING:
        return AuthFailed(f"Entra rejected the sign-in: {said}")
    return Unavailable(f"Entra returned no token: {said}")


def permission_error(permission: str, token: str, target: str) -> AuthFailed:
    """For a 403. The token lists its permissions, if Microsoft lets us read it."""
    granted = granted_permissions(token)
    if granted is not None and granted.isdisjoint(_WIDER.get(permission, (permission,))):
        has = ", ".join(sorted(granted)) or "none"
        return AuthFailed(
            f"the app lacks the permission {permission}: add it (API permissions, Microsoft Graph) and select"
            f" “Grant admin consent”. It has: {has}"
        )
    return AuthFailed(
        f"Microsoft Graph denies access to {target}, which needs the permission {permission}: it is not granted, or a policy"
        " (RBAC for Applications, application access policy) excludes this mailbox"
    )


def granted_permissions(token: str) -> set[str] | None:
    """None if unknown. The token is not verified: it only explains what a server has already refused."""
    try:
        payload = token.split(".")[1]
        claims = json.loads(base64.urlsafe_b64decode(payload + "=" * (-len(payload) % 4)))
        return {*claims.get("roles", ()), *str(claims.get("scp", "")).split()}
    except (IndexError, ValueError, binascii.Error, AttributeError, TypeError):
        return None


def mailbox_error(code: str) -> str | None:
    """Why a mailbox can't be read at all, if the code says so."""
    return _NO_MAILBOX.get(code)


def missing(needed: Collection[str], token: str) -> list[str]:
    """The permissions of `needed` that the token does not grant, as far as that is known."""
    granted = granted_permissions(token)
    if granted is None:
        return []
    return [permission for permission in needed if granted.isdisjoint(_WIDER.get(permission, (permission,)))]
