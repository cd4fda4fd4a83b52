"""All settings, from the environment and `.env`, in one typed object that the entry points create and pass down."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from functools import cached_property
from ipaddress import ip_network
from pathlib import Path
from typing import Annotated, Any, Literal, get_args, get_origin
from urllib.parse import quote, urlsplit, urlunsplit

from dotenv import dotenv_values
from pydantic import AfterValidator, BaseModel, ConfigDict, Field, SecretStr, ValidationError

from archiver.errors import ConfigError
from archiver.setting_types import (
    DatabaseUrl,
    GroupRoles,
    HttpUrl,
    Names,
    Networks,
    OcrLanguages,
    Port,
    RedisUrl,
    Schedule,
    Size,
    addresses,
    check_backup_target,
    folder,
    url,
)
from archiver.setting_types import check_schedule as check_schedule
from archiver.setting_types import interval_seconds as interval_seconds


class Settings(BaseModel):
    """Each field is set by the variable of the same name in upper case. An empty variable counts as not set."""

    model_config = ConfigDict(frozen=True, extra="forbid", hide_input_in_errors=True, validate_default=True)

    # concurrency and schedules
    sync_frequency: Schedule = "* * * * *"
    ingestion_worker_concurrency: Annotated[int, Field(ge=1, le=200)] = 5
    reconcile_frequency: Schedule = "5m"
    meili_indexing_batch: Annotated[int, Field(ge=1, le=10_000)] = 2_000
    indexing_processes: Annotated[int, Field(ge=1, le=64)] = max(1, min(4, (os.cpu_count() or 1) // 2))
    slice_seconds: Annotated[int, Field(ge=1, le=3600)] = 30
    sync_stale_minutes: Annotated[int, Field(ge=1, le=1440)] = 30
    connector_idle_seconds: Annotated[int, Field(ge=1, le=3600)] = 300
    queue_max_depth: Annotated[int, Field(ge=10, le=1_000_000)] = 1000
    import_slots: Annotated[int, Field(ge=1, le=200)] = 2
    sync_starts_per_tick: Annotated[int, Field(ge=1, le=10_000)] = 50
    sync_starts_per_owner: Annotated[int, Field(ge=0, le=10_000)] = 0
    imap_server_messages_per_minute: Annotated[int, Field(ge=0, le=10_000_000)] = 0
    imap_owner_messages_per_minute: Annotated[int, Field(ge=0, le=10_000_000)] = 0
    backpressure_lag_seconds: Annotated[int, Field(ge=0, le=30 * 86400)] = 3600
    backpressure_spool_bytes: Size = 100 << 30
    disk_min_free_bytes: Size = 1 << 30
    ocr: Literal["auto", "on", "off"] = "auto"
    ocr_languages: OcrLanguages = "eng"
    imap_connections: Annotated[int, Field(ge=1, le=8)] = 2
    idle_max: Annotated[int, Field(ge=0, le=2000)] = 200

    # external servers; a part without an address runs embedded
    database_url: DatabaseUrl | None = None
    database_password: SecretStr | None = None
    database_owner_url: DatabaseUrl | None = None
    database_owner_password: SecretStr | None = None
    redis_url: RedisUrl | None = None
    redis_password: SecretStr | None = None
    meili_host: HttpUrl | None = None
    meili_master_key: SecretStr | None = None

    # sources
    source_hosts: Names = ()
    sample_sources: bool = False

    # storage
    archiver_data: Annotated[Path, AfterValidator(folder)] = Path("data")
    storage_type: Literal["local", "s3"] = "local"
    storage_s3_endpoint: HttpUrl | None = None
    storage_s3_bucket: str | None = None
    storage_s3_region: str = "us-east-1"
    storage_s3_access_key_id: str | None = None
    storage_s3_secret_access_key: SecretStr | None = None
    storage_s3_force_path_style: bool = False
    storage_s3_object_lock_days: Annotated[int, Field(ge=0, le=36500)] = 0
    storage_s3_cache_bytes: Size = 1 << 30
    storage_encryption_key: SecretStr | None = None
    compact_frequency: Schedule | Literal["never"] = "1d"
    encryption_key: SecretStr | None = None

    # the first administrator, for installations without a person at the keyboard
    archiver_admin_email: str | None = None
    archiver_admin_password: SecretStr | None = None
    archiver_admin_purpose: Literal["own_mail", "company"] = "company"

    # backups
    backup_target: Annotated[str, AfterValidator(check_backup_target)] | None = None
    backup_frequency: Schedule = "1d"
    backup_keep: Annotated[int, Field(ge=1, le=1000)] = 7
    backup_s3_endpoint: HttpUrl | None = None
    backup_s3_region: str | None = None
    backup_s3_access_key_id: str | None = None
    backup_s3_secret_access_key: SecretStr | None = None
    backup_s3_force_path_style: bool | None = None
    drill_frequency: Schedule | Literal["never"] = "30d"
    drill_folder: Annotated[Path, AfterValidator(folder)] | None = None

    # retention
    two_person_approval: Literal["auto", "on", "off"] = "auto"
    retention_frequency: Schedule = "1h"
    retention_max_deletions: Annotated[int, Field(ge=1, le=100_000_000)] = 100_000

    # journaling by SMTP; a port enables it
    journal_port: Port | None = None
    journal_tls_port: Port | None = None
    journal_host: str = "127.0.0.1"
    journal_name: str | None = None
    journal_tls_certificate: Annotated[Path, AfterValidator(folder)] | None = None
    journal_tls_key: Annotated[Path, AfterValidator(folder)] | None = None
    journal_require_tls: bool = True
    journal_networks: Networks = (ip_network("127.0.0.0/8"), ip_network("::1"))
    journal_addresses: Names = ()
    journal_domains: Names = ()
    journal_reports: bool = False
    journal_username: str | None = None
    journal_password: SecretStr | None = None
    journal_max_bytes: Size = 150 << 20
    journal_connections: Annotated[int, Field(ge=1, le=1000)] = 50
    journal_messages_per_minute: Annotated[int, Field(ge=0, le=1_000_000)] = 0

    # the door
    archiver_host: str = "127.0.0.1"
    archiver_port: Port = 8080
    archiver_published_port: Port | None = None
    archiver_url: HttpUrl | None = None
    trusted_proxies: Networks = ()
    session_idle_minutes: Annotated[int, Field(ge=1, le=60 * 24 * 30)] = 720
    session_days: Annotated[int, Field(ge=1, le=365)] = 14
    api_key_days: Annotated[int, Field(ge=1, le=36500)] = 366
    api_requests_per_minute: Annotated[int, Field(ge=0, le=1_000_000)] = 1200
    upload_max_bytes: Size = 20 << 30
    export_max_bytes: Size = 20 << 30
    audit_syslog: Annotated[SecretStr, url("udp", "tcp", "unix")] | None = None
    metrics_token: Annotated[SecretStr, Field(min_length=16)] | None = None
    oidc_issuer: HttpUrl | None = None
    oidc_client_id: str | None = None
    oidc_client_secret: SecretStr | None = None
    oidc_groups_claim: str = "groups"
    oidc_roles: GroupRoles = ()
    alert_urls: Annotated[SecretStr, AfterValidator(addresses)] | None = None
    operator_hmac_key: Annotated[SecretStr, Field(min_length=32)] | None = None
    smtp_url: Annotated[SecretStr, url("smtp", "smtps")] | None = None
    log_level: Literal["debug", "info", "warning", "error"] = "info"
    log_files: bool = True

    @cached_property
    def embedded(self) -> frozenset[str]:
        """The parts that run embedded, because no address is configured for them."""
        addresses = {"postgres": self.database_url, "valkey": self.redis_url, "search": self.meili_host}
        return frozenset(part for part, address in addresses.items() if address is None)

    @property
    def has_journal(self) -> bool:
        return self.journal_port is not None or self.journal_tls_port is not None

    @property
    def log_folder(self) -> Path | None:
        """None where the container engine stores what processes print, and several workers would rotate one file."""
        return self.archiver_data / "logs" if self.log_files else None


def load_settings(environ: Mapping[str, str] | None = None, env_file: Path = Path(".env")) -> Settings:
    """Reads `.env` and the environment, which takes precedence. Raises ConfigError with one line for each invalid value."""
    values = {**dotenv_values(env_file), **(os.environ if environ is None else environ)}
    given = {name.lower(): value for name, value in values.items() if name.lower() in Settings.model_fields and value}
    given |= _secrets_from_files(values)
    if "log_level" in given:
        given["log_level"] = given["log_level"].lower()
    try:
        settings = Settings.model_validate(given)
    except ValidationError as error:
        raise ConfigError("\n".join(_explain(item, given) for item in error.errors())) from None
    _check_combinations(settings)
    return _with_passwords(settings)


def _secrets_from_files(values: Mapping[str, str | None]) -> dict[str, str]:
    """`NAME_FILE` holds the path of a file with the secret NAME, as Docker and Kubernetes hand secrets in."""
    found = {}
    for name, path in values.items():
        field = name.lower().removesuffix("_file")
        if not name.upper().endswith("_FILE") or not path or field not in Settings.model_fields:
            continue
        if not _is_secret(Settings.model_fields[field].annotation):
            continue
        if values.get(field.upper()):
            raise ConfigError(f"{field.upper()} and {name.upper()} are both set: only one of them can count")
        try:
            found[field] = Path(path).read_text().rstrip("\r\n")
        except (OSError, UnicodeDecodeError) as error:
            reason = error.strerror if isinstance(error, OSError) else "it is not text"
            raise ConfigError(f"{name.upper()}={path!r}: the file can't be read: {reason}") from None
        if not found[field]:
            raise ConfigError(f"{name.upper()}={path!r}: the file is empty")
    return found


def _with_passwords(settings: Settings) -> Settings:
    """DATABASE_PASSWORD, DATABASE_OWNER_PASSWORD and REDIS_PASSWORD may hold any character; in an address it would have to be
    encoded."""
    changes = {}
    for name in ("database", "database_owner", "redis"):
        url, password = getattr(settings, f"{name}_url"), getattr(settings, f"{name}_password")
        if password is None:
            continue
        if url is None:
            raise ConfigError(f"{name.upper()}_PASSWORD needs {name.upper()}_URL as well")
        parts = urlsplit(url.get_secret_value())
        if parts.password is not None:
            raise ConfigError(f"{name.upper()}_URL has a password already: remove it there, or unset {name.upper()}_PASSWORD")
        secret = quote(password.get_secret_value(), safe="")
        netloc = f"{parts.username or ''}:{secret}@{parts.netloc.rpartition('@')[2]}"
        changes[f"{name}_url"] = SecretStr(urlunsplit(parts._replace(netloc=netloc)))
    return settings.model_copy(update=changes) if changes else settings


def _check_combinations(settings: Settings) -> None:
    """Values that are valid on their own but not in combination."""
    if settings.storage_type == "s3":
        needed = (
            "storage_s3_bucket",
            "storage_s3_access_key_id",
            "storage_s3_secret_access_key",
            "storage_encryption_key",
        )
        missing = [name.upper() for name in needed if not getattr(settings, name)]
        if missing:
            raise ConfigError(f"STORAGE_TYPE=s3 also needs {', '.join(missing)}")
    if settings.oidc_issuer and not (settings.oidc_client_id and settings.archiver_url and settings.oidc_roles):
        raise ConfigError("OIDC_ISSUER also needs OIDC_CLIENT_ID, OIDC_ROLES and ARCHIVER_URL")
    if settings.oidc_issuer and not _is_private(settings.oidc_issuer.get_secret_value()):
        raise ConfigError("OIDC_ISSUER must be an https:// address, except on this machine")
    if settings.database_owner_url and not settings.database_url:
        raise ConfigError("DATABASE_OWNER_URL needs DATABASE_URL as well")
    if bool(settings.archiver_admin_email) != bool(settings.archiver_admin_password):
        raise ConfigError("ARCHIVER_ADMIN_EMAIL and ARCHIVER_ADMIN_PASSWORD (or ARCHIVER_ADMIN_PASSWORD_FILE) go together")
    if settings.meili_host and not settings.meili_master_key:
        raise ConfigError("MEILI_HOST also needs MEILI_MASTER_KEY")
    _check_journal(settings)


def _check_journal(settings: Settings) -> None:
    if bool(settings.journal_username) != bool(settings.journal_password):
        raise ConfigError("JOURNAL_USERNAME and JOURNAL_PASSWORD (or JOURNAL_PASSWORD_FILE) go together")
    if bool(settings.journal_tls_certificate) != bool(settings.journal_tls_key):
        raise ConfigError("JOURNAL_TLS_CERTIFICATE and JOURNAL_TLS_KEY go together")
    if settings.journal_tls_certificate is not None:
        return
    if settings.journal_tls_port is not None:
        raise ConfigError("JOURNAL_TLS_PORT also needs JOURNAL_TLS_CERTIFICATE and JOURNAL_TLS_KEY")
    if settings.has_journal and settings.journal_require_tls and settings.journal_host not in ("127.0.0.1", "::1", "localhost"):
        raise ConfigError(
            f"JOURNAL_HOST={settings.journal_host!r}: mail from other machines needs JOURNAL_TLS_CERTIFICATE and"
            " JOURNAL_TLS_KEY, or JOURNAL_REQUIRE_TLS=false in a network that you trust"
        )


def _is_private(url: str) -> bool:
    parts = urlsplit(url)
    return parts.scheme == "https" or parts.hostname in ("localhost", "127.0.0.1", "::1")


def _explain(item: Any, given: Mapping[str, str]) -> str:
    name = str(item["loc"][0])
    field = Settings.model_fields[name]
    reason = re.sub(r"^(Value error, |Input should be )", "", item["msg"])
    value = given[name]
    if not _is_secret(field.annotation):
        shown = f"={value!r}"
    elif name.endswith(("_url", "_host", "_endpoint")):
        shown = f"={hide_password(value)!r}"
    else:
        shown = " (a secret, not shown)"
    return f"{name.upper()}{shown}: expected {reason}"


def _is_secret(annotation: Any) -> bool:
    if annotation is SecretStr:
        return True
    return get_origin(annotation) is not None and any(_is_secret(argument) for argument in get_args(annotation))


def page_address(settings: Settings) -> str:
    """Where people reach the page: ARCHIVER_URL, else the address that it listens on, or is published as from a container."""
    if settings.archiver_url:
        return settings.archiver_url.get_secret_value().rstrip("/")
    host = "127.0.0.1" if settings.archiver_host in ("0.0.0.0", "::") else settings.archiver_host  # noqa: S104
    port = settings.archiver_published_port or settings.archiver_port
    return f"http://{f'[{host}]' if ':' in host else host}:{port}"


def hide_password(url: str) -> str:
    """The address without its password, for messages and logs."""
    try:
        parts = urlsplit(url)
        if parts.password is None:
            return url if "@" not in url else "…@" + url.rsplit("@", 1)[1]
        netloc = f"{parts.username or ''}:***@{parts.netloc.rsplit('@', 1)[1]}"
        return urlunsplit(parts._replace(netloc=netloc))
    except ValueError:
        return "(an invalid address)"
