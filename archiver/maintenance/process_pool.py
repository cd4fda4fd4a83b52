"""Shares work on packs between several forked processes."""

from __future__ import annotations

import multiprocessing
import os
import signal
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import Executor, Future, ProcessPoolExecutor, ThreadPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from typing import Any, TypeVar

from sqlalchemy import Engine

from archiver.store.archive import Archive
from archiver.store.errors import StoreUnavailable
from archiver.store.local import LocalPacks
from archiver.supervisor.process import parent_death_hook

MAX_PROCESSES = 4  # Postgres needs cores as well

Task = TypeVar("Task")
Outcome = TypeVar("Outcome")


def useful_processes(archive: Archive, tasks: int, wanted: int | None = None) -> int:
    """The wanted number, or as many as there are cores and tasks; one where forking is not safe.

    Connections to a bucket do not survive a fork, and outside of Linux other libraries do not.
    """
    if sys.platform != "linux" or not isinstance(archive.backend, LocalPacks):
        return 1
    return wanted or min(MAX_PROCESSES, os.cpu_count() or 1, max(1, tasks))


@contextmanager
def workers(
    engine: Engine, work: Callable[[Task], Outcome], processes: int, advice: str = "run the command again"
) -> Iterator[Callable[[Task], Future[Outcome]]]:
    """Runs tasks in processes, or in a thread if `processes` is 1. Start other threads only inside the block.

    Raises StoreUnavailable, with the advice, if one of the processes was killed.
    """
    executor: Executor
    if processes == 1:
        with ThreadPoolExecutor(1, "packs") as executor:
            yield lambda task: executor.submit(work, task)
        return
    fork = multiprocessing.get_context("fork")
    try:
        with ProcessPoolExecutor(processes, fork, _begin_child, (engine, work, parent_death_hook(signal.SIGKILL))) as executor:
            executor.submit(os.getpid).result()  # forks all processes now, while this one has no other threads
            yield lambda task: executor.submit(_work_in_child, task)
    except BrokenProcessPool as error:
        raise StoreUnavailable(f"a process that read the packs was killed: {advice}") from error


_work: Callable[[Any], Any]


def _begin_child(engine: Engine, work: Callable[[Any], Any], die_with_parent: Callable[[], None]) -> None:
    global _work
    die_with_parent()
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent gets the signal too, and stops this process
    engine.dispose(close=False)  # these connections are the parent's
    _work = work


def _work_in_child(task: Any) -> Any:
    return _work(task)
