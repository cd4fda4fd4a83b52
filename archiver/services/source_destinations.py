"""Where the secrets of a source go: which servers are allowed, and when stored secrets have to be given again."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from pydantic import BaseModel, ValidationError

from archiver.errors import UsageError
from archiver.services.principal import Principal, Right
from archiver.services.public_address import is_public, resolve
from connectors.kinds import Kind
from connectors.selection import SourceSettings, destinations, fits


class SecretsNeeded(UsageError):
    """The source is about to talk to another server, which must not get what was meant for the first one."""

    code = "secrets_needed"


def check_hosts(checked: BaseModel, allowed: Iterable[str], who: Principal) -> None:
    """Raises UsageError for a server that SOURCE_HOSTS does not name, and for a private one unless `who` administers."""
    hosts = checked.hosts() if isinstance(checked, SourceSettings) else ()
    patterns = tuple(allowed)
    for host in hosts:
        if patterns and not any(fits(pattern, host) for pattern in patterns):
            raise UsageError(f"SOURCE_HOSTS does not allow {host[:200]!r}")
        if Right.ADMIN not in who.rights and not _is_public(host):
            raise UsageError(f"{host[:200]!r} is not a public server: only an administrator can add it")


def moved_settings(kind: Kind, before: Mapping[str, Any], after: BaseModel) -> list[str]:
    """The settings that send the source's secrets elsewhere than before."""
    names = destinations(kind.settings)
    try:
        old = kind.settings.model_validate(dict(before))
    except ValidationError:  # of an older version: what it meant is not known
        return list(names)
    return [name for name in names if getattr(old, name) != getattr(after, name)]


def secrets_to_keep(stored: Mapping[str, str], given: Mapping[str, str], moved: Iterable[str]) -> Mapping[str, str]:
    """The stored secrets; none of them when the source moved. Raises SecretsNeeded unless all of them were given again."""
    names = list(moved)
    if not names:
        return stored
    missing = [name for name, value in stored.items() if value and not given.get(name)]
    if missing:
        raise SecretsNeeded(f"{', '.join(names)} changed: give {', '.join(missing)} again, which the new server would receive")
    return {}


def _is_public(host: str) -> bool:
    try:
        addresses = resolve(host)
    except OSError:
        return False
    return bool(addresses) and all(map(is_public, addresses))
