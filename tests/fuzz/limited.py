"""A process that reads mail, with limits on its time and memory, and the talk with it."""

from __future__ import annotations

import os
import resource
import select
import signal
import struct
import subprocess
import sys
import time
from contextlib import suppress
from dataclasses import dataclass, field

LENGTH = struct.Struct(">I")
MEMORY_BYTES = 2 << 30
SECONDS_AT_LEAST = 10.0
SECONDS_PER_MEGABYTE = 30.0  # far more than a busy machine takes: what is slower than this is not linear


def limit_memory() -> None:
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES, MEMORY_BYTES))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


@dataclass(slots=True)
class Reader:
    """Starts a process when there is none, and another one when it has died."""

    command: tuple[str, ...] = (sys.executable, "-m", "tests.fuzz.reading")
    _process: subprocess.Popen[bytes] | None = field(default=None)

    def complaint(self, raw: bytes) -> str:
        """What is wrong with how this message is read; empty if nothing is."""
        process = self._running()
        assert process.stdin is not None
        assert process.stdout is not None
        deadline = time.monotonic() + max(SECONDS_AT_LEAST, len(raw) / (1 << 20) * SECONDS_PER_MEGABYTE)
        try:
            process.stdin.write(LENGTH.pack(len(raw)) + raw)
            process.stdin.flush()
            size = LENGTH.unpack(self._read(process, LENGTH.size, deadline))[0]
            return self._read(process, size, deadline).decode("utf-8", "replace")
        except TimeoutError:
            self.close()
            return f"took more than {SECONDS_AT_LEAST:g} s, or {SECONDS_PER_MEGABYTE:g} s for a megabyte"
        except (OSError, EOFError):
            code = process.wait()
            self.close()
            return f"died: {signal.Signals(-code).name if code < 0 else f'exit code {code}'}"

    def close(self) -> None:
        if self._process is not None:
            self._process.kill()
            with suppress(OSError):
                self._process.communicate()
            self._process = None

    def _running(self) -> subprocess.Popen[bytes]:
        if self._process is None:
            self._process = subprocess.Popen(
                self.command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, preexec_fn=limit_memory
            )
        return self._process

    def _read(self, process: subprocess.Popen[bytes], size: int, deadline: float) -> bytes:
        assert process.stdout is not None
        answer = b""
        while len(answer) < size:
            ready, _, _ = select.select([process.stdout], [], [], max(0.0, deadline - time.monotonic()))
            if not ready:
                raise TimeoutError
            piece = os.read(process.stdout.fileno(), size - len(answer))
            if not piece:
                raise EOFError
            answer += piece
        return answer
