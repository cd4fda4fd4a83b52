"""The pool of child processes, seen from the one who wants text."""

import contextlib
import math
import queue
import threading
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import TypeVar

from archiver.extract import limits
from archiver.extract.extraction import Extraction, Picture, State
from archiver.extract.process import ChildDied, ChildLate, ChildProcess

_RECYCLE_AFTER = 500
_RECYCLE_RESIDENT_BYTES = 600 << 20
Outcome = TypeVar("Outcome")


class Extractor:
    """Extracts text in child processes. Any number of threads may call it; each waits for a free child.

    Children start when they are first needed, outlive a broken file only if they can, and never outlive this process.
    """

    def __init__(self, processes: int = 2, *, ocr: bool = False, seconds: float = limits.SECONDS) -> None:
        self._ocr = ocr
        self._seconds = seconds
        self._slots: queue.LifoQueue[ChildProcess | None] = queue.LifoQueue()
        for _ in range(processes):
            self._slots.put(None)
        self._children: set[ChildProcess] = set()
        self._lock = threading.Lock()
        self._is_closed = False

    def __enter__(self) -> "Extractor":
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()

    def extract(self, data: bytes | Path, name: str = "", declared_type: str = "", *, seconds: float = math.inf) -> Extraction:
        """The text of a file, within `seconds` if that is less than a file may take anyway.

        Never raises for what is in the file; OSError if there is no process to be had.
        """
        size = data.stat().st_size if isinstance(data, Path) else len(data)
        if size == 0:
            return Extraction(State.EMPTY, "no bytes")
        if size > limits.INPUT_BYTES:
            return Extraction(State.TOO_LARGE, f"{size} bytes, more than the limit of {limits.INPUT_BYTES}")
        seconds = min(seconds, self._seconds)
        return self._with_child(
            lambda child: child.extract(data, name, declared_type, ocr=self._ocr, seconds=seconds), Extraction, seconds
        )

    def draw(self, data: bytes, page: int) -> Picture:
        """A page of a PDF, counted from 1, as PNG; page 0 for the number of pages alone. Never raises for what is in it."""
        return self._with_child(lambda child: child.draw(data, page, seconds=self._seconds), Picture, self._seconds)

    def close(self) -> None:
        """Ends all children at once, also those at work: their callers see a broken file."""
        with self._lock:
            self._is_closed = True
            children, self._children = self._children, set()
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

    def _start(self) -> ChildProcess:
        with self._lock:
            if self._is_closed:
                raise OSError("the extractor is closed")
            child = ChildProcess()
            self._children.add(child)
            return child

    def _with_child(
        self, ask: Callable[[ChildProcess], Outcome], failed: Callable[[State, str], Outcome], seconds: float
    ) -> Outcome:
        child = self._slots.get()
        try:
            child = self._kept(child) or self._start()
            return self._asked(child, ask, failed, seconds)
        finally:
            self._slots.put(self._kept(child))

    def _asked(
        self,
        child: ChildProcess,
        ask: Callable[[ChildProcess], Outcome],
        failed: Callable[[State, str], Outcome],
        seconds: float,
    ) -> Outcome:
        try:
            return ask(child)
        except ChildLate:
            child.kill()
            return failed(State.TIMEOUT, f"took more than {seconds:g} seconds")
        except ChildDied as death:
            child.kill()
            if death.is_out_of_memory:
                return failed(State.TOO_LARGE, "needs more memory than the limit")
            return failed(State.BROKEN, f"the reader crashed: {death}")

    def _kept(self, child: ChildProcess | None) -> ChildProcess | None:
        """A child that can go on, or None for one to be replaced."""
        if child is None:
            return None
        if child.is_alive and child.requests < _RECYCLE_AFTER and child.resident_bytes < _RECYCLE_RESIDENT_BYTES:
            return child
        child.dispose()
        with self._lock:
            self._children.discard(child)
        return None
