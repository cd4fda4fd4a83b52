"""Alerts: what is wrong, the rules, and the channels that notify people."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any
from uuid import UUID

from fastapi import APIRouter, Query
from pydantic import BaseModel, Field

from archiver.alerts import channels, deliveries, environment, history, rules
from archiver.alerts.channels import AlertChannel, ChannelReport, ChannelWishes
from archiver.alerts.history import Alert
from archiver.alerts.rules import AlertRule
from archiver.db.states import AlertSeverity
from archiver.errors import UsageError
from archiver.http.api.page import INVALID_CURSOR, Cursor, Limit, Page, RequestBody, decode_cursor, encode_cursor, time_of
from archiver.http.auth import Administrator, Context, Viewer
from archiver.http.context import ApiContext

router = APIRouter(prefix="/alerts", tags=["alerts"])

Time = Annotated[str | None, Field(max_length=5, examples=["22:00"])]


class AlertShape(BaseModel):
    id: UUID
    rule: str
    subject: Annotated[str, Field(description="What the rule found, such as the ID of a source.")]
    severity: AlertSeverity
    title: str
    advice: str
    details: dict[str, Any]
    raised_at: datetime
    resolved_at: datetime | None
    acknowledged_at: datetime | None
    acknowledged_by: str | None


class RuleChange(RequestBody):
    """What is not sent gets the default of the rule."""

    enabled: bool = True
    threshold: Annotated[float | None, Field(gt=0, le=1e12)] = None
    for_minutes: Annotated[int | None, Field(ge=0, le=43_200, description="How long it has to hold first.")] = None


class ChannelShape(BaseModel):
    id: UUID
    name: str
    owner: str | None
    configured: Annotated[bool, Field(description="Set by ALERT_URLS; it can't be changed here.")]
    to: Annotated[str, Field(description="Where it leads, without secrets.")]
    min_severity: AlertSeverity
    muted: list[str]
    wants_summary: bool
    language: str | None
    zone: str | None
    quiet_from: str | None
    quiet_until: str | None
    last_sent_at: datetime | None = None
    error: Annotated[str | None, Field(description="Why the newest notice could not be sent yet.")] = None


class NewChannel(RequestBody):
    name: Annotated[str, Field(max_length=100)] = ""
    address: Annotated[
        str,
        Field(
            max_length=2000,
            description="`mailto:…` (through SMTP_URL), `smtp(s)://…?from=…&to=…`, `https://…#secret` for a signed webhook, or"
            " an address of Apprise. Stored encrypted, never shown again.",
        ),
    ]
    min_severity: AlertSeverity = AlertSeverity.WARNING
    muted: Annotated[
        list[str], Field(max_length=100, default_factory=list, description="Names of rules that it does not report.")
    ]
    wants_summary: bool = True
    language: Annotated[str | None, Field(max_length=10)] = None
    zone: Annotated[str | None, Field(max_length=60, examples=["Europe/Berlin"])] = None
    quiet_from: Time = None
    quiet_until: Time = None

    def wishes(self) -> ChannelWishes:
        values = {name: getattr(self, name) for name in ("min_severity", "wants_summary", "language", "zone")}
        return ChannelWishes(**values, muted=tuple(self.muted), quiet_from=self.quiet_from, quiet_until=self.quiet_until)


class ConfirmedKeys(BaseModel):
    keys: list[str]


def _shape(alert: Alert) -> AlertShape:
    values = {name: getattr(alert, name) for name in AlertShape.model_fields if name not in ("title", "advice")}
    return AlertShape(**values, title=alert.title(), advice=alert.advice())


def _channel_shape(context: ApiContext, channel: AlertChannel, report: ChannelReport | None = None) -> ChannelShape:
    wishes = {name: getattr(channel.wishes, name) for name in ChannelWishes.__dataclass_fields__}
    return ChannelShape(
        id=channel.id,
        name=channel.name,
        owner=channel.owner,
        configured=channel.is_configured,
        to=_shown(context, channel),
        last_sent_at=report.last_sent_at if report else None,
        error=report.error if report else None,
        **{**wishes, "muted": list(channel.wishes.muted)},
    )


def _shown(context: ApiContext, channel: AlertChannel) -> str:
    try:
        return channel.parsed(context.settings).shown
    except UsageError as error:  # such as a channel for mail, after SMTP_URL was removed
        return str(error)


@router.get("")
def list_alerts(
    principal: Viewer,
    context: Context,
    past: Annotated[bool, Query(description="Resolved alerts, newest first, instead of the open ones.")] = False,
    limit: Limit = 100,
    cursor: Cursor = None,
) -> Page[AlertShape]:
    """Open alerts, critical ones first; or those of the past."""
    with context.reading() as connection:
        if not past:
            return Page(items=[_shape(one) for one in history.open_alerts(connection)])
        found = history.past_alerts(connection, limit, _before(cursor))
    more = encode_cursor(found[-1].raised_at.isoformat(), found[-1].id) if len(found) == limit else None
    return Page(items=[_shape(one) for one in found], next=more)


def _before(cursor: str | None) -> tuple[datetime, UUID] | None:
    if not cursor:
        return None
    at, alert_id = decode_cursor(cursor, 2)
    try:
        return time_of(at), UUID(alert_id)
    except ValueError:
        raise UsageError(INVALID_CURSOR) from None


@router.post("/{alert_id}/acknowledge", status_code=204)
def acknowledge_alert(alert_id: UUID, principal: Administrator, context: Context) -> None:
    """The alert stays open, but is no longer counted by the bell."""
    with context.engine.begin() as connection:
        history.acknowledge(connection, principal, alert_id)


@router.get("/rules")
def list_rules(principal: Viewer, context: Context) -> Page[AlertRule]:
    """All rules, with the changes made to them."""
    with context.reading() as connection:
        return Page(items=list(rules.load_rules(connection).values()))


@router.put("/rules/{name}")
def change_rule(name: str, body: RuleChange, principal: Administrator, context: Context) -> AlertRule:
    with context.engine.begin() as connection:
        changed = rules.change_rule(connection, principal, name, **body.model_dump())
    context.save_config()
    return changed


@router.get("/channels")
def list_channels(principal: Administrator, context: Context) -> Page[ChannelShape]:
    """Channels of all people, and those of ALERT_URLS."""
    with context.reading() as connection:
        found = channels.load_channels(connection, context.settings, context.keyring)
        reports = channels.report_channels(connection)
    return Page(items=[_channel_shape(context, one, reports.get(one.id)) for one in found])


@router.post("/channels", status_code=201)
def add_channel(body: NewChannel, principal: Administrator, context: Context) -> ChannelShape:
    with context.engine.begin() as connection:
        wishes = body.wishes()
        added = channels.add_channel(connection, context.settings, context.keyring, principal, body.name, body.address, wishes)
    context.save_config()
    return _channel_shape(context, added)


@router.delete("/channels/{channel_id}", status_code=204)
def remove_channel(channel_id: UUID, principal: Administrator, context: Context) -> None:
    with context.engine.begin() as connection:
        found = channels.find_channel(connection, context.settings, context.keyring, channel_id)
        channels.remove_channel(connection, principal, found)
    context.save_config()


@router.post("/channels/{channel_id}/test", status_code=204)
def test_channel(channel_id: UUID, principal: Administrator, context: Context) -> None:
    """Sends a test at once. 422 (`not_sent`) if the receiver did not take it."""
    with context.reading() as connection:
        found = channels.find_channel(connection, context.settings, context.keyring, channel_id)
    deliveries.send_test(found, context.settings)


@router.post("/confirm-keys")
def confirm_keys(principal: Administrator, context: Context) -> ConfirmedKeys:
    """Confirms that a copy of the encryption keys is stored in another place."""
    with context.engine.begin() as connection:
        return ConfirmedKeys(keys=environment.confirm_keys(connection, context.settings, principal))
