"""A seccomp filter (Linux): system calls that reading a file never needs fail with EPERM. See seccomp(2).

A deny list, not an allow list: libraries and kernels change, and a reader that fails because of a new harmless call
would be an outage. It covers what matters: sockets, other processes, other programs, kernel interfaces. (Not socketpair,
which runtimes wake their own threads with.)
"""

from __future__ import annotations

import ctypes
import os
import platform
import struct
from typing import Final, NamedTuple

_PR_SET_SECCOMP, _MODE_FILTER = 22, 2
_ALLOW, _ERRNO = 0x7FFF0000, 0x00050000
_EPERM, _ENOSYS = 1, 38
_LOAD, _EQUAL, _AT_LEAST, _ANY_BIT, _RETURN = 0x20, 0x15, 0x35, 0x45, 0x06  # bpf_common.h
_NUMBER, _ARCHITECTURE, _FIRST_ARGUMENT = 0, 4, 16  # in struct seccomp_data; arguments are little-endian
_CLONE_THREAD = 0x00010000
_X32 = 0x40000000

_FORBIDDEN: Final = {
    "socket": (41, 198), "connect": (42, 203), "bind": (49, 200), "listen": (50, 201),
    "accept": (43, 202), "accept4": (288, 242), "ptrace": (101, 117), "process_vm_readv": (310, 270),
    "process_vm_writev": (311, 271), "pidfd_open": (434, 434), "pidfd_getfd": (438, 438), "pidfd_send_signal": (424, 424),
    "tkill": (200, 130), "rt_sigqueueinfo": (129, 138), "rt_tgsigqueueinfo": (297, 240), "mount": (165, 40),
    "umount2": (166, 39), "pivot_root": (155, 41), "chroot": (161, 51), "unshare": (272, 97), "setns": (308, 268),
    "open_tree": (428, 428), "move_mount": (429, 429), "fsopen": (430, 430), "fsmount": (432, 432),
    "mount_setattr": (442, 442), "bpf": (321, 280), "perf_event_open": (298, 241), "userfaultfd": (323, 282),
    "keyctl": (250, 219), "add_key": (248, 217), "request_key": (249, 218), "kexec_load": (246, 104),
    "kexec_file_load": (320, 294), "init_module": (175, 105), "finit_module": (313, 273), "delete_module": (176, 106),
    "open_by_handle_at": (304, 265), "name_to_handle_at": (303, 264), "io_uring_setup": (425, 425),
    "io_uring_enter": (426, 426), "io_uring_register": (427, 427), "swapon": (167, 224), "swapoff": (168, 225),
    "reboot": (169, 142), "settimeofday": (164, 170), "clock_settime": (227, 112), "sethostname": (170, 161),
    "setdomainname": (171, 162), "acct": (163, 89), "quotactl": (179, 60), "syslog": (103, 116),
}  # fmt: skip
_PROGRAMS: Final = {"execve": (59, 221), "execveat": (322, 281)}


class _Machine(NamedTuple):
    column: int
    architecture: int
    clone: int
    kill: int
    tgkill: int
    forks: tuple[int, ...]


_MACHINES: Final = {
    "x86_64": _Machine(0, 0xC000003E, 56, 62, 234, (57, 58)),
    "aarch64": _Machine(1, 0xC00000B7, 220, 129, 131, ()),
}
_CLONE3: Final = 435  # its flags are in memory, which a filter can't read; without clone3, libraries use clone


class _Program(ctypes.Structure):
    _fields_ = (("length", ctypes.c_ushort), ("filter", ctypes.c_char_p))


def restrict(*, programs: bool) -> bool:
    """False if the kernel or the architecture does not support it. Needs no_new_privs."""
    machine = _MACHINES.get(platform.machine())
    if machine is None:
        return False
    code = _filter(machine, os.getpid(), programs=programs)
    program = _Program(len(code) // 8, code)
    libc = ctypes.CDLL(None, use_errno=True)
    return bool(libc.prctl(_PR_SET_SECCOMP, _MODE_FILTER, ctypes.byref(program), 0, 0) == 0)


def _filter(machine: _Machine, own: int, *, programs: bool) -> bytes:
    steps = [
        _step(_LOAD, _ARCHITECTURE),
        _step(_EQUAL, machine.architecture, 1, 0),
        _refuse(_EPERM),
        _step(_LOAD, _NUMBER),
        _step(_AT_LEAST, _X32, 0, 1),
        _refuse(_EPERM),
    ]
    forbidden = [numbers[machine.column] for numbers in _FORBIDDEN.values()]
    if not programs:
        forbidden += [numbers[machine.column] for numbers in _PROGRAMS.values()] + list(machine.forks)
        steps += _with_argument(machine.clone, _step(_ANY_BIT, _CLONE_THREAD, 1, 0))
        steps += [_step(_EQUAL, _CLONE3, 0, 1), _refuse(_ENOSYS)]
        steps += _with_argument(machine.kill, _step(_EQUAL, own, 1, 0), _step(_EQUAL, 0, 1, 0))
        steps += _with_argument(machine.tgkill, _step(_EQUAL, own, 1, 0))
    for number in forbidden:
        steps += [_step(_EQUAL, number, 0, 1), _refuse(_EPERM)]
    return b"".join([*steps, _step(_RETURN, _ALLOW)])


def _with_argument(number: int, *allowed: bytes) -> list[bytes]:
    """The call is allowed if one of these holds for its first argument (each goes one step further then), else refused."""
    tests: list[bytes] = []
    for left, test in zip(range(len(allowed) - 1, -1, -1), allowed, strict=True):
        code, _, _, value = struct.unpack("<HBBI", test)
        tests.append(_step(code, value, left + 1, 0))
    body = [_step(_LOAD, _FIRST_ARGUMENT), *tests, _refuse(_EPERM), _step(_RETURN, _ALLOW)]
    return [_step(_EQUAL, number, 0, len(body)), *body]


def _step(code: int, value: int, if_true: int = 0, if_false: int = 0) -> bytes:
    return struct.pack("<HBBI", code, if_true, if_false, value)


def _refuse(error: int) -> bytes:
    return _step(_RETURN, _ERRNO | error)
