"""Jobs of a worker that was killed go on as soon as another starts on the same machine, before their locks expire.

The name in a lock identifies the process: machine since its last start, process namespace, pid, and when the process started.
So a lock is only removed if that very process is known to be gone. Locks of other machines, of other containers and on systems
without /proc expire as usual.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any
from uuid import uuid4

_PROC = Path("/proc")
_RELEASE = """
    if redis.call('GET', KEYS[1]) ~= ARGV[1] then return 0 end
    redis.call('DEL', KEYS[1], KEYS[3])
    redis.call('SADD', KEYS[2], ARGV[2])
    return 1"""
"""Only if the lock is still the dead process's; the next check then finds the job stalled, and is due at once."""


def process_id() -> str:
    """Unique for each process; `is_of_dead_process` understands it."""
    return f"{_machine()}.{os.getpid()}.{_started(os.getpid())}.{uuid4().hex}"


def is_of_dead_process(lock: str) -> bool:
    """False if in doubt."""
    machine, pid, started, _ = (*lock.split("."), "", "", "", "")[:4]
    return bool(machine) and machine == _machine() and pid.isdecimal() and _started(int(pid)) != started


async def release_dead_locks(client: Any, key: Callable[[str], str]) -> int:
    """The number of jobs that the next check for stalled ones will move back to the queue. `key`: names the queue's keys."""
    ids: list[str] = [_text(one) for one in await client.lrange(key("active"), 0, -1)]
    locks = await client.mget([f"{key(one)}:lock" for one in ids]) if ids else []
    released = 0
    for one, lock in zip(ids, map(_text, locks), strict=True):
        if is_of_dead_process(lock):
            keys = (f"{key(one)}:lock", key("stalled"), key("stalled-check"))
            released += await client.eval(_RELEASE, len(keys), *keys, lock, one)
    return released


def _text(value: bytes | str | None) -> str:
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else value or ""


def _machine() -> str:
    """Empty where processes of another time or another container can't be told from ours."""
    try:
        boot, namespace = (_PROC / "sys/kernel/random/boot_id").read_text(), (_PROC / "self/ns/pid").readlink()
    except OSError:
        return ""
    return hashlib.sha256(f"{boot} {namespace}".encode()).hexdigest()[:16]


def _started(pid: int) -> str:
    """In clock ticks since the machine started; empty for a process that is gone, or dead and not yet collected."""
    try:
        state, *fields = (_PROC / str(pid) / "stat").read_text().rpartition(")")[2].split()
    except (OSError, ValueError):
        return ""
    return "" if state in "ZX" else fields[18]
