"""Landlock (Linux 5.13 and later): from now on, this thread can open only the named paths. See landlock(7)."""

from __future__ import annotations

import ctypes
import os
from collections.abc import Sequence
from pathlib import Path

_CREATE_RULESET, _ADD_RULE, _RESTRICT_SELF = 444, 445, 446  # the same on all architectures that have it
_CREATE_RULESET_VERSION = 1
_RULE_PATH_BENEATH = 1
_EXECUTE, _WRITE_FILE, _READ_FILE, _READ_DIR = 1 << 0, 1 << 1, 1 << 2, 1 << 3
_FILE_RIGHTS = _EXECUTE | _WRITE_FILE | _READ_FILE | 1 << 14 | 1 << 15
_RIGHTS = {1: (1 << 13) - 1, 2: (1 << 14) - 1, 3: (1 << 15) - 1, 5: (1 << 16) - 1}
"""Rights that can be denied, by the version that introduced them: moving between folders, truncating, ioctl on devices."""
_NETWORK = 0b11  # bind and connect with TCP, since version 4
_SCOPES = 0b11  # abstract sockets of other processes, and signals to them, since version 6


class _Ruleset(ctypes.Structure):
    _fields_ = (("files", ctypes.c_uint64), ("network", ctypes.c_uint64), ("scopes", ctypes.c_uint64))


class _PathBeneath(ctypes.Structure):
    _pack_ = 1
    _fields_ = (("allowed", ctypes.c_uint64), ("parent", ctypes.c_int32))


def restrict(readable: Sequence[Path], writable: Sequence[Path], programs: Sequence[Path]) -> int:
    """The version in force; 0 if the kernel has no Landlock, or has it switched off. Needs no_new_privs."""
    libc = ctypes.CDLL(None, use_errno=True)
    version = libc.syscall(_CREATE_RULESET, None, 0, _CREATE_RULESET_VERSION)
    if version < 1:
        return 0
    handled = _RIGHTS[max(known for known in _RIGHTS if known <= version)]
    ruleset = _ruleset(libc, version, handled)
    if ruleset < 0:
        return 0
    try:
        for paths, rights in (
            (readable, _READ_FILE | _READ_DIR),
            (programs, _EXECUTE | _READ_FILE | _READ_DIR),
            (writable, handled & ~_EXECUTE),
        ):
            for path in paths:
                _allow(libc, ruleset, path, rights)
        return int(version) if libc.syscall(_RESTRICT_SELF, ruleset, 0) == 0 else 0
    finally:
        os.close(ruleset)


def _ruleset(libc: ctypes.CDLL, version: int, handled: int) -> int:
    made = _Ruleset(handled, _NETWORK if version >= 4 else 0, _SCOPES if version >= 6 else 0)
    size = 24 if version >= 6 else 16 if version >= 4 else 8
    return int(libc.syscall(_CREATE_RULESET, ctypes.byref(made), ctypes.c_size_t(size), 0))


def _allow(libc: ctypes.CDLL, ruleset: int, path: Path, rights: int) -> None:
    try:
        opened = os.open(path, os.O_PATH | os.O_CLOEXEC)
    except OSError:
        return  # not on this machine
    try:
        allowed = rights if path.is_dir() else rights & _FILE_RIGHTS
        libc.syscall(_ADD_RULE, ruleset, _RULE_PATH_BENEATH, ctypes.byref(_PathBeneath(allowed, opened)), 0)
    finally:
        os.close(opened)
