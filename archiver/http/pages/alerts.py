"""Alerts: what is wrong now, what was, who is notified, and the rules."""

from __future__ import annotations

from typing import Any
from zoneinfo import available_timezones

from fastapi import APIRouter
from fastapi.responses import Response

from archiver.access.principal import Right
from archiver.alerts import channels, deliveries, environment, history, rules, wording
from archiver.alerts.channels import AlertChannel, ChannelWishes
from archiver.db.states import AlertSeverity
from archiver.errors import ArchiverError, UsageError
from archiver.http.api.page import decode_cursor, encode_cursor, time_of
from archiver.http.pages.base import Form, Posted, View, Viewed, parse_id, redirect

router = APIRouter(include_in_schema=False)

_PAST = 50


@router.get("/alerts")
def alerts_page(view: Viewed, cursor: str = "", sent: str = "") -> Response:
    return _page(view, cursor=cursor, sent=sent)


def _page(view: View, status: int = 200, cursor: str = "", **more: Any) -> Response:
    view.principal.require(Right.VIEW)
    at, alert_id = decode_cursor(cursor[:500], 2) if cursor else ("", "")
    before = (time_of(at), parse_id(alert_id)) if cursor else None
    with view.context.reading() as connection:
        past = history.past_alerts(connection, _PAST, before)
        values: dict[str, Any] = {
            "alerts": history.open_alerts(connection),
            "past": past,
            "rules": rules.load_rules(connection),
            "reports": channels.report_channels(connection),
        }
        if Right.ADMIN in view.principal.rights:
            found = channels.load_channels(connection, view.context.settings, view.context.keyring)
            values["channels"] = [(one, _shown(view, one)) for one in found]
    values |= {
        "older": encode_cursor(past[-1].raised_at.isoformat(), past[-1].id) if len(past) == _PAST else None,
        "language": view.t.language,
        "severities": list(AlertSeverity),
        "zones": sorted(zone for zone in available_timezones() if "/" in zone),
        "own_zone": str(view.zone),
        "has_smtp": view.context.settings.smtp_url is not None,
        "error": None,
        "sent": "",
    }
    return view.page("alerts.html", status, **{**values, **more})


def _shown(view: View, channel: AlertChannel) -> str:
    try:
        return channel.parsed(view.context.settings).shown
    except UsageError as error:
        return str(error)


@router.post("/alerts")
def change_alerts(view: Posted, form: Form) -> Response:
    view.principal.require(Right.ADMIN)
    actions = {
        "acknowledge": _acknowledge,
        "confirm-keys": _confirm_keys,
        "add": _add_channel,
        "remove": _remove_channel,
        "test": _test_channel,
        "rule": _change_rule,
    }
    act = actions.get(form.get("do", ""))
    if act is None:
        raise UsageError(f"unknown action {form.get('do', '')[:20]!r}: expected one of {', '.join(actions)}")
    try:
        return redirect(act(view, form))
    except ArchiverError as error:
        return _page(view, 400, error=str(error))


def _acknowledge(view: View, form: dict[str, str]) -> str:
    with view.context.engine.begin() as connection:
        history.acknowledge(connection, view.principal, parse_id(form.get("id", "")))
    return "/alerts"


def _confirm_keys(view: View, _: dict[str, str]) -> str:
    with view.context.engine.begin() as connection:
        environment.confirm_keys(connection, view.context.settings, view.principal)
    return "/alerts"


def _add_channel(view: View, form: dict[str, str]) -> str:
    severity = form.get("min_severity", "")
    wishes = ChannelWishes(
        AlertSeverity(severity) if severity in set(AlertSeverity) else AlertSeverity.WARNING,
        wants_summary=form.get("wants_summary") == "on",
        language=view.t.language if view.t.language in wording.known_languages() else None,
        zone=form.get("zone") or None,
        quiet_from=form.get("quiet_from") or None,
        quiet_until=form.get("quiet_until") or None,
    )
    context = view.context
    with context.engine.begin() as connection:
        address = form.get("address", "")
        channels.add_channel(
            connection, context.settings, context.keyring, view.principal, form.get("name", ""), address, wishes
        )
    context.save_config()
    return "/alerts#channels"


def _find(view: View, form: dict[str, str]) -> AlertChannel:
    with view.context.reading() as connection:
        return channels.find_channel(connection, view.context.settings, view.context.keyring, parse_id(form.get("id", "")))


def _remove_channel(view: View, form: dict[str, str]) -> str:
    found = _find(view, form)
    with view.context.engine.begin() as connection:
        channels.remove_channel(connection, view.principal, found)
    view.context.save_config()
    return "/alerts#channels"


def _test_channel(view: View, form: dict[str, str]) -> str:
    found = _find(view, form)
    deliveries.send_test(found, view.context.settings)
    return f"/alerts?sent={found.id}#channels"


def _change_rule(view: View, form: dict[str, str]) -> str:
    with view.context.engine.begin() as connection:
        rules.change_rule(
            connection,
            view.principal,
            form.get("name", "")[:100],
            enabled=form.get("enabled") == "on",
            threshold=_number(form, "threshold"),
            for_minutes=None if (minutes := _number(form, "for_minutes")) is None else int(minutes),
        )
    view.context.save_config()
    return "/alerts#rules"


def _number(form: dict[str, str], name: str) -> float | None:
    value = form.get(name, "").strip()
    try:
        return float(value) if value else None
    except ValueError:
        raise UsageError(f"{name}={value[:20]!r}: expected a number") from None
