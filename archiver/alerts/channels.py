"""Channels: who is notified, where, about what, and when not."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime
from uuid import NAMESPACE_URL, UUID, uuid5
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from sqlalchemy import Connection, text

from archiver.access import audit
from archiver.access.principal import Principal
from archiver.alerts.addresses import NoticeAddress, parse_address
from archiver.alerts.quiet_hours import check_time
from archiver.alerts.rules import check_names
from archiver.config import Settings
from archiver.db.ids import uuid7
from archiver.db.states import AlertSeverity
from archiver.errors import ConfigError, NotFound, UsageError
from archiver.secrets import Keyring

_COLUMNS = (
    "SELECT c.id, c.user_id, u.email AS owner, c.name, c.address, c.min_severity, c.muted, c.wants_summary, c.language, c.zone,"
    " c.quiet_from, c.quiet_until FROM alert_channels c LEFT JOIN users u ON u.id = c.user_id"
)
_ACTIVE = " WHERE u.id IS NULL OR u.disabled_at IS NULL ORDER BY c.id"
_INSERT = text("""
    INSERT INTO alert_channels (id, user_id, name, address, min_severity, muted, wants_summary, language, zone, quiet_from,
        quiet_until)
    VALUES (:id, :user_id, :name, :address, :min_severity, :muted, :wants_summary, :language, :zone, :quiet_from,
        :quiet_until)""")
_MAX_NAME = 100
_ORDER = list(AlertSeverity)


@dataclass(frozen=True, slots=True)
class ChannelWishes:
    """What a person chooses for a channel."""

    min_severity: AlertSeverity = AlertSeverity.WARNING
    muted: Sequence[str] = ()
    wants_summary: bool = True
    language: str | None = None
    zone: str | None = None
    quiet_from: str | None = None
    quiet_until: str | None = None

    def check(self) -> None:
        check_names(self.muted)
        if (self.quiet_from is None) != (self.quiet_until is None):
            raise UsageError("quiet hours need a beginning and an end, such as 22:00 and 07:00")
        if self.quiet_from is not None and self.quiet_until is not None:
            check_time(self.quiet_from, "quiet_from")
            check_time(self.quiet_until, "quiet_until")
        if self.zone is not None:
            try:
                ZoneInfo(self.zone)
            except (ZoneInfoNotFoundError, ValueError, OSError):
                raise UsageError(f"zone={self.zone[:60]!r}: expected a time zone such as Europe/Berlin") from None

    def accepts(self, rule: str, severity: AlertSeverity) -> bool:
        return rule not in self.muted and _ORDER.index(severity) >= _ORDER.index(self.min_severity)


@dataclass(frozen=True, slots=True)
class AlertChannel:
    id: UUID
    name: str
    address: str = field(repr=False)
    wishes: ChannelWishes
    user_id: UUID | None = None
    owner: str | None = None
    is_configured: bool = False
    """From ALERT_URLS: it can't be changed here."""

    def parsed(self, settings: Settings) -> NoticeAddress:
        return parse_address(self.address, settings)


@dataclass(frozen=True, slots=True)
class ChannelReport:
    """What the page shows of the last notices of a channel."""

    channel_id: UUID
    last_sent_at: datetime | None
    error: str | None
    """Of the newest notice, if it was not sent."""


def configured_channels(settings: Settings) -> list[AlertChannel]:
    """Those of ALERT_URLS. Their ids follow from their addresses, so that a restart finds their notices again."""
    addresses = settings.alert_urls.get_secret_value().split() if settings.alert_urls else []
    found = []
    for number, address in enumerate(addresses, start=1):
        try:
            shown = parse_address(address, settings).shown
        except UsageError as error:
            raise ConfigError(f"ALERT_URLS (a secret, not shown): entry {number}: {error}") from None
        found.append(AlertChannel(uuid5(NAMESPACE_URL, address), shown, address, ChannelWishes(), is_configured=True))
    return found


def load_channels(connection: Connection, settings: Settings, keyring: Keyring) -> list[AlertChannel]:
    rows = connection.execute(text(_COLUMNS + _ACTIVE))
    return [*configured_channels(settings), *(_channel(row, keyring) for row in rows)]


def _channel(row: object, keyring: Keyring) -> AlertChannel:
    (channel_id, user_id, owner, name, sealed, severity, muted, summary, language, zone, begin, end) = tuple(row)  # type: ignore[arg-type, var-annotated]
    wishes = ChannelWishes(AlertSeverity(severity), tuple(muted), summary, language, zone, begin, end)
    return AlertChannel(channel_id, name, keyring.unseal(bytes(sealed), channel_id.bytes).decode(), wishes, user_id, owner)


def find_channel(connection: Connection, settings: Settings, keyring: Keyring, channel_id: UUID | str) -> AlertChannel:
    """By its id, the beginning of its id, or its name."""
    wanted = str(channel_id)
    found = [
        one for one in load_channels(connection, settings, keyring) if str(one.id).startswith(wanted) or one.name == wanted
    ]
    if len(found) != 1 or not wanted:
        raise NotFound(f"{'several alert channels match' if found else 'there is no alert channel'} {wanted!r}")
    return found[0]


def add_channel(
    connection: Connection,
    settings: Settings,
    keyring: Keyring,
    principal: Principal,
    name: str,
    address: str,
    wishes: ChannelWishes | None = None,
) -> AlertChannel:
    wishes = wishes or ChannelWishes()
    wishes.check()
    shown = parse_address(address, settings).shown
    name = " ".join(name.split()) or shown
    if len(name) > _MAX_NAME:
        raise UsageError(f"the name of a channel has at most {_MAX_NAME} characters")
    channel = AlertChannel(uuid7(), name, address.strip(), wishes, principal.user_id)
    values = {
        "id": channel.id,
        "user_id": channel.user_id,
        "name": channel.name,
        "address": keyring.seal(channel.address.encode(), channel.id.bytes),
        "min_severity": str(wishes.min_severity),
        "muted": list(wishes.muted),
        "wants_summary": wishes.wants_summary,
        "language": wishes.language,
        "zone": wishes.zone,
        "quiet_from": wishes.quiet_from,
        "quiet_until": wishes.quiet_until,
    }
    connection.execute(_INSERT, values)
    audit.record(connection, principal, "alert_channel.added", "alert_channel", channel.id, name=name, address=shown)
    return channel


def remove_channel(connection: Connection, principal: Principal, channel: AlertChannel) -> None:
    if channel.is_configured:
        raise UsageError(f"the channel {channel.name} is set in ALERT_URLS: remove it there")
    connection.execute(text("DELETE FROM alert_channels WHERE id = :id"), {"id": channel.id})
    audit.record(connection, principal, "alert_channel.removed", "alert_channel", channel.id, name=channel.name)


def report_channels(connection: Connection) -> dict[UUID, ChannelReport]:
    statement = text(
        "SELECT DISTINCT ON (channel_id) channel_id, (SELECT max(s.sent_at) FROM alert_deliveries s"
        " WHERE s.channel_id = d.channel_id) AS sent_at, CASE WHEN state <> 'sent' THEN error END AS error"
        " FROM alert_deliveries d WHERE state <> 'cancelled' ORDER BY channel_id, created_at DESC"
    )
    return {row.channel_id: ChannelReport(*row) for row in connection.execute(statement)}
