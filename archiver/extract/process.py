"""One child process and the talk with it, with a deadline on every read and write."""

import base64
import contextlib
import json
import os
import select
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from archiver.extract.extraction import LENGTH, Extraction, Page, Picture, State

_ANSWER_BYTES = 256 << 20
_PIECE = 1 << 20
_STDERR_BYTES = 4096
_OUT_OF_MEMORY = ("memory allocation of", "MemoryError", "Cannot allocate memory", "out of memory", "bad_alloc")
_PASSED_ON = frozenset({"PATH", "HOME", "LANG", "TMPDIR", "VIRTUAL_ENV", "LD_LIBRARY_PATH", "TESSDATA_PREFIX", "SYSTEMROOT"})


def _environment() -> dict[str, str]:
    """What Python and tesseract need, and nothing else: keys and passwords stay out of reach of what a file may do."""
    kept = {name: value for name, value in os.environ.items() if name in _PASSED_ON or name.startswith(("LC_", "PYTHON"))}
    return {**kept, "MALLOC_ARENA_MAX": "2", "RAYON_NUM_THREADS": "1", "TOKIO_WORKER_THREADS": "1"}


class ChildLate(Exception):
    """The child did not answer in time."""


class ChildDied(Exception):
    """The child is gone; says how."""

    def __init__(self, how: str, stderr: str) -> None:
        super().__init__(how)
        self.is_out_of_memory = any(sign in stderr for sign in _OUT_OF_MEMORY)


class ChildProcess:
    """A running `archiver.extract.child`. Not for use by two threads at once, apart from `kill`."""

    def __init__(self) -> None:
        watched, self._held = os.pipe()
        self._stderr = tempfile.TemporaryFile()  # noqa: SIM115 - closed by dispose
        try:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "archiver.extract.child", str(watched)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=self._stderr,
                pass_fds=(watched,),
                start_new_session=True,
                env=_environment(),
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
        self._is_disposed = False

    @property
    def is_alive(self) -> bool:
        return not self._is_disposed and self._process.poll() is None

    def extract(self, data: bytes | Path, name: str, declared_type: str, *, ocr: bool, seconds: float) -> Extraction:
        answer = self._ask(data, {"name": name, "type": declared_type, "ocr": ocr, "page": None}, seconds)
        pages = tuple(Page(*page) for page in answer["pages"])
        return Extraction(State(answer["state"]), answer["reason"], pages, answer["kind"])

    def draw(self, data: bytes, page: int, *, seconds: float) -> Picture:
        answer = self._ask(data, {"name": "", "type": "", "ocr": False, "page": page}, seconds)
        if "png" not in answer:
            return Picture(State(answer["state"]), answer["reason"])
        return Picture(State.OK, "", answer["pages"], base64.b64decode(answer["png"]))

    def _ask(self, data: bytes | Path, wanted: dict[str, object], seconds: float) -> dict[str, Any]:
        deadline = time.monotonic() + seconds
        self.requests += 1
        path, content = (str(data.resolve()), b"") if isinstance(data, Path) else ("", data)
        header = json.dumps({**wanted, "seconds": seconds, "path": path, "size": len(content)}).encode()
        self._write(LENGTH.pack(len(header)) + header, deadline)
        self._write(content, deadline)
        length = LENGTH.unpack(self._read(LENGTH.size, deadline))[0]
        if length > _ANSWER_BYTES:
            raise ChildDied("its answer makes no sense", "")
        answer: dict[str, Any] = json.loads(self._read(length, deadline))
        self.resident_bytes = answer["resident_bytes"]
        return answer

    def kill(self) -> None:
        """Ends the child and what it started. From any thread, and more than once: its user sees it die."""
        if self._process.poll() is None:
            with contextlib.suppress(OSError):
                os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()

    def dispose(self) -> None:
        """Ends the child and closes the pipes. Only by the one who uses it: a closed number may be in use again elsewhere."""
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

    def _write(self, data: bytes, deadline: float) -> None:
        view = memoryview(data)
        while view:
            self._wait([], [self._requests_fd], deadline)
            try:
                view = view[os.write(self._requests_fd, view[:_PIECE]) :]
            except BlockingIOError:
                continue
            except OSError as error:
                raise self._death() from error

    def _read(self, size: int, deadline: float) -> bytes:
        pieces: list[bytes] = []
        while size:
            self._wait([self._answers_fd], [], deadline)
            try:
                piece = os.read(self._answers_fd, min(size, _PIECE))
            except BlockingIOError:
                continue
            except OSError as error:
                raise self._death() from error
            if not piece:
                raise self._death()
            pieces.append(piece)
            size -= len(piece)
        return b"".join(pieces)

    def _wait(self, readers: list[int], writers: list[int], deadline: float) -> None:
        left = deadline - time.monotonic()
        try:
            ready = select.select(readers, writers, [], max(0.0, left))
        except (OSError, ValueError) as error:  # closed by dispose
            raise self._death() from error
        if left <= 0 or not any(ready):
            raise ChildLate

    def _death(self) -> ChildDied:
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
