"""Runs the stack of `archiver up`, from the first check to the end of the last process."""

from __future__ import annotations

import contextlib
import shutil
import time
from collections.abc import Callable, Iterator, Mapping

from rich.console import Console

from archiver.config import Settings, page_address
from archiver.errors import ArchiverError, InUse
from archiver.logs import set_up_logs
from archiver.secrets import create_missing_keys, credentials_keyring, storage_keyring
from archiver.supervisor.console import Board
from archiver.supervisor.control import ask_status
from archiver.supervisor.control_server import ControlServer
from archiver.supervisor.folder import DataFolder
from archiver.supervisor.modes import close_to_others
from archiver.supervisor.parts import plan
from archiver.supervisor.port import check_port_free
from archiver.supervisor.supervisor import Supervisor

_TEMPORARY = "a command's own servers"
_LEAVING_SECONDS = 40.0


WhenReady = Callable[[Mapping[str, str], str], str | None]
"""Receives the addresses of the parts and of the web pages; the returned text is shown."""


def run_stack(settings: Settings, console: Console, messages: Console, *, while_used: bool, when_ready: WhenReady) -> None:
    """Runs until SIGINT or SIGTERM; with `while_used` only the servers, until no command holds them."""
    started = time.monotonic()
    folder = DataFolder(settings.archiver_data)
    folder.prepare()
    with _lock(folder, _TEMPORARY if while_used else "archiver up"):
        folder.create_run()
        notices = [*_restrict_modes(folder), *_prepare_keys(settings, folder), *_check_disk(settings, folder)]
        if not while_used:
            check_port_free(settings)
            for notice in notices:
                messages.print(notice, markup=False, soft_wrap=True)
        _supervise(settings, folder, console, started, notices, while_used=while_used, when_ready=when_ready)


@contextlib.contextmanager
def _lock(folder: DataFolder, holder: str) -> Iterator[None]:
    """The folder's lock. Waits for a stack that is stopping because no command uses it any more."""
    deadline = time.monotonic() + _LEAVING_SECONDS
    while True:
        try:
            with folder.lock(holder):
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

        def on_change() -> None:
            nonlocal announced
            board.show_states(supervisor.children)
            control.notify_change()
            if supervisor.ready and not announced and not while_used:
                announced = True
                page = page_address(settings)
                if notice := when_ready(stack.environment, page):
                    board.say(notice)
                board.say(f"ready in {time.monotonic() - started:.1f} s: {page}")

        supervisor = Supervisor(parts, on_line=board.add_line, on_change=on_change)
        control = ControlServer(
            supervisor,
            stack,
            folder.control_socket,
            mode="temporary" if while_used else "up",
            stop_when_unused=while_used,
            notices=notices if while_used else [],
            page=None if while_used else page_address(settings),
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


def _restrict_modes(folder: DataFolder) -> Iterator[str]:
    for path in close_to_others(folder)[:5]:
        yield f"{path}: can be read by other users, and belongs to another user: run `chmod go= {path}` as that user"


def _prepare_keys(settings: Settings, folder: DataFolder) -> Iterator[str]:
    """Creates keys for a new archive only: a lost key is never replaced by another one."""
    if not any((folder.path / "packs").glob("*")):
        for path in create_missing_keys(settings):
            yield f"created the key {path}: store a copy elsewhere; without it, the archive can't be opened"
    for keyring in (storage_keyring, credentials_keyring):
        keyring(settings)


def _check_disk(settings: Settings, folder: DataFolder) -> Iterator[str]:
    free, wanted = shutil.disk_usage(folder.path).free, settings.disk_min_free_bytes
    if free < wanted:
        yield (
            f"only {free >> 20:,} MiB are free on the disk of {folder.path}: below DISK_MIN_FREE_BYTES ({wanted >> 20:,} MiB), "
            "no mail is archived; free some space"
        )
