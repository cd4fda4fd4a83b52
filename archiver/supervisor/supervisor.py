"""Starts the parts in order, restarts those that die, and stops everything in order. Only the main thread forks."""

from __future__ import annotations

import contextlib
import os
import select
import signal
import subprocess
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from enum import StrEnum

from archiver.errors import ArchiverError, NotReady
from archiver.supervisor.parts import StackPart

_START_SECONDS = 90.0
_CHECK_SECONDS = 0.05
_FIRST_PAUSE_SECONDS = 0.5
_LONGEST_PAUSE_SECONDS = 30.0
_HEALTHY_SECONDS = 60.0
"""A part that ran this long has recovered: its next crash counts as the first."""
GIVE_UP_AFTER = 6


class PartState(StrEnum):
    WAITING = "waiting"
    STARTING = "starting"
    RUNNING = "running"
    RESTARTING = "restarting"
    DONE = "done"
    STOPPING = "stopping"
    STOPPED = "stopped"
    FAILED = "failed"


@dataclass(slots=True)
class Child:
    part: StackPart
    state: PartState = PartState.WAITING
    process: subprocess.Popen[bytes] | None = None
    deaths: int = 0
    restarts: int = 0
    since: float = field(default_factory=time.monotonic)
    start_at: float = 0.0
    note: str = ""

    def become(self, state: PartState, note: str = "") -> None:
        self.state, self.note, self.since = state, note, time.monotonic()

    @property
    def ready(self) -> bool:
        return self.state is (PartState.DONE if self.part.runs_once else PartState.RUNNING)

    @property
    def alive(self) -> bool:
        return self.process is not None and self.process.poll() is None


class Supervisor:
    """`on_line(part, line)` receives the children's output; `on_change()` is called after each change of a state."""

    def __init__(
        self,
        parts: Iterable[StackPart],
        *,
        on_line: Callable[[str, str], None],
        on_change: Callable[[], None],
        restart_pause: float = _FIRST_PAUSE_SECONDS,
    ) -> None:
        self.children = [Child(part) for part in parts]
        self._requests: deque[Callable[[], None]] = deque()
        self._woken, self._waker = os.pipe()
        for end in (self._woken, self._waker):
            os.set_blocking(end, False)
        self.failure: str | None = None
        self._stopping = False
        self._is_killing = False
        self._on_line, self._on_change = on_line, on_change
        self._restart_pause = restart_pause

    # --- called by other threads

    @property
    def ready(self) -> bool:
        return not self._stopping and all(child.ready for child in self.children)

    def request(self, act: Callable[[], None]) -> None:
        """Runs `act` in the main thread; safe to call from other threads and signal handlers."""
        self._requests.append(act)
        with contextlib.suppress(BlockingIOError):  # the pipe is full: the main thread is already awake
            os.write(self._waker, b"1")

    def add(self, parts: Iterable[StackPart]) -> None:
        known = {child.part.name for child in self.children}
        self.children += [Child(part) for part in parts if part.name not in known]
        self._on_change()

    def stop(self) -> None:
        """The first call stops the parts in order, the second kills them."""
        self._is_killing = self._stopping
        self._stopping = True

    # --- the loop

    def run(self) -> int:
        """Runs until everything has stopped. 0: as requested; 1: a part could not be kept running (`failure` names it)."""
        self._catch_signals()
        while True:
            self._reap()
            if self._stopping:
                if self._stop_step():
                    break
            else:
                self._start_step()
            self._wait()
        return 1 if self.failure else 0

    def _catch_signals(self) -> None:
        # through the pipe, because the kernel may deliver a signal to any thread, which would not wake this one
        signal.set_wakeup_fd(self._waker, warn_on_full_buffer=False)
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            signal.signal(number, lambda *_: self.request(self.stop))
        signal.signal(signal.SIGCHLD, lambda *_: None)

    def _wait(self) -> None:
        select.select([self._woken], [], [], self._pause())
        with contextlib.suppress(BlockingIOError):
            os.read(self._woken, 4096)
        while self._requests:
            self._requests.popleft()()

    def _pause(self) -> float:
        """The time until the next step that is not triggered by a signal or a request."""
        if self._stopping or any(child.state is PartState.STARTING for child in self.children):
            return _CHECK_SECONDS
        pauses = [child.start_at - time.monotonic() for child in self.children if child.state is PartState.RESTARTING]
        return min(max(0.0, min(pauses)), 60.0) if pauses else 60.0

    def _reap(self) -> None:
        for child in self.children:
            if (
                child.process is None
                or child.process.poll() is None
                or child.state in (PartState.DONE, PartState.STOPPED, PartState.FAILED)
            ):
                continue
            if child.state in (PartState.STARTING, PartState.RUNNING):
                self._handle_exit(child, child.process.returncode)

    def _handle_exit(self, child: Child, code: int) -> None:
        how = f"exited with code {code}" if code >= 0 else f"was killed by {_signal_name(-code)}"
        if child.part.runs_once and code == 0:
            child.become(PartState.DONE)
        elif self._stopping:
            child.become(PartState.STOPPED)
        else:
            recovered = child.state is PartState.RUNNING and time.monotonic() - child.since > _HEALTHY_SECONDS
            child.deaths = 1 if recovered else child.deaths + 1
            if child.part.runs_once or child.deaths >= GIVE_UP_AFTER:
                self._give_up(child, how)
            else:
                pause = min(self._restart_pause * 2 ** (child.deaths - 1), _LONGEST_PAUSE_SECONDS)
                child.start_at = time.monotonic() + pause
                child.become(PartState.RESTARTING, f"{how}; restarting in {pause:.1f} s")
                self._on_line(child.part.name, f"*** {child.part.name} {child.note}")
        self._on_change()

    def _give_up(self, child: Child, reason: str) -> None:
        child.become(PartState.FAILED, reason)
        tries = f" {child.deaths} times in a row" if child.deaths > 1 else ""
        self.failure = f"{child.part.name} {reason}{tries}; stopping everything"
        self._on_line(child.part.name, f"*** {self.failure}")
        self._stopping = True

    def _start_step(self) -> None:
        for child in self.children:
            if child.state is PartState.WAITING and self._may_start(child):
                self._start(child)
            elif child.state is PartState.RESTARTING and time.monotonic() >= child.start_at:
                child.restarts += 1
                self._start(child)
            elif child.state is PartState.STARTING:
                self._check(child)

    def _may_start(self, child: Child) -> bool:
        return child.part.needs <= {other.part.name for other in self.children if other.ready}

    def _start(self, child: Child) -> None:
        try:
            child.part.server.prepare()
            child.process = child.part.server.start()
        except (ArchiverError, OSError) as error:
            self._give_up(child, f"can't be started: {error}")
            return
        threading.Thread(target=self._forward, args=(child.part.name, child.process), daemon=True).start()
        child.become(PartState.STARTING)
        self._on_change()

    def _forward(self, name: str, process: subprocess.Popen[bytes]) -> None:
        assert process.stdout is not None
        with process.stdout as output:
            for line in output:
                self._on_line(name, line.decode("utf-8", "replace").rstrip("\n"))

    def _check(self, child: Child) -> None:
        if child.part.runs_once:
            return
        try:
            child.part.server.check()
        except NotReady as error:
            if time.monotonic() - child.since > _START_SECONDS and child.process is not None:
                self._on_line(child.part.name, f"*** {child.part.name} is not ready after {_START_SECONDS:.0f} s: {error}")
                _kill(child.process)
            return
        child.become(PartState.RUNNING)
        self._on_change()

    # --- stopping

    def _stop_step(self) -> bool:
        """Stops the running parts of the lowest order. True when nothing runs any more."""
        if self._is_killing:
            self._kill_all()
        alive = [child for child in self.children if child.alive]
        for child in self.children:
            if not child.alive and child.state not in (PartState.STOPPED, PartState.DONE, PartState.FAILED):
                child.become(PartState.STOPPED)
                self._on_change()
        if not alive:
            return True
        order = min(child.part.stop_order for child in alive)
        for child in (child for child in alive if child.part.stop_order == order):
            assert child.process is not None
            if child.state is not PartState.STOPPING:
                child.become(PartState.STOPPING)
                child.process.send_signal(child.part.server.stop_signal)
                self._on_change()
            elif time.monotonic() - child.since > child.part.stop_seconds:
                self._on_line(
                    child.part.name, f"*** {child.part.name} did not stop within {child.part.stop_seconds:.0f} s: killed"
                )
                child.process.kill()
        return False

    def _kill_all(self) -> None:
        for child in self.children:
            if child.alive and child.process is not None:
                _kill(child.process)
                child.process.wait()


def _kill(process: subprocess.Popen[bytes]) -> None:
    """With its children: each part leads a process group of its own."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"
