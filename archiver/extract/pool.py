"""The pool of child processes. Any number of threads may use it; each waits for a free child."""

from __future__ import annotations

import contextlib
import math
import os
import queue
import threading
import time
import weakref
from collections.abc import Callable, Iterator, Sequence
from types import TracebackType
from typing import Any, Self

from archiver.errors import ArchiverError, NotReady
from archiver.extract.process import ChildDied, ChildLate, ChildProcess, ChildUnusable, Piece

_RECYCLE_AFTER = 500
_RECYCLE_RESIDENT_BYTES = 600 << 20


class ChildFailed(ArchiverError):
    """The input killed the child, or exceeded a limit. The next request gets a new child."""

    def __init__(self, reason: str, *, is_late: bool = False, is_too_large: bool = False) -> None:
        super().__init__(reason)
        self.is_late, self.is_too_large = is_late, is_too_large


class ChildrenBusy(NotReady):
    """No child became free within the time that the caller allowed."""


class ReadersUnavailable(NotReady):
    """No child can be started on this machine as it is. No message is to blame for that, and none is given up for it."""


class PoolClosed(NotReady, OSError):
    """The pool was closed."""


class Children:
    """Children start when they are first needed, are replaced when they fail, and never outlive this process."""

    def __init__(
        self, module: str, processes: int, seconds: float, *, programs: bool = False, recycle_after: int = _RECYCLE_AFTER
    ) -> None:
        """A child is replaced after `requests` requests, or when it has grown large, because libraries leak memory."""
        self._module, self._programs, self._recycle_after = module, programs, recycle_after
        self.seconds = seconds
        self._slots: queue.LifoQueue[ChildProcess | None] = queue.LifoQueue()
        for _ in range(processes):
            self._slots.put(None)
        self._children: set[ChildProcess] = set()
        self._lock = threading.Lock()
        self._is_closed = False
        weakref.finalize(self, _end, self._children, os.getpid())

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()

    def ask(
        self, op: str, pieces: Sequence[Piece] = (), *, seconds: float = math.inf, **header: Any
    ) -> tuple[dict[str, Any], list[bytes]]:
        """One request, within `seconds` if that is less than the general limit."""
        with self.talk(seconds=seconds) as talk:
            return talk.ask(op, pieces, **header)

    @contextlib.contextmanager
    def talk(
        self, wait: float | None = None, tick: Callable[[], None] = lambda: None, *, seconds: float = math.inf
    ) -> Iterator[Talk]:
        """One child for several requests; it may keep state between them. Raises ChildrenBusy if none becomes free within
        `wait` seconds."""
        child = self._free(wait, tick)
        try:
            child = self._kept(child) or self._start()
            yield Talk(child, min(seconds, self.seconds), tick)
        finally:
            self._slots.put(self._kept(child))

    def close(self) -> None:
        """Ends all children at once, even working ones; their callers get ChildFailed."""
        with self._lock:
            self._is_closed = True
            children = list(self._children)
            self._children.clear()
        for child in children:
            child.kill()
        idle: list[ChildProcess | None] = []
        with contextlib.suppress(queue.Empty):
            while True:
                idle.append(self._slots.get_nowait())
        for slot in idle:
            if slot is not None:
                slot.dispose()
            self._slots.put(None)

    def _free(self, wait: float | None, tick: Callable[[], None]) -> ChildProcess | None:
        end = None if wait is None else time.monotonic() + wait
        while True:
            left = 1.0 if end is None else min(1.0, end - time.monotonic())
            try:
                return self._slots.get(timeout=max(0.0, left)) if left > 0 else self._slots.get_nowait()
            except queue.Empty:
                if end is not None and time.monotonic() >= end:
                    raise ChildrenBusy("all readers are busy: try again in a moment") from None
                tick()

    def _start(self) -> ChildProcess:
        with self._lock:
            if self._is_closed:
                raise PoolClosed("the readers are closed: the process is stopping")
            child = ChildProcess(self._module, programs=self._programs)
            self._children.add(child)
            return child

    def _kept(self, child: ChildProcess | None) -> ChildProcess | None:
        """The child if it can continue; None if it has to be replaced."""
        if child is None:
            return None
        if child.is_alive and child.requests < self._recycle_after and child.resident_bytes < _RECYCLE_RESIDENT_BYTES:
            return child
        child.dispose()
        with self._lock:
            self._children.discard(child)
        return None


class Talk:
    """A conversation of one thread with one child."""

    def __init__(self, child: ChildProcess, seconds: float, tick: Callable[[], None]) -> None:
        self._child, self._seconds, self._tick = child, seconds, tick

    def ask(self, op: str, pieces: Sequence[Piece] = (), **header: Any) -> tuple[dict[str, Any], list[bytes]]:
        """Raises ChildFailed if the child fails or dies; its state is lost then. ReadersUnavailable if
        it could not even start."""
        try:
            answer, given = self._child.ask({"op": op, **header}, pieces, self._seconds, self._tick)
        except ChildUnusable as reason:
            self._child.kill()
            raise ReadersUnavailable(f"the processes that read mail and files can't start: {reason}") from reason
        except ChildLate:
            self._child.kill()
            raise ChildFailed(f"took more than {self._seconds:g} seconds", is_late=True) from None
        except ChildDied as death:
            self._child.kill()
            if death.is_out_of_memory:
                raise ChildFailed("needs more memory than the limit", is_too_large=True) from death
            raise ChildFailed(f"the reader crashed: {death}") from death
        except BaseException:  # in the middle of a request: no caller could continue with it
            self._child.kill()
            raise
        if "error" in answer:
            raise ChildFailed(str(answer["error"]))
        return answer, given


def _end(children: set[ChildProcess], pid: int) -> None:
    """For a pool that is garbage-collected without `close`. A forked process has the same objects, but not the children."""
    if os.getpid() == pid:
        for child in list(children):
            child.dispose()
