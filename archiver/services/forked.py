"""Work on packs that is shared by several processes, which are copies of this one."""

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

from archiver.stack.process import dying_with_us
from archiver.store.archive import Archive
from archiver.store.errors import StoreUnavailable
from archiver.store.local import LocalPacks

MOST_PROCESSES = 4  # Postgres needs cores, too

Task = TypeVar("Task")
Outcome = TypeVar("Outcome")


def useful_processes(archive: Archive, tasks: int, wanted: int | None = None) -> int:
    """As many as are wanted, or as there are cores and tasks for; one where a fork would break something.

    A connection to a bucket does not survive it, and elsewhere than on Linux other things do not.
    """
    if sys.platform != "linux" or not isinstance(archive.backend, LocalPacks):
        return 1
    return wanted or min(MOST_PROCESSES, os.cpu_count() or 1, max(1, tasks))


@contextmanager
def workers(
    engine: Engine, work: Callable[[Task], Outcome], processes: int, advice: str = "begin again"
) -> Iterator[Callable[[Task], Future[Outcome]]]:
    """Does tasks in processes, or with one only in a thread. Other threads are to be started after this has begun.

    Raises StoreUnavailable, with the advice, when one of them was ended.
    """
    executor: Executor
    if processes == 1:
        with ThreadPoolExecutor(1, "packs") as executor:
            yield lambda task: executor.submit(work, task)
        return
    fork = multiprocessing.get_context("fork")
    try:
        with ProcessPoolExecutor(processes, fork, _begin_child, (engine, work, dying_with_us(signal.SIGKILL))) as executor:
            executor.submit(os.getpid).result()  # all of them are started now, while there is no other thread of ours
            yield lambda task: executor.submit(_work_in_child, task)
    except BrokenProcessPool as error:
        raise StoreUnavailable(f"a process that read the packs was ended; {advice}") from error


_work: Callable[[Any], Any]


def _begin_child(engine: Engine, work: Callable[[Any], Any], die_with_parent: Callable[[], None]) -> None:
    global _work
    die_with_parent()
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent is told, too, and ends us
    engine.dispose(close=False)  # these connections are the parent's
    _work = work


def _work_in_child(task: Any) -> Any:
    return _work(task)
