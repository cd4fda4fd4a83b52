"""The types of settings: how a variable is read, and what is allowed."""

from __future__ import annotations

import os
import re
from ipaddress import IPv4Network, IPv6Network, ip_network
from pathlib import Path
from typing import Annotated, Any
from urllib.parse import urlsplit

from pydantic import AfterValidator, BeforeValidator, Field, SecretStr

_INTERVAL = re.compile(r"(\d+)\s*(s|m|h|d)")
_INTERVAL_SECONDS = {"s": 1, "m": 60, "h": 3600, "d": 86400}
_SIZE = re.compile(r"(\d+)\s*(K|M|G|T)?(?:i?B)?", re.IGNORECASE)
_SIZE_BYTES = {"": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30, "T": 1 << 40}


_EACH_MINUTE = "* * * * *"


def interval_seconds(text: str) -> int | None:
    """`30s`, `5m`, `2h`, `1d` as seconds; None for anything else, such as a cron pattern."""
    match = _INTERVAL.fullmatch(text.strip())
    return int(match[1]) * _INTERVAL_SECONDS[match[2]] if match else None


def check_schedule(text: str) -> str:
    """Raises ValueError with the allowed forms."""
    text = " ".join(text.split())
    seconds = interval_seconds(text)
    if seconds is not None:
        if seconds < 1:
            raise ValueError("an interval of at least 1s")
        return text
    if text == _EACH_MINUTE:
        return text
    from croniter import croniter  # takes long to load, and the default needs none of it

    if len(text.split()) not in (5, 6) or not croniter.is_valid(text, second_at_beginning=True):
        raise ValueError(
            'a cron pattern of 5 or 6 fields such as "*/5 * * * *" (6: seconds first), or an interval such as 30s, 5m, 2h, 1d'
        )
    return text


def _size(value: object) -> object:
    if isinstance(value, str):
        match = _SIZE.fullmatch(value.strip())
        if not match:
            raise ValueError("a number of bytes, optionally with K, M, G or T, such as 2G")
        return int(match[1]) * _SIZE_BYTES[(match[2] or "").upper()]
    return value


def url(*schemes: str, needs_host: bool = True) -> Any:
    allowed = " or ".join(f"{scheme}://…" for scheme in schemes)

    def check(secret: SecretStr) -> SecretStr:
        try:
            parts = urlsplit(secret.get_secret_value())
            parts.port  # noqa: B018  (raises ValueError for an invalid port)
        except ValueError as error:
            raise ValueError(f"an address {allowed}") from error
        if parts.scheme not in schemes or (needs_host and not parts.hostname and not parts.path.strip("/")):
            raise ValueError(f"an address {allowed}")
        return secret

    return AfterValidator(check)


def addresses(secret: SecretStr) -> SecretStr:
    if not all(":" in address for address in secret.get_secret_value().split()):
        raise ValueError("addresses, separated by spaces, such as mailto:ann@example.org https://host/path#secret")
    return secret


def _networks(value: object) -> object:
    if not isinstance(value, str):
        return value
    try:
        return tuple(ip_network(part.strip()) for part in value.split(",") if part.strip())
    except ValueError as error:
        raise ValueError("addresses or networks, separated by commas, such as 10.0.0.0/8,::1") from error


def _group_roles(value: object) -> object:
    """`group=role` pairs; the first match counts, and the group `*` matches every user."""
    if not isinstance(value, str):
        return value
    pairs = [tuple(part.strip() for part in entry.rpartition("=")[::2]) for entry in value.split(",") if entry.strip()]
    if any(not group or role not in ("administrator", "auditor", "user") for group, role in pairs):
        raise ValueError("group=role pairs, separated by commas, such as archive-admins=administrator,*=user")
    return tuple(pairs)


def _names(value: object) -> object:
    return tuple(part.strip() for part in value.split(",") if part.strip()) if isinstance(value, str) else value


def folder(path: Path) -> Path:
    return Path(os.path.abspath(path.expanduser()))  # noqa: PTH100  (resolve() would follow symbolic links, which are used on purpose)


def check_backup_target(address: str) -> str:
    """A folder as an absolute path, or s3://bucket/prefix."""
    if address.startswith("s3://"):
        if not re.fullmatch(r"s3://[A-Za-z0-9][A-Za-z0-9._-]{1,62}(?:/[^?#]*)?", address):
            raise ValueError("a folder, or s3://bucket/prefix")
        return address
    if "://" in address:
        raise ValueError("a folder, or s3://bucket/prefix")
    return str(folder(Path(address)))


def _ocr_languages(value: object) -> object:
    names = [part.strip() for part in re.split(r"[+,]", value)] if isinstance(value, str) else []
    if not names or not all(re.fullmatch(r"[A-Za-z]{3}[A-Za-z_]{0,20}(?:/[A-Za-z]{3,20})?", name) for name in names):
        raise ValueError("languages as tesseract names them, such as eng or eng+deu+chi_sim")
    return "+".join(names)


Schedule = Annotated[str, AfterValidator(check_schedule)]
Size = Annotated[int, BeforeValidator(_size), Field(ge=0)]
Port = Annotated[int, Field(ge=1, le=65535)]
DatabaseUrl = Annotated[SecretStr, url("postgresql", "postgres", needs_host=False)]
RedisUrl = Annotated[SecretStr, url("redis", "rediss", "unix")]
HttpUrl = Annotated[SecretStr, url("http", "https")]
Networks = Annotated[tuple[IPv4Network | IPv6Network, ...], BeforeValidator(_networks)]
Names = Annotated[tuple[str, ...], BeforeValidator(_names)]
OcrLanguages = Annotated[str, BeforeValidator(_ocr_languages)]
GroupRoles = Annotated[tuple[tuple[str, str], ...], BeforeValidator(_group_roles)]
