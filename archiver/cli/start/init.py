"""`archiver init`: a `.env` with fresh secrets for compose.yaml."""

from __future__ import annotations

import os
import re
import secrets
from pathlib import Path
from typing import Annotated

import typer

from archiver.cli.terminal.output import console
from archiver.errors import Conflict, UsageError
from archiver.secrets import Keyring

_CONTAINER_USER = 10001
_DOMAIN = re.compile(r"(?=.{1,253}$)([a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?\.)+[a-z]([a-z0-9-]{0,61}[a-z0-9])?", re.IGNORECASE)
_DOCKER_NETWORKS = "172.16.0.0/12,192.168.0.0/16"
"""What Docker takes the addresses of its networks from; Caddy's is one of them."""

_BACK_UP = """\
Back up, on other media than the archive:
  {file}  without STORAGE_ENCRYPTION_KEY nothing opens the archive, without ENCRYPTION_KEY no source can sign in
  the archive itself, with `docker compose run --rm cli backup /backup` (docs/recovery.md)

Next: docker compose up --detach && docker compose logs --follow web"""


def init(
    file: Annotated[Path, typer.Option("--file", help="Where to write it.")] = Path(".env"),
    domain: Annotated[
        str | None, typer.Option(help="The name that people type, such as mail.example.org: sets up Caddy with TLS for it.")
    ] = None,
    monitoring: Annotated[bool, typer.Option("--monitoring", help="Also start Prometheus and Grafana.")] = False,
) -> None:
    """Write a .env with fresh secrets for `docker compose`, and say what to back up. Never overwrites one."""
    if domain is not None and not _DOMAIN.fullmatch(domain):
        raise UsageError(f"--domain {domain!r}: expected the name of a host, such as mail.example.org")
    _write(file, environment_text(domain, monitoring=monitoring))
    console.print(f"Wrote {file} (mode 0600).", markup=False)
    for line in _make_folders(file.parent):
        console.print(line, markup=False, soft_wrap=True)
    console.print(f"\n{_BACK_UP.format(file=file)}", markup=False, soft_wrap=True)


def environment_text(domain: str | None, *, monitoring: bool) -> str:
    """Characters that neither compose nor a shell treats specially, so that no quotes are needed."""
    values = {
        "POSTGRES_PASSWORD": secrets.token_urlsafe(32),
        "POSTGRES_APP_PASSWORD": secrets.token_urlsafe(32),
        "VALKEY_PASSWORD": secrets.token_urlsafe(32),
        "MEILI_MASTER_KEY": secrets.token_urlsafe(32),
        "STORAGE_ENCRYPTION_KEY": Keyring.generate().serialise(),
        "ENCRYPTION_KEY": Keyring.generate().serialise(),
        "METRICS_TOKEN": secrets.token_urlsafe(32),
        "GRAFANA_PASSWORD": secrets.token_urlsafe(18),
    }
    profiles = [name for name, wanted in (("tls", domain), ("monitoring", monitoring)) if wanted]
    if domain:
        values |= {"ARCHIVER_DOMAIN": domain, "ARCHIVER_URL": f"https://{domain}", "TRUSTED_PROXIES": _DOCKER_NETWORKS}
    if profiles:
        values["COMPOSE_PROFILES"] = ",".join(profiles)
    lines = "".join(f"{name}={value}\n" for name, value in values.items())
    return (
        f"# Written by `archiver init`. Keep a copy in another place. .env.example lists everything that can be set.\n{lines}"
    )


def _write(file: Path, text: str) -> None:
    try:
        descriptor = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    except FileExistsError:
        raise Conflict(
            f"{file} exists and may hold the only copy of your keys, so it is not touched: edit it, or name another with --file"
        ) from None
    except OSError as error:
        raise UsageError(f"--file {file}: can't be written ({error.strerror})") from error
    with os.fdopen(descriptor, "w") as opened:
        opened.write(text)
        opened.flush()
        os.fsync(opened.fileno())


def _make_folders(parent: Path) -> list[str]:
    """`import` for mail files, which the containers read, and `backup`, to which they write. What exists stays as it is."""
    said = []
    for name, mode in (("import", 0o755), ("backup", 0o700)):
        folder = parent / name
        if folder.exists():
            continue
        folder.mkdir()
        folder.chmod(mode)  # (our umask would close it)
        said.append(f"Created {folder}/.")
        if name == "backup":
            said += _hand_over(folder)
    return said


def _hand_over(folder: Path) -> list[str]:
    try:
        os.chown(folder, _CONTAINER_USER, _CONTAINER_USER)
    except PermissionError:
        return [f"The containers run as user {_CONTAINER_USER}. For backups: sudo chown {_CONTAINER_USER} {folder}"]
    return []
