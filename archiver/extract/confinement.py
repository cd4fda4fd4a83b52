"""Confines a child process before it reads untrusted data: another user, no network, no files, no new processes.

Each measure is applied if the kernel supports it. What is in force is reported on request
(`archiver doctor`). Call it at the very start of a process, while it has one thread: most measures apply to a thread and those
that it starts later. Nothing here needs privileges: an ordinary user may give up its own rights."""

from __future__ import annotations

import contextlib
import ctypes
import errno
import os
import pwd
import resource
import socket
import sys
import sysconfig
from collections.abc import Iterator
from pathlib import Path

from archiver.extract import landlock, seccomp

_PR_SET_KEEPCAPS = 8
_PR_SET_NO_NEW_PRIVS = 38
_CLONE_NEWUSER, _CLONE_NEWNET, _CLONE_NEWIPC = 0x10000000, 0x40000000, 0x08000000
_CAP_DAC_READ_SEARCH = 2
_CAPABILITY_VERSION = 0x20080522
_NOBODY = 65534
_STDERR_BYTES = 1 << 20
_OPEN_FILES = 64
_LIBRARIES = ("/usr/lib", "/usr/lib32", "/usr/lib64", "/usr/local/lib", "/lib", "/lib64", "/etc/ld.so.cache")
_DATA = (
    "/usr/share/zoneinfo",
    "/etc/localtime",
    "/usr/share/fonts",
    "/dev/null",
    "/dev/urandom",
    "/proc/meminfo",
    "/proc/cpuinfo",
)
_PROGRAMS = ("/usr/bin", "/usr/local/bin", "/bin", "/usr/share", "/opt")

NO_NEW_PRIVILEGES = "no new privileges"
OTHER_USER = "a user of its own"
OWN_NETWORK = "a network namespace without a network"
LANDLOCK = "Landlock"
SECCOMP = "seccomp"


def confine(scratch: Path | None = None) -> list[str]:
    """What is in force afterwards. With `scratch`, programs may be started, and written to that folder."""
    _limit_files(writes=scratch is not None)
    if sys.platform != "linux":
        return []
    in_force: list[str] = []
    reachable = _is_reachable()
    if _leave_network(alone=False):
        in_force.append(OWN_NETWORK)
    if _become_nobody(keeps_reading=not reachable):
        in_force.append(OTHER_USER)
    if _call("prctl", _PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0):
        in_force.append(NO_NEW_PRIVILEGES)
    if OWN_NETWORK not in in_force and reachable and _leave_network(alone=True):
        in_force.append(OWN_NETWORK)
    if version := landlock.restrict(_readable(scratch), [scratch] if scratch else [], _programs(scratch)):
        in_force.append(f"{LANDLOCK} {version}")
    if seccomp.restrict(programs=scratch is not None):
        in_force.append(SECCOMP)
    return in_force


def refused() -> dict[str, bool]:
    """Tries what must not work. `archiver doctor` reports what the kernel does, not what it was asked to do."""
    return {"network": _is_refused(_open_socket), "files": _is_refused(_look_around)}


def _is_refused(act: object) -> bool:
    try:
        act()  # type: ignore[operator]
    except OSError as error:
        return error.errno in (errno.EPERM, errno.EACCES)
    return False


def _open_socket() -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as made:
        made.connect(("127.0.0.1", 9))


def _look_around() -> None:
    list(Path("/").iterdir())


def _call(name: str, *given: int) -> bool:
    function = getattr(ctypes.CDLL(None, use_errno=True), name, None)
    return function is not None and function(*given) == 0


def _limit_files(*, writes: bool) -> None:
    """Output of a library on standard error must not fill the disk."""
    with contextlib.suppress(OSError, ValueError):
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    with contextlib.suppress(OSError, ValueError):
        resource.setrlimit(resource.RLIMIT_NOFILE, (_OPEN_FILES, _OPEN_FILES))
    if not writes:
        with contextlib.suppress(OSError, ValueError):
            resource.setrlimit(resource.RLIMIT_FSIZE, (_STDERR_BYTES, _STDERR_BYTES))


def _leave_network(*, alone: bool) -> bool:
    """Root can do this directly; an ordinary user needs a user namespace (`alone`), in which it keeps its own id."""
    if not alone:
        return os.geteuid() == 0 and _call("unshare", _CLONE_NEWNET | _CLONE_NEWIPC)
    user, group = os.geteuid(), os.getegid()
    if not _call("unshare", _CLONE_NEWUSER | _CLONE_NEWNET | _CLONE_NEWIPC):
        return False
    with contextlib.suppress(OSError):  # then it runs as the overflow user, which serves the purpose as well
        Path("/proc/self/setgroups").write_text("deny")
        Path("/proc/self/uid_map").write_text(f"{user} {user} 1")
        Path("/proc/self/gid_map").write_text(f"{group} {group} 1")
    return True


def _become_nobody(*, keeps_reading: bool) -> bool:
    """Root becomes `nobody`. If our own code is in folders closed to others (/root), the capability to read them is kept, and
    Landlock says what is read."""
    if os.geteuid() != 0:
        return False
    try:
        found = pwd.getpwnam("nobody")
        user, group = found.pw_uid, found.pw_gid
    except KeyError:
        user = group = _NOBODY
    try:
        if keeps_reading:
            _call("prctl", _PR_SET_KEEPCAPS, 1, 0, 0, 0)
        os.setgroups([])
        os.setresgid(group, group, group)
        os.setresuid(user, user, user)
    except OSError:  # a container without that permission
        _keep_capabilities(0)
        return False
    _keep_capabilities(1 << _CAP_DAC_READ_SEARCH if keeps_reading else 0)
    return True


class _CapabilityHeader(ctypes.Structure):
    _fields_ = (("version", ctypes.c_uint32), ("pid", ctypes.c_int))


def _keep_capabilities(kept: int) -> None:
    header = _CapabilityHeader(_CAPABILITY_VERSION, 0)
    data = (ctypes.c_uint32 * 6)(kept, kept, 0, 0, 0, 0)
    capset = getattr(ctypes.CDLL(None, use_errno=True), "capset", None)
    if capset is not None:
        capset(ctypes.byref(header), ctypes.byref(data))


def _is_reachable() -> bool:
    """Whether a user without any rights can read our code."""
    if os.geteuid() != 0:
        return True
    return all(_others_may_pass(folder) for place in _code() for folder in (place, *place.parents))


def _others_may_pass(folder: Path) -> bool:
    try:
        return bool(folder.stat().st_mode & 0o001) or folder.is_file()
    except FileNotFoundError:
        return True
    except OSError:
        return False


def _code() -> Iterator[Path]:
    """Where modules are loaded from, even later: a codec is loaded when a mail first uses it. Not the current folder, which
    may hold the archive."""
    paths = sysconfig.get_paths()
    wanted = {paths[name] for name in ("stdlib", "platstdlib", "purelib", "platlib")}
    wanted |= {path for path in sys.path if _is_code(path) and Path(path) != Path.cwd()}
    wanted.add(str(Path(__file__).parents[1]))
    wanted.add(str(Path(sys.base_prefix) / "lib"))
    return (Path(path).resolve() for path in sorted(wanted))


def _is_code(path: str) -> bool:
    """Packages may lie outside of this environment: those of the system or the user, or named in a .pth file."""
    return path.startswith((sys.prefix, sys.base_prefix)) or Path(path).name in ("site-packages", "dist-packages")


def _readable(scratch: Path | None) -> list[Path]:
    extra = [scratch] if scratch is not None else []
    return [*_code(), *map(Path, _LIBRARIES), *map(Path, _DATA), *extra]


def _programs(scratch: Path | None) -> list[Path]:
    return [Path(place) for place in (*_PROGRAMS, *_LIBRARIES)] if scratch is not None else []
