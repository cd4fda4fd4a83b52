"""Becomes a process that sees what a container would see, and nothing else: `python contain.py SPEC.json`, as root. Without a
specification: a network with nothing in it but itself, for as long as the process lives.

A root of its own on a tmpfs, read-only, with the system's libraries, the interpreter, the volumes and the temporary folders of
the specification. Whatever else the machine has is not there.
"""

from __future__ import annotations

import ctypes
import fcntl
import json
import os
import signal
import socket
import struct
import subprocess
import sys
from pathlib import Path
from typing import Any

SYSTEM = ("/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/etc/ssl", "/etc/ld.so.cache", "/etc/alternatives", "/proc")
DEVICES = ("null", "zero", "full", "random", "urandom")
_CLONE_NEWNS, _CLONE_NEWNET = 0x00020000, 0x40000000
_PR_SET_NO_NEW_PRIVS = 38
_SIOCSIFFLAGS, _IFF_UP = 0x8914, 1
_libc = ctypes.CDLL(None, use_errno=True)


def call(name: str, *arguments: int) -> None:
    if getattr(_libc, name)(*arguments) != 0:
        raise OSError(ctypes.get_errno(), name)


def enter_network(path: str) -> None:
    _enter(path, _CLONE_NEWNET)


def _enter(path: str, kind: int) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    call("setns", descriptor, kind)
    os.close(descriptor)


def be_network() -> None:
    call("unshare", _CLONE_NEWNET)
    with socket.socket() as control:  # the loopback interface is down at first
        fcntl.ioctl(control, _SIOCSIFFLAGS, struct.pack("16sh14x", b"lo", _IFF_UP))
    sys.stdout.write("ready\n")
    sys.stdout.flush()
    signal.pause()


def mount(*arguments: str) -> None:
    subprocess.run(["mount", *arguments], check=True)


def bind(source: Path, target: Path, *, read_only: bool) -> None:
    if source.is_dir():
        target.mkdir(parents=True, exist_ok=True)
    else:
        target.parent.mkdir(parents=True, exist_ok=True)
        target.touch()
    mount("--rbind", str(source), str(target))
    if read_only and source != Path("/proc"):
        mount("-o", "remount,bind,ro", str(target))


def build_root(root: Path, spec: dict[str, Any]) -> None:
    mount("-t", "tmpfs", "-o", "mode=755", "tmpfs", str(root))
    for name in SYSTEM:
        path = Path(name)
        if path.is_symlink():
            (root / name[1:]).symlink_to(path.readlink())
        elif path.exists():
            bind(path, root / name[1:], read_only=True)
    for name in DEVICES:
        bind(Path("/dev", name), root / "dev" / name, read_only=False)
    (root / "dev" / "shm").mkdir(mode=0o1777)
    mount("-t", "tmpfs", "-o", "mode=1777", "tmpfs", str(root / "dev" / "shm"))
    for name, text in spec["files"].items():
        (root / name[1:]).parent.mkdir(parents=True, exist_ok=True)
        (root / name[1:]).write_text(text)
    for source, target, read_only in spec["mounts"]:
        bind(Path(source), root / target[1:], read_only=read_only)
    for target in spec["tmpfs"]:
        (root / target[1:]).mkdir(parents=True, exist_ok=True)
        mount("-t", "tmpfs", "-o", "mode=1777", "tmpfs", str(root / target[1:]))
    if spec["read_only"]:
        mount("-o", "remount,ro", str(root))


def main() -> None:
    spec = json.loads(Path(sys.argv[1]).read_text())
    os.umask(0o022)
    enter_network(spec["network"])
    root = Path(spec["root"])
    if "beside" in spec:  # a second process in a container that runs
        _enter(f"/proc/{spec['beside']}/ns/mnt", _CLONE_NEWNS)
    else:
        call("unshare", _CLONE_NEWNS)
        mount("--make-rprivate", "/")
        build_root(root, spec)
    os.chroot(root)
    os.chdir(spec["folder"])
    os.setgroups([])
    os.setgid(spec["group"])
    os.setuid(spec["user"])
    call("prctl", _PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
    os.environ["PATH"] = spec["environment"]["PATH"]  # by which the program is found
    os.execvpe(spec["command"][0], spec["command"], spec["environment"])


if __name__ == "__main__":
    main() if len(sys.argv) > 1 else be_network()
