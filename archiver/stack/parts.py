"""The parts of the running product: what each is started with, when it is ready, and in which order they start and stop."""

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
from archiver.stack.folder import DataFolder
from archiver.stack.postgres import EmbeddedPostgres
from archiver.stack.process import launch
from archiver.stack.ready import VARIABLE
from archiver.stack.valkey import EmbeddedValkey

_BACKLOG = 256
_ORDINARY = frozenset({"PATH", "HOME", "LANG", "TZ", "TMPDIR", "VIRTUAL_ENV", "LD_LIBRARY_PATH", "DYLD_LIBRARY_PATH"})


class Server(Protocol):
    """What can be started, looked at and stopped."""

    stop_signal: signal.Signals

    def prepare(self) -> None: ...
    def start(self) -> subprocess.Popen[bytes]: ...
    def check(self) -> None:
        """Raises NotReady until it works."""


@dataclass(frozen=True, slots=True)
class Part:
    name: str
    server: Server
    needs: frozenset[str]
    """The parts that have to be ready before this one starts."""
    stop_order: int
    stop_seconds: float = 30.0
    runs_once: bool = False
    """Has done its work when it ends well; what starts later waits for that."""


class Program:
    """One of our own processes. It says by itself when it is ready (stack.ready)."""

    stop_signal = signal.SIGTERM

    def __init__(
        self,
        arguments: tuple[str, ...],
        environment: Mapping[str, str],
        *,
        says_ready: bool = True,
        inherits: tuple[socket.socket, ...] = (),
    ) -> None:
        self._command = (sys.executable, "-m", *arguments)
        self._environment = dict(environment)
        self._says_ready = says_ready
        self._inherits = inherits
        self._ready: int | None = None

    def prepare(self) -> None:
        if self._ready is not None:
            os.close(self._ready)
            self._ready = None

    def start(self) -> subprocess.Popen[bytes]:
        inherited = tuple(one.fileno() for one in self._inherits)
        if not self._says_ready:
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
            said = os.read(self._ready, 1)
        except BlockingIOError:
            said = b""
        if not said:
            raise NotReady(f"{' '.join(self._command[1:])} has not said that it is ready")


@dataclass(frozen=True, slots=True)
class Stack:
    """Everything that `archiver up` runs for these settings."""

    servers: tuple[Part, ...]
    workers: tuple[Part, ...]
    web: tuple[Part, ...]
    environment: dict[str, str] = field(repr=False)
    """The addresses of the parts, as variables: what a process needs to work with this stack."""


def plan(settings: Settings, folder: DataFolder) -> Stack:
    """Decides what has to run, and starts nothing; opens the socket that the search server is to listen on."""
    embedded: list[Part] = []
    addresses: dict[str, str] = {"ARCHIVER_DATA": str(folder.path)}
    if "postgres" in settings.embedded:
        postgres = EmbeddedPostgres(folder)
        embedded.append(Part("postgres", postgres, frozenset(), stop_order=3))
        addresses["DATABASE_URL"] = postgres.app_url()
        addresses["DATABASE_OWNER_URL"] = postgres.url()
    if "valkey" in settings.embedded:
        valkey = EmbeddedValkey(folder)
        embedded.append(Part("valkey", valkey, frozenset(), stop_order=2))
        addresses["REDIS_URL"] = valkey.url()
    if "search" in settings.embedded:
        listener = _search_listener()
        addresses["MEILI_HOST"] = f"http://127.0.0.1:{listener.getsockname()[1]}"
        addresses["MEILI_MASTER_KEY"] = _search_key(settings, folder)
        search = _search_program(listener, settings, addresses)
        embedded.append(Part("search", search, frozenset(), stop_order=1))
    environment = {**os.environ, **addresses}
    migrate = Program(("archiver", "migrate", "--quiet"), environment, says_ready=False)
    environment = {name: value for name, value in environment.items() if name != "DATABASE_OWNER_URL"}
    embedded.append(Part("migrate", migrate, settings.embedded & {"postgres"}, stop_order=0, runs_once=True))
    servers = frozenset(part.name for part in embedded)

    def program(name: str, *arguments: str) -> Part:
        return Part(name, Program(arguments, environment), needs=servers, stop_order=0)

    indexing = [
        program("indexing" if number == 1 else f"indexing-{number}", "workers", "indexing", f"--number={number}")
        for number in range(1, settings.indexing_processes + 1)
    ]
    return Stack(
        servers=tuple(embedded),
        workers=(program("ingestion", "workers", "ingestion"), *indexing),
        web=(program("web", "archiver", "web"),),
        environment=addresses,
    )


def _search_key(settings: Settings, folder: DataFolder) -> str:
    if settings.meili_master_key is not None:
        return settings.meili_master_key.get_secret_value()
    return SecretFolder(folder.path).password("meili-master.key")


def _search_program(listener: socket.socket, settings: Settings, addresses: Mapping[str, str]) -> Program:
    """Its environment has what it needs and nothing else: a server that reads requests knows no other part's password."""
    needed = {name: addresses[name] for name in ("ARCHIVER_DATA", "MEILI_MASTER_KEY")}
    ordinary = {name: value for name, value in os.environ.items() if name in _ORDINARY or name.startswith(("LC_", "PYTHON"))}
    command = ("archiver", "search-server", "--fd", str(listener.fileno()))
    return Program(command, {**ordinary, **needed, "LOG_LEVEL": settings.log_level}, inherits=(listener,))


def _search_listener() -> socket.socket:
    """Held by the supervisor as long as it lives: while the server is restarted, nobody else can take its port and be given
    the key, and requests wait."""
    listener = socket.socket()
    listener.bind(("127.0.0.1", 0))
    listener.listen(_BACKLOG)
    return listener
