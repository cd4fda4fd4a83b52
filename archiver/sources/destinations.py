"""Controls where the secrets of a source are sent: which servers are allowed, and when secrets must be entered again."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from pydantic import BaseModel, ValidationError

from archiver.access.principal import Principal, Right
from archiver.errors import UsageError
from archiver.public_address import is_public, resolve
from connectors.kinds import ConnectorKind
from connectors.selection import SourceSettings, destinations, matches


class SecretsNeeded(UsageError):
    """The source would send its stored secrets to another server than the one they were entered for."""

    code = "secrets_needed"


def check_hosts(checked: BaseModel, allowed: Iterable[str], principal: Principal) -> None:
    """Raises UsageError for a server that SOURCE_HOSTS does not name, and for a private one unless an administrator calls."""
    hosts = checked.hosts() if isinstance(checked, SourceSettings) else ()
    patterns = tuple(allowed)
    for host in hosts:
        if patterns and not any(matches(pattern, host) for pattern in patterns):
            raise UsageError(f"SOURCE_HOSTS does not allow {host[:200]!r}")
        if Right.ADMIN not in principal.rights and not _is_public(host):
            raise UsageError(f"{host[:200]!r} is not a public server: ask an administrator to add this source")


def moved_settings(kind: ConnectorKind, before: Mapping[str, Any], after: BaseModel) -> list[str]:
    """The changed settings that would send the source's secrets to another server."""
    names = destinations(kind.settings)
    try:
        old = kind.settings.model_validate(dict(before))
    except ValidationError:  # stored by an older release: its meaning is unknown
        return list(names)
    return [name for name in names if getattr(old, name) != getattr(after, name)]


def secrets_to_keep(stored: Mapping[str, str], given: Mapping[str, str], moved: Iterable[str]) -> Mapping[str, str]:
    """The stored secrets, or none if the source moved. Then raises SecretsNeeded unless all of them were given again."""
    names = list(moved)
    if not names:
        return stored
    missing = [name for name, value in stored.items() if value and not given.get(name)]
    if missing:
        raise SecretsNeeded(
            f"{', '.join(names)} changed: enter {', '.join(missing)} again, because the new server would receive it"
        )
    return {}


def _is_public(host: str) -> bool:
    try:
        addresses = resolve(host)
    except OSError:
        return False
    return bool(addresses) and all(map(is_public, addresses))
