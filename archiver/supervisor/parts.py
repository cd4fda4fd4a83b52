"""The parts of a running stack: their commands, when each is ready, and in which order they start and stop."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Protocol

from archiver.config import Settings
from archiver.errors import NotReady
from archiver.secrets import SecretFolder
from archiver.supervisor.folder import DataFolder
from archiver.supervisor.postgres import EmbeddedPostgres
from archiver.supervisor.process import launch
from archiver.supervisor.ready import VARIABLE
from archiver.supervisor.valkey import EmbeddedValkey

_BACKLOG = 256
_WORKER = "archiver.supervisor.worker"
_ORDINARY = frozenset({"PATH", "HOME", "LANG", "TZ", "TMPDIR", "VIRTUAL_ENV", "LD_LIBRARY_PATH", "DYLD_LIBRARY_PATH"})


class Server(Protocol):
    """A process that can be started, checked and stopped."""

    stop_signal: signal.Signals

    def prepare(self) -> None: ...
    def start(self) -> subprocess.Popen[bytes]: ...
    def check(self) -> None:
        """Raises NotReady until it works."""


@dataclass(frozen=True, slots=True)
class StackPart:
    name: str
    server: Server
    needs: frozenset[str]
    """The parts that have to be ready before this one starts."""
    stop_order: int
    stop_seconds: float = 30.0
    runs_once: bool = False
    """Done when it exits with 0; parts that need it wait for that."""


class Program:
    """One of Archiver's own processes. It reports when it is ready (archiver.supervisor.ready)."""

    stop_signal = signal.SIGTERM

    def __init__(
        self,
        arguments: tuple[str, ...],
        environment: Mapping[str, str],
        *,
        reports_ready: bool = True,
        inherits: tuple[socket.socket, ...] = (),
    ) -> None:
        self._command = (sys.executable, "-P", "-m", *arguments)  # -P: what is in the current folder is not ours
        self._environment = dict(environment)
        self._reports_ready = reports_ready
        self._inherits = inherits
        self._ready: int | None = None

    def prepare(self) -> None:
        if self._ready is not None:
            os.close(self._ready)
            self._ready = None

    def start(self) -> subprocess.Popen[bytes]:
        inherited = tuple(listener.fileno() for listener in self._inherits)
        if not self._reports_ready:
            return launch(self._command, environment=self._environment, pass_fds=inherited)
        self._ready, write_end = os.pipe()
        os.set_blocking(self._ready, False)
        try:
            environment = {**self._environment, VARIABLE: str(write_end)}
            return launch(self._command, environment=environment, pass_fds=(write_end, *inherited))
        finally:
            os.close(write_end)

    def check(self) -> None:
        if self._ready is None:
            return
        try:
            reported = os.read(self._ready, 1)
        except BlockingIOError:
            reported = b""
        if not reported:
            raise NotReady(f"{' '.join(self._command[1:])} has not reported that it is ready")


@dataclass(frozen=True, slots=True)
class Stack:
    """Everything that `archiver up` runs for these settings."""

    servers: tuple[StackPart, ...]
    workers: tuple[StackPart, ...]
    web: tuple[StackPart, ...]
    environment: dict[str, str] = field(repr=False)
    """The addresses of the parts as variables, for processes that use this stack."""


def plan(settings: Settings, folder: DataFolder) -> Stack:
    """Decides what has to run, without starting it; opens the socket that the search server will listen on."""
    embedded: list[StackPart] = []
    addresses: dict[str, str] = {"ARCHIVER_DATA": str(folder.path)}
    if "postgres" in settings.embedded:
        postgres = EmbeddedPostgres(folder)
        embedded.append(StackPart("postgres", postgres, frozenset(), stop_order=3))
        addresses["DATABASE_URL"] = postgres.app_url()
        addresses["DATABASE_OWNER_URL"] = postgres.url()
    if "valkey" in settings.embedded:
        valkey = EmbeddedValkey(folder)
        embedded.append(StackPart("valkey", valkey, frozenset(), stop_order=2))
        addresses["REDIS_URL"] = valkey.url()
    if "search" in settings.embedded:
        listener = _search_listener()
        addresses["MEILI_HOST"] = f"http://127.0.0.1:{listener.getsockname()[1]}"
        addresses["MEILI_MASTER_KEY"] = _search_key(settings, folder)
        search = _search_program(listener, settings, addresses)
        embedded.append(StackPart("search", search, frozenset(), stop_order=1))
    environment = {**os.environ, **addresses}
    migrate = Program(("archiver", "migrate", "--quiet"), environment, reports_ready=False)
    environment = {name: value for name, value in environment.items() if not name.startswith("DATABASE_OWNER_")}
    embedded.append(StackPart("migrate", migrate, settings.embedded & {"postgres"}, stop_order=0, runs_once=True))
    servers = frozenset(part.name for part in embedded)

    def program(name: str, *arguments: str) -> StackPart:
        return StackPart(name, Program(arguments, environment), needs=servers, stop_order=0)

    indexing = [
        program("indexing" if number == 1 else f"indexing-{number}", _WORKER, "indexing", f"--number={number}")
        for number in range(1, settings.indexing_processes + 1)
    ]
    return Stack(
        servers=tuple(embedded),
        workers=(program("ingestion", _WORKER, "ingestion"), *indexing),
        web=(program("web", "archiver", "web"), *([program("journal", "archiver", "journal")] if settings.has_journal else ())),
        environment=addresses,
    )


def _search_key(settings: Settings, folder: DataFolder) -> str:
    if settings.meili_master_key is not None:
        return settings.meili_master_key.get_secret_value()
    return SecretFolder(folder.path).password("meili-master.key")


def _search_program(listener: socket.socket, settings: Settings, addresses: Mapping[str, str]) -> Program:
    """Its environment contains only what it needs: a network server should not know the passwords of other parts."""
    needed = {name: addresses[name] for name in ("ARCHIVER_DATA", "MEILI_MASTER_KEY")}
    ordinary = {name: value for name, value in os.environ.items() if name in _ORDINARY or name.startswith(("LC_", "PYTHON"))}
    command = ("archiver", "search-server", "--fd", str(listener.fileno()))
    return Program(command, {**ordinary, **needed, "LOG_LEVEL": settings.log_level}, inherits=(listener,))


def _search_listener() -> socket.socket:
    """Held by the supervisor for its whole life: while the server restarts, requests wait, and no other process can take its
    port and receive the key."""
    listener = socket.socket()
    listener.bind(("127.0.0.1", 0))
    listener.listen(_BACKLOG)
    return listener
