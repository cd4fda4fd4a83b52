"""Starts child processes that can't outlive this one, as another user where required."""

from __future__ import annotations

import contextlib
import ctypes
import os
import pwd
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from archiver.errors import DataFolderError, NotReady

_PR_SET_PDEATHSIG = 1
_START_SECONDS = 60.0
ON_LINUX = sys.platform == "linux"


@dataclass(frozen=True, slots=True)
class RunAs:
    """An unprivileged user, for servers that refuse to run as root."""

    user: str
    uid: int
    gid: int

    def can_enter(self, path: Path) -> bool:
        return all(self._may_pass(folder) for folder in (path, *path.parents) if folder.is_dir())

    def _may_pass(self, folder: Path) -> bool:
        status = folder.stat()
        if status.st_uid == self.uid:
            return bool(status.st_mode & 0o100)
        if status.st_gid == self.gid:
            return bool(status.st_mode & 0o010)
        return bool(status.st_mode & 0o001)


def unprivileged_user(owner_of: Path) -> RunAs | None:
    """The user for a server that refuses root: the owner of its data, or else the system user `archiver`, created if needed."""
    if os.geteuid() != 0:
        return None
    if owner_of.exists() and (owner := owner_of.stat()).st_uid != 0:
        try:
            return RunAs(pwd.getpwuid(owner.st_uid).pw_name, owner.st_uid, owner.st_gid)
        except KeyError:
            raise DataFolderError(
                f"{owner_of}: belongs to the unknown user id {owner.st_uid}: chown it to an existing user"
            ) from None
    useradd = shutil.which("useradd")
    if not _user_exists("archiver") and useradd:
        subprocess.run(
            [useradd, "--system", "--no-create-home", "--shell", "/usr/sbin/nologin", "archiver"], capture_output=True
        )
    user = pwd.getpwnam("archiver" if _user_exists("archiver") else "nobody")
    return RunAs(user.pw_name, user.pw_uid, user.pw_gid)


def _user_exists(name: str) -> bool:
    try:
        pwd.getpwnam(name)
    except KeyError:
        return False
    return True


def parent_death_hook(death_signal: signal.Signals) -> Callable[[], None]:
    """The function that a child calls right after the fork, on Linux, to get `death_signal` when the forking thread ends."""
    parent = os.getpid()
    libc = ctypes.CDLL(None)  # loaded before the fork: nothing may be imported after it

    def apply() -> None:
        libc.prctl(_PR_SET_PDEATHSIG, int(death_signal))
        if os.getppid() != parent:  # died before prctl took effect
            os.kill(os.getpid(), death_signal)

    return apply


def launch(
    command: Sequence[str],
    *,
    environment: Mapping[str, str],
    death_signal: signal.Signals = signal.SIGTERM,
    run_as: RunAs | None = None,
    reaches: Sequence[Path] = (),
    pass_fds: Sequence[int] = (),
    output: IO[bytes] | int = subprocess.PIPE,
) -> subprocess.Popen[bytes]:
    """Starts `command` in a session of its own; it gets `death_signal` when this process dies, even if it is killed.

    Call it from the main thread only: Linux sends the signal when the *thread* that forked ends.
    `reaches` names the folders that `run_as` has to access; if file modes prevent that (a root user's home is often 0700), the
    child keeps the one capability that overrides them.
    """
    command = list(command)
    options: dict[str, object] = {}
    preexec: Callable[[], None] | None = None
    if run_as is not None:
        if ON_LINUX and not all(run_as.can_enter(path) for path in reaches):
            command = _through_closed_folders(command, run_as, death_signal)
        else:
            options = {"user": run_as.uid, "group": run_as.gid, "extra_groups": []}
    if ON_LINUX:
        preexec = parent_death_hook(death_signal)
    else:
        command = [sys.executable, "-P", "-m", "archiver.supervisor.guard", death_signal.name, "--", *command]
    return subprocess.Popen(  # type: ignore[call-overload,no-any-return]
        command,
        env=dict(environment),
        stdin=subprocess.DEVNULL,
        stdout=output,
        stderr=subprocess.STDOUT,
        start_new_session=True,
        pass_fds=tuple(pass_fds),
        preexec_fn=preexec,
        **options,
    )


def _through_closed_folders(command: list[str], run_as: RunAs, death_signal: signal.Signals) -> list[str]:
    setpriv = shutil.which("setpriv")
    if setpriv is None:
        raise DataFolderError(
            f"the user {run_as.user!r}, who runs the embedded database, has no access to {command[0]}: "
            "move the program and its data to a folder that others may enter, or start Archiver as an ordinary user"
        )
    capability = "-all,+dac_read_search"
    return [
        setpriv,
        f"--reuid={run_as.uid}",
        f"--regid={run_as.gid}",
        "--clear-groups",
        "--securebits=+no_setuid_fixup",  # without it, access(2), which initdb uses, ignores the capability
        f"--inh-caps={capability}",
        f"--ambient-caps={capability}",
        f"--pdeathsig={death_signal.name.removeprefix('SIG')}",
        *command,
    ]


@contextlib.contextmanager
def running(process: subprocess.Popen[bytes], check: Callable[[], None], stop_signal: signal.Signals) -> Iterator[deque[str]]:
    """Runs a server for the length of a block, which begins when it is ready; yields its last lines.

    The output is read continuously: a server blocks when its pipe is full.
    """
    lines: deque[str] = deque(maxlen=100)
    reader = threading.Thread(target=_read_output, args=(process, lines), daemon=True)
    reader.start()
    try:
        _wait_until_ready(process, check, lines)
        yield lines
    finally:
        process.send_signal(stop_signal)
        process.wait()
        reader.join()


def _read_output(process: subprocess.Popen[bytes], lines: deque[str]) -> None:
    assert process.stdout is not None
    with process.stdout as output:
        for line in output:
            lines.append(line.decode(errors="replace").rstrip())


def _wait_until_ready(process: subprocess.Popen[bytes], check: Callable[[], None], lines: deque[str]) -> None:
    deadline = time.monotonic() + _START_SECONDS
    while True:
        try:
            return check()
        except NotReady as error:
            if process.poll() is not None or time.monotonic() > deadline:
                raise NotReady(f"{error} (its last output: {lines[-1] if lines else 'none'})") from error
            time.sleep(0.02)
