"""The pool of child processes: any number of threads ask, each waits for a free child."""

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
    """What was given to a child has ended it, or was more than it may cost. The next request gets another child."""

    def __init__(self, reason: str, *, is_late: bool = False, is_too_large: bool = False) -> None:
        super().__init__(reason)
        self.is_late, self.is_too_large = is_late, is_too_large


class ChildrenBusy(NotReady):
    """No child has become free in the time that the caller has."""


class ReadersUnavailable(NotReady):
    """No child can be started on this machine as it is. No message is to blame for that, and none is given up for it."""


class PoolClosed(NotReady, OSError):
    """There is no child to be had any more."""


class Children:
    """Children start when they are first needed, outlive what they read only if they can, and never outlive this process."""

    def __init__(
        self, module: str, processes: int, seconds: float, *, programs: bool = False, recycle_after: int = _RECYCLE_AFTER
    ) -> None:
        """Each child is replaced after so many requests, or when it has become large: libraries leak."""
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
        """Within `seconds`, if that is less than every request has."""
        with self.talk(seconds=seconds) as talk:
            return talk.ask(op, pieces, **header)

    @contextlib.contextmanager
    def talk(
        self, wait: float | None = None, tick: Callable[[], None] = lambda: None, *, seconds: float = math.inf
    ) -> Iterator[Talk]:
        """One child for several requests, which it may remember. ChildrenBusy after `wait` seconds without a free one."""
        child = self._free(wait, tick)
        try:
            child = self._kept(child) or self._start()
            yield Talk(child, min(seconds, self.seconds), tick)
        finally:
            self._slots.put(self._kept(child))

    def close(self) -> None:
        """Ends all children at once, also those at work: their callers see them die."""
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
        """A child that can go on, or None for one to be replaced."""
        if child is None:
            return None
        if child.is_alive and child.requests < self._recycle_after and child.resident_bytes < _RECYCLE_RESIDENT_BYTES:
            return child
        child.dispose()
        with self._lock:
            self._children.discard(child)
        return None


class Talk:
    """With one child, by one thread."""

    def __init__(self, child: ChildProcess, seconds: float, tick: Callable[[], None]) -> None:
        self._child, self._seconds, self._tick = child, seconds, tick

    def ask(self, op: str, pieces: Sequence[Piece] = (), **header: Any) -> tuple[dict[str, Any], list[bytes]]:
        """ChildFailed for what the child can't do, or dies of; whatever it remembered is gone then. ReadersUnavailable if
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
        except BaseException:  # in the middle of a request: nobody could go on with it
            self._child.kill()
            raise
        if "error" in answer:
            raise ChildFailed(str(answer["error"]))
        return answer, given


def _end(children: set[ChildProcess], pid: int) -> None:
    """For a pool that is forgotten, not closed. A fork has the same children in its memory, and they are not its own."""
    if os.getpid() == pid:
        for child in list(children):
            child.dispose()
