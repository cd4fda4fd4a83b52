"""`archiver service …`: a unit for systemd, for machines without containers."""

from __future__ import annotations

import os
import re
import sys
from pathlib import Path
from typing import Annotated

import typer

from archiver.cli.terminal.output import console
from archiver.config import load_settings
from archiver.errors import Conflict, UsageError

app = typer.Typer(no_args_is_help=True, help="Run Archiver as a service of systemd.")

_SYSTEM = Path("/etc/systemd/system/archiver.service")
_MARK = "# Written by `archiver service install`."
_USER_NAME = re.compile(r"[a-z_][a-z0-9_-]{0,31}")

_UNIT = """\
{mark} Running that again replaces this file.
[Unit]
Description=Archiver, a self-hosted email archive
Wants=network-online.target
After=network-online.target

[Service]
ExecStart={command}
WorkingDirectory={folder}
Environment={data}
{user}UMask=0077
# the supervisor stops its own parts, in order; what is left after it is ended by systemd
KillMode=mixed
TimeoutStopSec=90
Restart=on-failure
RestartSec=5
LimitNOFILE=65536
NoNewPrivileges=yes
ProtectSystem=full

[Install]
WantedBy={target}
"""


@app.command("install")
def install(
    system: Annotated[
        bool | None, typer.Option("--system/--user", help="For the machine or for your own user. Default: --system as root.")
    ] = None,
    run_as: Annotated[str, typer.Option(help="With --system: the user that it runs as, not root.")] = "archiver",
    print_only: Annotated[bool, typer.Option("--print", help="Only show the unit, write nothing.")] = False,
) -> None:
    """Write a unit for systemd that runs `archiver up` with this installation, data folder and .env, and show it."""
    is_system = os.geteuid() == 0 if system is None else system
    if not _USER_NAME.fullmatch(run_as) or run_as == "root":
        raise UsageError(f"--run-as {run_as!r}: expected the name of a user other than root")
    data = load_settings().archiver_data
    text = unit_text(Path(sys.executable), Path.cwd(), data, run_as=run_as if is_system else None)
    path = _SYSTEM if is_system else _user_folder() / "archiver.service"
    if print_only:
        typer.echo(text, nl=False)
        return
    if not sys.platform.startswith("linux"):
        raise UsageError("systemd is part of Linux; docs/running.md has a launchd job for macOS")
    _write(path, text)
    typer.echo(text)
    console.print(f"Wrote {path}. Next:", markup=False, soft_wrap=True)
    for line in _next_steps(run_as if is_system else None, data):
        console.print(f"  {line}", markup=False, soft_wrap=True)


def unit_text(python: Path, folder: Path, data: Path, *, run_as: str | None) -> str:
    return _UNIT.format(
        mark=_MARK,
        command=f"{_quote(str(python))} -P -m archiver up",
        folder=str(folder).replace("%", "%%"),
        data=_quote(f"ARCHIVER_DATA={data}", is_command=False),
        user=f"User={run_as}\n" if run_as else "",
        target="multi-user.target" if run_as else "default.target",
    )


def _quote(text: str, *, is_command: bool = True) -> str:
    """systemd.service(5): % begins a specifier everywhere, $ a variable in commands."""
    if "\n" in text:
        raise UsageError(f"{text!r}: a path with a line break can't be part of a unit")
    escaped = text.replace("\\", "\\\\").replace('"', '\\"').replace("%", "%%")
    return f'"{escaped.replace("$", "$$") if is_command else escaped}"'


def _user_folder() -> Path:
    base = os.environ.get("XDG_CONFIG_HOME") or str(Path.home() / ".config")
    return Path(base) / "systemd" / "user"


def _write(path: Path, text: str) -> None:
    if path.exists() and not path.read_text(errors="replace").startswith(_MARK):
        raise Conflict(f"{path} exists and was not written by this command, so it is not touched: move it away, or use --print")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        path.chmod(0o644)
    except OSError as error:
        raise UsageError(f"{path}: can't be written ({error.strerror}); run the command as root, or use --user") from error


def _next_steps(run_as: str | None, data: Path) -> list[str]:
    if run_as is None:
        return [
            "systemctl --user daemon-reload && systemctl --user enable --now archiver",
            "loginctl enable-linger   # so that it also runs while you are not signed in",
            "journalctl --user --unit archiver   # shows the link for the first administrator",
        ]
    return [
        f"id {run_as} || useradd --system --user-group --home-dir {data} --shell /usr/sbin/nologin {run_as}",
        f"install --directory --owner {run_as} --mode 0700 {data}   # everything in it has to belong to {run_as}",
        "systemctl daemon-reload && systemctl enable --now archiver",
        "journalctl --unit archiver   # shows the link for the first administrator",
    ]
