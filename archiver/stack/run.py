"""Everything that `archiver up` runs, from the first check to the last process."""

from __future__ import annotations

import contextlib
import shutil
import time
from collections.abc import Callable, Iterator, Mapping

from rich.console import Console

from archiver.config import Settings
from archiver.errors import ArchiverError, InUse
from archiver.logs import set_up_logs
from archiver.secrets import create_missing_keys, credentials_keyring, storage_keyring
from archiver.stack.console import Board
from archiver.stack.control import ask_status
from archiver.stack.control_server import ControlServer
from archiver.stack.folder import DataFolder
from archiver.stack.modes import close_to_others
from archiver.stack.parts import plan
from archiver.stack.port import check_port_free
from archiver.stack.supervisor import Supervisor

_TEMPORARY = "a command's own servers"
_LEAVING_SECONDS = 40.0


WhenReady = Callable[[Mapping[str, str], str], str | None]
"""Gets the addresses of the parts and that of the page; what it returns is shown."""


def run_stack(settings: Settings, console: Console, messages: Console, *, while_used: bool, when_ready: WhenReady) -> None:
    """Until SIGINT or SIGTERM; `while_used`: servers only, until no command holds them. Raises what stands in the way."""
    started = time.monotonic()
    folder = DataFolder(settings.archiver_data)
    folder.prepare()
    with _owned(folder, _TEMPORARY if while_used else "archiver up"):
        folder.make_run()
        notices = [*_close(folder), *_prepare_keys(settings, folder), *_check_disk(settings, folder)]
        if not while_used:
            check_port_free(settings)
            for notice in notices:
                messages.print(notice, markup=False, soft_wrap=True)
        _supervise(settings, folder, console, started, notices, while_used=while_used, when_ready=when_ready)


@contextlib.contextmanager
def _owned(folder: DataFolder, what: str) -> Iterator[None]:
    """The folder's lock. A stack that a command has just stopped using is on its way out: that one is waited for."""
    deadline = time.monotonic() + _LEAVING_SECONDS
    while True:
        try:
            with folder.owned(what):
                yield
            return
        except InUse:
            status = ask_status(folder)
            leaving = _TEMPORARY in folder.owner() and (status is None or not status["held"])
            if not leaving or time.monotonic() > deadline:
                raise
            time.sleep(0.1)


def _supervise(
    settings: Settings,
    folder: DataFolder,
    console: Console,
    started: float,
    notices: list[str],
    *,
    while_used: bool,
    when_ready: WhenReady,
) -> None:
    set_up_logs("supervisor", settings.log_level, folder.logs)
    stack = plan(settings, folder)
    parts = stack.servers if while_used else (*stack.servers, *stack.workers, *stack.web)
    with Board(console, folder.logs, quiet=while_used) as board:
        announced = False

        def changed() -> None:
            nonlocal announced
            board.states(supervisor.children)
            control.state_changed()
            if supervisor.ready and not announced and not while_used:
                announced = True
                page = f"http://{_shown_host(settings)}:{settings.archiver_port}"
                if notice := when_ready(stack.environment, page):
                    board.say(notice)
                board.say(f"ready in {time.monotonic() - started:.1f} s: {page}")

        supervisor = Supervisor(parts, on_line=board.line, on_change=changed)
        control = ControlServer(
            supervisor,
            stack,
            folder.control_socket,
            what="temporary" if while_used else "up",
            stop_when_unused=while_used,
            notices=notices if while_used else [],
        )
        control.start()
        try:
            supervisor.run()
        finally:
            folder.control_socket.unlink(missing_ok=True)
    if supervisor.failure:
        raise ArchiverError(supervisor.failure.removesuffix("; stopping everything") + f"; see {folder.logs}")
    if not while_used:
        console.print("stopped")


def _shown_host(settings: Settings) -> str:
    host = "127.0.0.1" if settings.archiver_host in ("0.0.0.0", "::") else settings.archiver_host  # noqa: S104
    return f"[{host}]" if ":" in host else host


def _close(folder: DataFolder) -> Iterator[str]:
    for path in close_to_others(folder)[:5]:
        yield f"{path}: can be read by others, and belongs to another user: chmod go= {path}"


def _prepare_keys(settings: Settings, folder: DataFolder) -> Iterator[str]:
    """Makes keys for a new archive only: a key that got lost is never replaced by another one."""
    if not any((folder.path / "packs").glob("*")):
        for path in create_missing_keys(settings):
            yield f"made the key {path}: keep a copy of it in another place, nothing opens the archive without it"
    for keyring in (storage_keyring, credentials_keyring):
        keyring(settings)


def _check_disk(settings: Settings, folder: DataFolder) -> Iterator[str]:
    free, wanted = shutil.disk_usage(folder.path).free, settings.disk_min_free_bytes
    if free < wanted:
        yield (
            f"only {free >> 20:,} MiB are free on the disk of {folder.path}: below DISK_MIN_FREE_BYTES ({wanted >> 20:,} MiB) "
            "no mail is taken in"
        )
