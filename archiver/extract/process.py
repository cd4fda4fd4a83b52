"""One child process and its protocol, with a deadline on every read and write."""

from __future__ import annotations

import contextlib
import os
import select
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import chain
from pathlib import Path
from typing import Any

from archiver.extract import wire

_PIECE = 1 << 20
_PIECES = 500  # IOV_MAX is 1,024
_READ_BYTES = 64 << 10
_PIPE_BYTES = 1 << 20
_STDERR_BYTES = 4096
_TICK_SECONDS = 2.0
_START_SECONDS = 60.0
_OUT_OF_MEMORY = ("memory allocation of", "MemoryError", "Cannot allocate memory", "out of memory", "bad_alloc")
_PASSED_ON = frozenset({"PATH", "HOME", "LANG", "TMPDIR", "VIRTUAL_ENV", "LD_LIBRARY_PATH", "TESSDATA_PREFIX", "SYSTEMROOT"})

Piece = bytes | Path
"""The input of a child: bytes, or a file whose content is piped to it, because a child can't open our files."""


def _environment(scratch: str | None) -> dict[str, str]:
    """Only what Python and tesseract need: keys and passwords must be out of reach of a hostile file."""
    kept = {name: value for name, value in os.environ.items() if name in _PASSED_ON or name.startswith(("LC_", "PYTHON"))}
    if scratch is not None:
        kept["TMPDIR"] = scratch
    return {**kept, "MALLOC_ARENA_MAX": "2", "RAYON_NUM_THREADS": "1", "TOKIO_WORKER_THREADS": "1"}


class ChildLate(Exception):
    """The child did not respond in time."""


class ChildDied(Exception):
    """The child has ended; the text says how."""

    def __init__(self, how: str, stderr: str) -> None:
        super().__init__(how)
        self.is_out_of_memory = any(sign in stderr for sign in _OUT_OF_MEMORY)
        self.last_line = next((line.strip() for line in reversed(stderr.splitlines()) if line.strip()), "")


class ChildUnusable(Exception):
    """The child was never ready: its program can't run here, which is not the fault of its input."""


class ChildProcess:
    """A running `archiver.extract.serving`. Only one thread may use it at a time, except for `kill`."""

    def __init__(self, module: str, *, programs: bool = False, files: tuple[int, ...] = ()) -> None:
        """With `programs`, it may start others (OCR) and has a folder for their files. `files` are open descriptors that it
        inherits: it can't open any."""
        watched, self._held = os.pipe()
        self._stderr = tempfile.TemporaryFile()  # noqa: SIM115 - closed by dispose
        self._scratch = _scratch() if programs else None
        scratch = [self._scratch.name] if self._scratch is not None else []
        try:
            self._process = subprocess.Popen(
                [sys.executable, "-P", "-m", "archiver.extract.serving", module, str(watched), *scratch],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=self._stderr,
                pass_fds=(watched, *files),
                start_new_session=True,
                pipesize=_PIPE_BYTES if sys.platform == "linux" else -1,
                env=_environment(scratch[0] if scratch else None),
            )
        except OSError:
            os.close(self._held)
            raise
        finally:
            os.close(watched)
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._requests_fd, self._answers_fd = self._process.stdin.fileno(), self._process.stdout.fileno()
        os.set_blocking(self._requests_fd, False)
        os.set_blocking(self._answers_fd, False)
        self.requests = 0
        self.resident_bytes = 0
        self._is_ready = False
        self._is_disposed = False

    @property
    def is_alive(self) -> bool:
        return not self._is_disposed and self._process.poll() is None

    def ask(
        self, header: dict[str, Any], pieces: Sequence[Piece], seconds: float, tick: Callable[[], None] = lambda: None
    ) -> tuple[dict[str, Any], list[bytes]]:
        """`tick` is called every few seconds while waiting."""
        self._await_ready(tick)
        talk = _Talk(self, time.monotonic() + seconds, tick)
        self.requests += 1
        sizes = [piece.stat().st_size if isinstance(piece, Path) else len(piece) for piece in pieces]
        talk.write(chain([wire.encode({**header, "seconds": seconds, "sizes": sizes})], _contents(pieces)))
        answer = talk.header()
        self.resident_bytes = int(answer["resident_bytes"])
        return answer, [talk.read(size) for size in answer["sizes"]]

    def _await_ready(self, tick: Callable[[], None]) -> None:
        if self._is_ready:
            return
        try:
            _Talk(self, time.monotonic() + _START_SECONDS, tick).header()
        except ChildLate:
            raise ChildUnusable(f"it was not ready after {_START_SECONDS:.0f} seconds") from None
        except ChildDied as death:
            raise ChildUnusable(f"{death}, {death.last_line or 'without any output'}") from death
        self._is_ready = True

    def kill(self) -> None:
        """Ends the child and its own children. May be called from any thread, more than once; the user of the child sees it
        die."""
        if self._process.poll() is None:
            with contextlib.suppress(OSError):
                os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()

    def dispose(self) -> None:
        """Ends the child and closes the pipes. Only for the thread that uses it, because a closed descriptor may be reused
        elsewhere."""
        self.kill()
        if self._is_disposed:
            return
        self._is_disposed = True
        for stream in (self._process.stdin, self._process.stdout):
            with contextlib.suppress(OSError):
                if stream is not None:
                    stream.close()
        os.close(self._held)
        self._stderr.close()
        if self._scratch is not None:
            self._scratch.cleanup()

    def death(self) -> ChildDied:
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(timeout=5)
        code = self._process.returncode
        how = f"signal {signal.Signals(-code).name}" if code is not None and code < 0 else f"exit code {code}"
        stderr = ""
        with contextlib.suppress(OSError, ValueError):
            size = self._stderr.seek(0, os.SEEK_END)
            self._stderr.seek(max(0, size - _STDERR_BYTES))
            stderr = self._stderr.read().decode("utf-8", "replace")
        return ChildDied(how, stderr)


class _Talk:
    """One request and its response."""

    def __init__(self, child: ChildProcess, deadline: float, tick: Callable[[], None]) -> None:
        self._child, self._deadline, self._tick = child, deadline, tick
        self._requests_fd, self._answers_fd = child._requests_fd, child._answers_fd
        self._ahead, self._at = memoryview(b""), 0

    def write(self, contents: Iterable[bytes]) -> None:
        gathered: list[bytes] = []
        size = 0
        for content in contents:
            gathered.append(content)
            size += len(content)
            if size > _PIECE or len(gathered) == _PIECES:
                self._write(gathered)
                gathered, size = [], 0
        self._write(gathered)

    def header(self) -> dict[str, Any]:
        length = wire.LENGTH.unpack(self.read(wire.LENGTH.size))[0]
        try:
            if length > wire.HEADER_BYTES:
                raise ValueError("the response is too long")
            header = wire.decode(self.read(length))
            if sum(header["sizes"]) > wire.PIECES_BYTES or min(header["sizes"], default=0) < 0:
                raise ValueError("more bytes than announced")
        except (ValueError, KeyError, TypeError) as error:
            raise ChildDied("its response is not valid", "") from error
        return header

    def _write(self, contents: list[bytes]) -> None:
        """Writes all pieces in one call, as far as the pipe accepts them: copying a large piece would cost more than parsing
        it."""
        left = [memoryview(content) for content in contents if content]
        while left:
            self._wait([], [self._requests_fd])
            try:
                written = os.writev(self._requests_fd, left)
            except BlockingIOError:
                continue
            except OSError as error:
                raise self._child.death() from error
            while left and written >= len(left[0]):
                written -= len(left.pop(0))
            if written:
                left[0] = left[0][written:]

    def read(self, size: int) -> bytes:
        if len(self._ahead) - self._at < size:
            self._fill(size)
        taken = bytes(self._ahead[self._at : self._at + size])
        self._at += size
        return taken

    def _fill(self, size: int) -> None:
        """Reads until at least this much is buffered."""
        held = self._ahead[self._at :]
        room = memoryview(bytearray(max(size, _READ_BYTES)))
        room[: len(held)] = held
        filled = len(held)
        while filled < size:
            self._wait([self._answers_fd], [])
            try:
                got = os.readv(self._answers_fd, [room[filled:]])
            except BlockingIOError:
                continue
            except OSError as error:
                raise self._child.death() from error
            if not got:
                raise self._child.death()
            filled += got
        self._ahead, self._at = room[:filled], 0

    def _wait(self, readers: list[int], writers: list[int]) -> None:
        while True:
            left = self._deadline - time.monotonic()
            try:
                ready = select.select(readers, writers, [], max(0.0, min(left, _TICK_SECONDS)))
            except (OSError, ValueError) as error:  # closed by dispose
                raise self._child.death() from error
            if any(ready) and left > 0:
                return
            if left <= 0:
                raise ChildLate
            self._tick()


def _contents(pieces: Sequence[Piece]) -> Iterator[bytes]:
    for piece in pieces:
        if isinstance(piece, bytes):
            yield piece
            continue
        with piece.open("rb") as file:
            while part := file.read(_PIECE):
                yield part


def _scratch() -> tempfile.TemporaryDirectory[str]:
    made = tempfile.TemporaryDirectory(prefix="archiver-child-", ignore_cleanup_errors=True)
    if os.geteuid() == 0:
        Path(made.name).chmod(0o1777)  # the child has become another user; the folder has an unpredictable name
    return made
