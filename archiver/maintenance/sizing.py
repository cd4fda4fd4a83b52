"""What an installation needs for a number of messages and mailboxes: arithmetic on measured costs. Pure.

`benchmarks/simulate.py` plays the same costs event by event and compares them with a real run;
docs/operations/sizing.md explains them.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from archiver.errors import UsageError

_GB = 1_000_000_000
_SPARE = 1.3
"""Room for growth within a pack's life, for compaction and for a backup's dump."""
_CORES_IN_USE = 0.7
"""Beyond it, what waits grows quickly."""
_LEAST_MEMORY_BYTES = 1_000_000_000
_INITIAL_DAYS = 7.0
_CACHED = 0.05
"""Part of database and search index that should fit into memory: what is searched and changed often."""


@dataclass(frozen=True, slots=True)
class SizingCosts:
    """Measured on two cores of a server, with mail of 4 to 30 KB; seconds are processor time."""

    ingest_seconds: float = 0.00022
    """A worker, for a message: fetch, hash, compress, encrypt."""
    database_seconds: float = 0.00018
    """Postgres, for the same."""
    mailbox_seconds: float = 0.0050
    """A worker, for a mailbox that is looked at, with or without new mail."""
    mailbox_database_seconds: float = 0.0032
    batch_seconds: float = 0.0060
    """A worker, for each batch of messages that is stored: small batches cost more for each message."""
    batch_database_seconds: float = 0.0044
    index_seconds: float = 0.0009
    """An indexing worker with its children, for a message."""
    search_seconds: float = 0.0009
    """The search server, for the same."""
    pack_share: float = 0.25
    """Bytes in packs for each byte of mail."""
    database_bytes: float = 1_700.0
    """For a message with its copy, its people and their indexes in the database."""
    index_bytes: float = 9_000.0
    """Of the search index, for a message of average length with its attachments' text."""
    job_bytes: float = 1_500.0
    """In Redis, for a job that is there; only a few for each slot are."""
    worker_bytes: float = 300_000_000.0
    indexer_bytes: float = 400_000_000.0
    web_bytes: float = 200_000_000.0


COSTS = SizingCosts()


@dataclass(frozen=True, slots=True)
class Plan:
    messages: int
    mailboxes: int
    mail_bytes: int
    pack_bytes: int
    database_bytes: int
    index_bytes: int
    disk_bytes: int
    """All of it, with room for growth, compaction and a dump."""
    slots: int
    """By Little's law: mailboxes a second × seconds that one takes."""
    ingestion_workers: int
    indexing_processes: int
    cores: int
    memory_bytes: int
    redis_bytes: int
    cycle_seconds: float
    """Of a cycle over all mailboxes, with a day's new mail spread over its cycles."""
    first_hours: float
    """Until everything is archived and searchable for the first time, if the provider is no slower."""
    notes: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class PlanInput:
    messages: int
    mailboxes: int
    message_bytes: int = 75_000
    """With attachments; measured over company mail."""
    new_a_day: float = 40.0
    """Messages, for a mailbox."""
    cycle_seconds: float = 900.0
    """How old new mail may be before it is archived."""
    wait_seconds: float = 0.5
    """That a provider takes to answer, for a mailbox that is looked at."""
    slots_each: int = 5


def read_plan(text: str) -> PlanInput:
    """`MESSAGES,MAILBOXES`, each with an optional k or M, such as `20M,500`."""
    numbers = [_number(part) for part in text.split(",")]
    if len(numbers) != 2 or any(number is None or number < 1 for number in numbers):
        raise UsageError(f"--plan {text[:60]!r}: expected MESSAGES,MAILBOXES, such as 20M,500")
    messages, mailboxes = (number or 0 for number in numbers)
    if messages > 10**12 or mailboxes > 10**9:
        raise UsageError(
            f"--plan {text[:60]!r}: more than 1,000,000,000,000 messages or 1,000,000,000 mailboxes can't be planned"
        )
    return PlanInput(messages, mailboxes)


def _number(text: str) -> int | None:
    text = text.strip().replace("_", "")
    factor = {"k": 1_000, "m": 1_000_000, "g": 1_000_000_000}.get(text[-1:].lower(), 1)
    try:
        return round(float(text[:-1] if factor > 1 else text) * factor)
    except (ValueError, OverflowError):
        return None


def plan(given: PlanInput, costs: SizingCosts = COSTS) -> Plan:
    mail = given.messages * given.message_bytes
    packs, database, index = (
        int(mail * costs.pack_share),
        int(given.messages * costs.database_bytes),
        int(given.messages * costs.index_bytes),
    )
    new_a_second = given.mailboxes * given.new_a_day / 86_400
    looks_a_second = given.mailboxes / given.cycle_seconds
    batches_a_second = min(looks_a_second, new_a_second)
    own = looks_a_second * costs.mailbox_seconds + batches_a_second * costs.batch_seconds + new_a_second * costs.ingest_seconds
    shared = looks_a_second * costs.mailbox_database_seconds + new_a_second * costs.database_seconds
    shared += batches_a_second * costs.batch_database_seconds
    indexing = new_a_second * (costs.index_seconds + costs.search_seconds)
    seconds_each = given.wait_seconds + costs.mailbox_seconds + costs.mailbox_database_seconds
    slots = max(1, math.ceil(looks_a_second * seconds_each / _CORES_IN_USE))
    workers = max(1, math.ceil(slots / given.slots_each), math.ceil(own / _CORES_IN_USE))
    first = given.messages * (costs.index_seconds + costs.search_seconds + costs.ingest_seconds + costs.database_seconds)
    wanted = first / (_INITIAL_DAYS * 86_400)
    cores = max(2, math.ceil((own + shared + indexing + wanted) / _CORES_IN_USE))
    indexers = max(1, min(64, cores // 2))
    memory = _LEAST_MEMORY_BYTES + workers * costs.worker_bytes + indexers * costs.indexer_bytes + costs.web_bytes
    return Plan(
        given.messages,
        given.mailboxes,
        mail,
        packs,
        database,
        index,
        int((packs + 2 * database + index) * _SPARE),
        slots,
        workers,
        indexers,
        cores,
        int(memory + min(_CACHED * (database + index), 64 * _GB)),
        int(4 * slots * costs.job_bytes) + 10_000_000,
        given.mailboxes / (slots / seconds_each) if looks_a_second else 0.0,
        first / cores / 3600,
        tuple(_notes(given, cores, workers, database)),
    )


def _notes(given: PlanInput, cores: int, workers: int, database: int) -> list[str]:
    notes = []
    if cores > 16 or workers > 8:
        notes.append(
            "more than one machine: your own PostgreSQL, Valkey and S3, workers on several (docs/operations/scale-out.md)"
        )
    if database > 500 * _GB:
        notes.append("the database is large: give PostgreSQL a machine of its own, with fast disks")
    if given.messages > 50_000_000:
        notes.append(
            "the embedded search server was tried with up to a million messages: use Meilisearch on a machine of its own"
        )
    return notes
