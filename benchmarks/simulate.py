"""How long a cycle takes with N mailboxes on W workers: discrete events with measured costs, and a real run to compare with.

    python -m benchmarks simulate          the table, and a real run of 1,000 mailboxes beside its simulation
    python -m benchmarks.simulate 100000 8 one case: mailboxes, workers

What is simulated: slots of workers, slices, the time that a provider takes to answer (which needs no processor), the processor
time of a mailbox and of its messages on the cores of a machine, and one database that all workers share.
"""

from __future__ import annotations

import heapq
import sys
import tempfile
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

from archiver.maintenance.sizing import COSTS, SizingCosts
from benchmarks.engine import servers, start_worker, sync
from benchmarks.report import figure, load

SLOTS = 5
_BATCH = 200
CASES = [(1_000, 1), (1_000, 4), (10_000, 1), (10_000, 10), (100_000, 10), (100_000, 100), (1_000_000, 10), (1_000_000, 100)]


@dataclass(frozen=True, slots=True)
class Cycle:
    mailboxes: int
    workers: int
    messages_each: float = 20.0
    """New messages of each mailbox."""
    wait_seconds: float = 0.2
    """For the provider's answers, for each mailbox."""
    slots: int = SLOTS
    database_cores: float = 4.0


@dataclass(frozen=True, slots=True)
class Outcome:
    seconds: float
    worker_busy: float
    """Part of the time in which the processor of a worker is busy."""
    database_busy: float


def simulate(cycle: Cycle, costs: SizingCosts = COSTS) -> Outcome:
    """Each slot takes the next mailbox, waits for its provider, then needs its worker's processor and the database for a time.
    Both are queues: who comes first is served first."""
    batches = -(-cycle.messages_each // _BATCH)
    mine = costs.mailbox_seconds + batches * costs.batch_seconds + cycle.messages_each * costs.ingest_seconds
    shared = (
        costs.mailbox_database_seconds + batches * costs.batch_database_seconds + cycle.messages_each * costs.database_seconds
    )
    shared /= cycle.database_cores
    processor_free, database_free = [0.0] * cycle.workers, 0.0
    slots = [(0.0, worker) for worker in range(cycle.workers) for _ in range(cycle.slots)]
    heapq.heapify(slots)
    ended = 0.0
    for _ in range(cycle.mailboxes):
        now, worker = heapq.heappop(slots)
        began = max(now + cycle.wait_seconds, processor_free[worker])
        processor_free[worker] = began + mine
        database_free = max(processor_free[worker], database_free) + shared
        ended = max(ended, database_free)
        heapq.heappush(slots, (database_free, worker))
    busy = cycle.mailboxes * mine / cycle.workers / ended
    return Outcome(ended, busy, cycle.mailboxes * shared / ended)


def main() -> None:
    if len(sys.argv) == 3:
        _print(Cycle(int(sys.argv[1]), int(sys.argv[2])))
        return
    print("  mailboxes  workers   seconds  mailboxes/s  worker busy  database busy   (20 new messages each)")
    for mailboxes, workers in CASES:
        _print(Cycle(mailboxes, workers))
    _compare()


def _print(cycle: Cycle) -> None:
    found = simulate(cycle)
    rate = cycle.mailboxes / found.seconds
    line = f"  {cycle.mailboxes:>9,} {cycle.workers:>8} {found.seconds:>9,.0f} {rate:>12,.1f}"
    print(f"{line} {found.worker_busy:>12.0%} {found.database_busy:>14.0%}", flush=True)


def _compare(mailboxes: int = 1_000) -> None:
    """A real cycle on this machine beside its simulation: the fake provider answers at once."""
    load()
    with tempfile.TemporaryDirectory(prefix="archiver-bench-") as place, ExitStack() as stack:
        environment, engine, _ = stack.enter_context(servers(Path(place)))
        stack.enter_context(start_worker(environment))
        sync(environment, engine, "warm", mailboxes=5, messages_per_mailbox=5)
        mail = {"messages_per_mailbox": 20, "folders": ["INBOX"], "bytes_per_message": 4000}
        run = sync(environment, engine, "real", mailboxes=mailboxes, **mail)
    expected = simulate(Cycle(mailboxes, 1, 20.0, wait_seconds=0.0, database_cores=1.0))
    figure(f"{mailboxes:,} mailboxes of 20 messages, really", run.seconds, "s")
    figure("the same, simulated", expected.seconds, "s")
    figure("really / simulated", run.seconds / expected.seconds, "")


if __name__ == "__main__":
    main()
