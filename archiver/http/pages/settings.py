"""Settings: own account, API keys, users and their grants, audit log."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID
from zoneinfo import available_timezones

import segno
from fastapi import APIRouter
from fastapi.responses import Response
from markupsafe import Markup

from archiver.access import api_keys, audit, grants, users
from archiver.access.login import logins, totp
from archiver.access.login.sign_in import confirm, confirm_password
from archiver.access.principal import KeyScope, Right, rights_of
from archiver.access.scope import explain_scope
from archiver.access.users import User
from archiver.db.states import UserRole
from archiver.errors import ArchiverError, UsageError
from archiver.evidence.anchors import Anchors
from archiver.evidence.proof import prove
from archiver.http.catalogue import languages
from archiver.http.pages.base import Form, Posted, View, Viewed, local_path, parse_id, redirect

router = APIRouter(include_in_schema=False)

_ENTRIES = 100
_EXPLAINED = 1_000
_CODE = re.compile(r"\d{3} ?\d{3}|[a-z2-7]{4}(-[a-z2-7]{4}){3}")
"""An authenticator code or a recovery code."""


@router.get("/settings")
def profile_page(view: Viewed) -> Response:
    return _profile(view)


def _profile(view: View, status: int = 200, **more: Any) -> Response:
    assert view.principal.user_id is not None
    with view.context.reading() as connection:
        open_sessions = logins.list_sessions(connection, view.context.settings, view.principal.user_id)
        user = users.load(connection, view.principal.user_id)
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
def change_profile(view: Posted, form: Form) -> Response:
    choices = {
        "language": form.get("language") if form.get("language") in languages() else None,
        "theme": form.get("theme") if form.get("theme") in ("light", "dark") else None,
        "zone": form.get("zone") if form.get("zone") in available_timezones() else None,
    }
    with view.context.engine.begin() as connection:
        users.change_settings(connection, view.user, **choices)
    return redirect("/settings")


@router.post("/settings/password")
def change_password(view: Posted, form: Form) -> Response:
    try:
        user = confirm_password(view.context.engine, view.principal, form.get("password", ""))
        with view.context.engine.begin() as connection:
            users.set_password(
                connection, view.principal, user, form.get("new_password", ""), keep_session=view.principal.session_id
            )
    except ArchiverError as error:
        return _profile(view, 400, error=str(error))
    view.context.save_config()
    return redirect("/settings")


@router.post("/settings/second-factor")
def second_factor(view: Posted, form: Form) -> Response:
    context = view.context
    try:
        if form.get("do") == "confirm":
            with context.engine.begin() as connection:
                codes = totp.confirm(connection, context.keyring, view.principal, form.get("code", "").strip()[:10])
            context.save_config()
            return _profile(view, recovery_codes=codes)
        if form.get("do") == "disable":
            user = _confirmed(view, form)
            with context.engine.begin() as connection:
                totp.disable(connection, view.principal, user.id)
            context.save_config()
            return redirect("/settings")
        confirm_password(context.engine, view.principal, form.get("password", ""))
        with context.engine.begin() as connection:
            begun = totp.begin(connection, context.keyring, view.principal)
    except ArchiverError as error:
        return _profile(view, 400, error=str(error))
    return _profile(view, totp={**begun, "qr": _draw_qr(begun["uri"], view.t("settings.factor_qr"))})


def _draw_qr(text: str, title: str) -> Markup:
    """As SVG inside of the page: a secret has no address of its own."""
    drawn = segno.make(text, micro=False).svg_inline(scale=5, border=4, light="white", title=title)
    return Markup(drawn)  # noqa: S704  (paths, made by the library, which escapes the title)


@router.post("/settings/sessions")
def end_session(view: Posted, form: Form) -> Response:
    with view.context.engine.begin() as connection:
        logins.end(connection, view.principal, parse_id(form.get("id", "")))
    return redirect("/settings")


# --- keys


@router.get("/settings/keys")
def keys_page(view: Viewed) -> Response:
    return _keys(view)


def _confirmed(view: View, form: dict[str, str]) -> User:
    """Confirmed by the password, or by a code in the same field."""
    typed = form.get("password", "").strip()
    is_code = view.user.totp_confirmed_at is not None and _CODE.fullmatch(typed) is not None
    password, code = (None, typed) if is_code else (form.get("password"), None)
    return confirm(view.context.engine, view.context.keyring, view.principal, password, code)


def _keys(view: View, status: int = 200, **more: Any) -> Response:
    with view.context.reading() as connection:
        found = api_keys.list_keys(connection, view.principal.user_id)
    values = {"tab": "keys", "keys": found, "scopes": list(KeyScope), "new_key": None, "error": None}
    return view.page("settings_keys.html", status, **{**values, **more})


@router.post("/settings/keys")
def change_keys(view: Posted, form: Form) -> Response:
    try:
        if form.get("do") != "revoke":
            return _keys(view, 201, new_key=_new_key(view, form))
        with view.context.engine.begin() as connection:
            api_keys.revoke(connection, view.principal, parse_id(form.get("id", "")))
    except ArchiverError as error:
        return _keys(view, 400, error=str(error))
    return redirect("/settings/keys")


def _new_key(view: View, form: dict[str, str]) -> str:
    _confirmed(view, form)
    scopes = [scope for scope in KeyScope if form.get(f"scope.{scope.value}") == "on"]
    days = int(form["days"]) if form.get("days", "").isdigit() and len(form["days"]) < 6 else 0
    until = datetime.now(UTC) + timedelta(days=days) if days else None
    with view.context.engine.begin() as connection:
        max_days = view.context.settings.api_key_days
        return api_keys.create(connection, view.principal, form.get("name", ""), scopes, until, max_days)[1]


# --- users and grants


@router.get("/settings/users")
def users_page(view: Viewed) -> Response:
    return _users(view)


def _users(view: View, status: int = 200, **more: Any) -> Response:
    view.principal.require(Right.ADMIN)
    with view.context.reading() as connection:
        found = users.list_users(connection, limit=500)
        granted = {user.id: grants.list_grants(connection, user.id) for user in found}
    values = {"tab": "users", "users": found, "granted": granted, "roles": list(UserRole), "error": None}
    return view.page("settings_users.html", status, **{**values, **more})


@router.post("/settings/users")
def change_users(view: Posted, form: Form) -> Response:
    view.principal.require(Right.ADMIN)
    what = form.get("do", "")
    try:
        with view.context.engine.begin() as connection:
            if what == "add":
                role = UserRole(form["role"]) if form.get("role") in {one.value for one in UserRole} else UserRole.USER
                name, password = form.get("name") or None, form.get("password", "")
                users.add(connection, view.principal, form.get("email", ""), role=role, name=name, password=password)
            else:
                _change_user(connection, view, what, form)
    except ArchiverError as error:
        return _users(view, 400, error=str(error))
    view.context.save_config()
    back = local_path(form.get("next"), "/settings/users")
    return redirect(back if what != "remove" else "/settings/users")


@router.get("/settings/users/{user_id}")
def user_page(view: Viewed, user_id: UUID) -> Response:
    """One user: role, password, and what they can read, each mailbox with the reason."""
    view.principal.require(Right.ADMIN)
    with view.context.reading() as connection:
        user = users.load(connection, user_id)
        granted = {one.id: ", ".join(one.target.values()) for one in grants.list_grants(connection, user_id)}
        reads_all = user.may_read_all or user.role is UserRole.AUDITOR
        readable, is_cut = ([], False) if reads_all else explain_scope(connection, user_id, _EXPLAINED)
    values: dict[str, Any] = {
        "tab": "users",
        "user": user,
        "granted": granted,
        "reads_all": reads_all,
        "readable": sorted(readable, key=lambda one: one.address.lower()),
        "is_cut": is_cut,
        "roles": list(UserRole),
        "rights": sorted(right.value for right in rights_of(user.role)),
    }
    return view.page("settings_user.html", **values)


def _change_user(connection: Any, view: View, what: str, form: dict[str, str]) -> None:
    user = users.load(connection, parse_id(form.get("id", "")))
    if what == "grant":
        chosen = form.get("target", "").strip()
        kind = "pattern" if "*" in chosen else "mailbox" if "@" in chosen else "source"
        wanted = {one: chosen if one == kind else None for one in ("mailbox", "pattern", "source")}
        grants.add(connection, view.principal, user, grants.find_target(connection, **wanted))
    elif what == "revoke":
        grants.remove(connection, view.principal, user, parse_id(form.get("grant", "")))
    elif what == "disable":
        users.change(connection, view.principal, user, disabled=user.disabled_at is None)
    elif what == "read_all":
        users.change(connection, view.principal, user, may_read_all=not user.may_read_all)
    elif what == "restore":
        users.change(connection, view.principal, user, may_restore=not user.may_restore)
    elif what == "remove":
        users.remove(connection, view.principal, user)
    elif what == "role":
        if form.get("role") not in {one.value for one in UserRole}:
            raise UsageError(f"unknown role {form.get('role', '')[:20]!r}")
        users.change(connection, view.principal, user, role=UserRole(form["role"]))
    elif what == "name":
        users.change(connection, view.principal, user, name=form.get("name", ""))
    elif what == "password":
        users.set_password(connection, view.principal, user, form.get("password", ""))
    else:
        expected = "grant, revoke, disable, read_all, restore, role, name, password or remove"
        raise UsageError(f"unknown action {what[:20]!r}: expected {expected}")


# --- the audit log


@router.get("/settings/audit")
def audit_page(view: Viewed, before: int | None = None, action: str = "", actor: str = "", verify: bool = False) -> Response:
    view.principal.require(Right.AUDIT)
    filters = {"before": before, "action": action.strip()[:80] or None, "actor": actor.strip()[:254] or None}
    with view.context.reading() as connection:
        entries = audit.list_entries(connection, limit=_ENTRIES, **filters)
    anchors = Anchors(view.context.engine, view.context.archive, view.context.settings.archiver_data) if verify else None
    verified = prove(anchors) if anchors else None
    values: dict[str, Any] = {"tab": "audit", "entries": entries, "action": action, "actor": actor, "verified": verified}
    return view.page("settings_audit.html", **values, more=entries[-1].id if len(entries) == _ENTRIES else None)
