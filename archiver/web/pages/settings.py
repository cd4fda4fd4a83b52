"""Settings: one's own account, keys, users and what they may see, the audit log."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from typing import Any
from zoneinfo import available_timezones

from fastapi import APIRouter
from fastapi.responses import Response

from archiver.errors import ArchiverError, UsageError
from archiver.models.states import Role
from archiver.services import api_keys, audit, grants, sessions, totp, users
from archiver.services.audit_anchors import Anchors
from archiver.services.audit_proof import prove
from archiver.services.principal import Right, Scope
from archiver.services.sign_in import confirm, confirm_password
from archiver.services.users import User
from archiver.web.catalogue import languages
from archiver.web.pages.base import Form, Posted, View, Viewed, given_id, see

router = APIRouter(include_in_schema=False)

_ENTRIES = 100
_CODE = re.compile(r"\d{3} ?\d{3}|[a-z2-7]{4}(-[a-z2-7]{4}){3}")
"""Of an authenticator, or for recovery."""


@router.get("/settings")
def profile_page(view: Viewed) -> Response:
    return _profile(view)


def _profile(view: View, status: int = 200, **more: Any) -> Response:
    assert view.who.user_id is not None
    with view.context.reading() as connection:
        open_sessions = sessions.listed(connection, view.context.settings, view.who.user_id)
        user = users.load(connection, view.who.user_id)
    values = {
        "tab": "profile",
        "user": user,
        "sessions": open_sessions,
        "languages": languages(),
        "zones": sorted(zone for zone in available_timezones() if "/" in zone),
        "error": None,
        "recovery_codes": None,
        "totp": None,
    }
    return view.page("settings.html", status, **{**values, **more})


@router.post("/settings/profile")
def change_profile(view: Posted, given: Form) -> Response:
    choices = {
        "language": given.get("language") if given.get("language") in languages() else None,
        "theme": given.get("theme") if given.get("theme") in ("light", "dark") else None,
        "zone": given.get("zone") if given.get("zone") in available_timezones() else None,
    }
    with view.context.engine.begin() as connection:
        users.change_settings(connection, view.user, **choices)
    return see("/settings")


@router.post("/settings/password")
def change_password(view: Posted, given: Form) -> Response:
    try:
        user = confirm_password(view.context.engine, view.who, given.get("password", ""))
        with view.context.engine.begin() as connection:
            users.set_password(connection, view.who, user, given.get("new_password", ""), keep_session=view.who.session_id)
    except ArchiverError as error:
        return _profile(view, 400, error=str(error))
    view.context.keep_config()
    return see("/settings")


@router.post("/settings/second-factor")
def second_factor(view: Posted, given: Form) -> Response:
    context = view.context
    try:
        if given.get("do") == "confirm":
            with context.engine.begin() as connection:
                codes = totp.confirm(connection, context.keyring, view.who, given.get("code", "").strip()[:10])
            context.keep_config()
            return _profile(view, recovery_codes=codes)
        if given.get("do") == "disable":
            user = _confirmed(view, given)
            with context.engine.begin() as connection:
                totp.disable(connection, view.who, user.id)
            context.keep_config()
            return see("/settings")
        confirm_password(context.engine, view.who, given.get("password", ""))
        with context.engine.begin() as connection:
            begun = totp.begin(connection, context.keyring, view.who)
    except ArchiverError as error:
        return _profile(view, 400, error=str(error))
    return _profile(view, totp=begun)


@router.post("/settings/sessions")
def end_session(view: Posted, given: Form) -> Response:
    with view.context.engine.begin() as connection:
        sessions.end(connection, view.who, given_id(given.get("id", "")))
    return see("/settings")


# --- keys


@router.get("/settings/keys")
def keys_page(view: Viewed) -> Response:
    return _keys(view)


def _confirmed(view: View, given: dict[str, str]) -> User:
    """By the password, or by a code typed in its place."""
    typed = given.get("password", "").strip()
    is_code = view.user.totp_confirmed_at is not None and _CODE.fullmatch(typed) is not None
    password, code = (None, typed) if is_code else (given.get("password"), None)
    return confirm(view.context.engine, view.context.keyring, view.who, password, code)


def _keys(view: View, status: int = 200, **more: Any) -> Response:
    with view.context.reading() as connection:
        found = api_keys.listed(connection, view.who.user_id)
    values = {"tab": "keys", "keys": found, "scopes": list(Scope), "new_key": None, "error": None}
    return view.page("settings_keys.html", status, **{**values, **more})


@router.post("/settings/keys")
def change_keys(view: Posted, given: Form) -> Response:
    try:
        if given.get("do") != "revoke":
            return _keys(view, 201, new_key=_new_key(view, given))
        with view.context.engine.begin() as connection:
            api_keys.revoke(connection, view.who, given_id(given.get("id", "")))
    except ArchiverError as error:
        return _keys(view, 400, error=str(error))
    return see("/settings/keys")


def _new_key(view: View, given: dict[str, str]) -> str:
    _confirmed(view, given)
    scopes = [scope for scope in Scope if given.get(f"scope.{scope.value}") == "on"]
    days = int(given["days"]) if given.get("days", "").isdigit() and len(given["days"]) < 6 else 0
    until = datetime.now(UTC) + timedelta(days=days) if days else None
    with view.context.engine.begin() as connection:
        most_days = view.context.settings.api_key_days
        return api_keys.create(connection, view.who, given.get("name", ""), scopes, until, most_days)[1]


# --- users and grants


@router.get("/settings/users")
def users_page(view: Viewed) -> Response:
    return _users(view)


def _users(view: View, status: int = 200, **more: Any) -> Response:
    view.who.require(Right.ADMIN)
    with view.context.reading() as connection:
        found = users.listed(connection, most=500)
        granted = {user.id: grants.listed(connection, user.id) for user in found}
    values = {"tab": "users", "users": found, "granted": granted, "roles": list(Role), "error": None}
    return view.page("settings_users.html", status, **{**values, **more})


@router.post("/settings/users")
def change_users(view: Posted, given: Form) -> Response:
    view.who.require(Right.ADMIN)
    what = given.get("do", "")
    try:
        with view.context.engine.begin() as connection:
            if what == "add":
                role = Role(given["role"]) if given.get("role") in {one.value for one in Role} else Role.USER
                name, password = given.get("name") or None, given.get("password", "")
                users.add(connection, view.who, given.get("email", ""), role=role, name=name, password=password)
            else:
                _change_user(connection, view, what, given)
    except ArchiverError as error:
        return _users(view, 400, error=str(error))
    view.context.keep_config()
    return see("/settings/users")


def _change_user(connection: Any, view: View, what: str, given: dict[str, str]) -> None:
    user = users.load(connection, given_id(given.get("id", "")))
    if what == "grant":
        chosen = given.get("target", "").strip()
        kind = "pattern" if "*" in chosen else "mailbox" if "@" in chosen else "source"
        wanted = {one: chosen if one == kind else None for one in ("mailbox", "pattern", "source")}
        grants.add(connection, view.who, user, grants.find_target(connection, **wanted))
    elif what == "revoke":
        grants.remove(connection, view.who, user, given_id(given.get("grant", "")))
    elif what == "disable":
        users.change(connection, view.who, user, disabled=user.disabled_at is None)
    elif what == "read_all":
        users.change(connection, view.who, user, may_read_all=not user.may_read_all)
    elif what == "remove":
        users.remove(connection, view.who, user)
    else:
        raise UsageError(f"a user can't {what[:20]!r}")


# --- the audit log


@router.get("/settings/audit")
def audit_page(view: Viewed, before: int | None = None, action: str = "", actor: str = "", verify: bool = False) -> Response:
    view.who.require(Right.AUDIT)
    filters = {"before": before, "action": action.strip()[:80] or None, "actor": actor.strip()[:254] or None}
    with view.context.reading() as connection:
        entries = audit.listed(connection, most=_ENTRIES, **filters)
    anchors = Anchors(view.context.engine, view.context.archive, view.context.settings.archiver_data) if verify else None
    verified = prove(anchors) if anchors else None
    values: dict[str, Any] = {"tab": "audit", "entries": entries, "action": action, "actor": actor, "verified": verified}
    return view.page("settings_audit.html", **values, more=entries[-1].id if len(entries) == _ENTRIES else None)
