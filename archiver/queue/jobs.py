"""The jobs: the name of each, its queue, its data, and how it is retried.

A job carries ids and nothing else: Postgres is the truth, a job is a doorbell.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import MISSING, dataclass, fields
from datetime import UTC, datetime
from enum import StrEnum
from typing import Any, ClassVar, Self, get_type_hints
from uuid import UUID

from archiver.errors import ArchiverError

ENVELOPE_VERSION = 1
CONTROL_PRIORITY = 1
MAILBOX_PRIORITY = 10
ATTACHMENTS_PRIORITY = 20
REREADING_PRIORITY = 30


class QueueName(StrEnum):
    INGESTION = "ingestion"
    INDEXING = "indexing"


SHORT_PAUSE_SECONDS = 60.0
"""A job with a pause of at most this length stays in the queue as delayed."""


class Later(Exception):
    """Raised by a processor that has done what it can for now: the job runs again after a short pause, and uses no attempt."""

    def __init__(self, after_seconds: float) -> None:
        super().__init__(f"runs again in {after_seconds:.1f} s")
        self.after_seconds = after_seconds


class BadJob(ArchiverError):
    """A job whose data does not match its kind. Retrying does not help."""


class UnknownJob(BadJob):
    """A job of another release: while workers are being upgraded, one of the newer release can run it."""


@dataclass(frozen=True, slots=True)
class Job:
    """The data of a job. A subclass is a kind of job; its class variables define how it runs."""

    name: ClassVar[str]
    queues: ClassVar[frozenset[QueueName]] = frozenset({QueueName.INGESTION})
    priority: ClassVar[int] = CONTROL_PRIORITY
    timeout_seconds: ClassVar[float] = 300.0
    attempts: ClassVar[int] = 5

    def data(self) -> dict[str, Any]:
        """Omits default values: a process of an earlier release rejects fields that it does not know."""
        values = {one.name: getattr(self, one.name) for one in fields(self) if getattr(self, one.name) != one.default}
        return {name: str(value) if isinstance(value, UUID) else value for name, value in values.items()}

    @classmethod
    def from_data(cls, data: Any) -> Self:
        expected = {field.name for field in fields(cls)}
        needed = {field.name for field in fields(cls) if field.default is MISSING}
        if not isinstance(data, Mapping) or not needed <= set(data) <= expected:
            raise BadJob(f"{cls.name}: expected the fields {sorted(expected)}, got {sorted(data) if data else data!r}")
        hints = _TYPES.get(cls.name)
        if hints is None:
            hints = _TYPES[cls.name] = get_type_hints(cls)
        return cls(**{name: _read(cls.name, name, value, hints[name]) for name, value in data.items()})


_TYPES: dict[str, dict[str, Any]] = {}
"""Cached field types by job name: resolving them costs more than reading a job."""


def _read(job: str, name: str, value: Any, kind: type) -> Any:
    if not isinstance(value, str):
        raise BadJob(f"{job}: {name} is not a string")
    if kind is not UUID:
        return value
    try:
        return UUID(value)
    except ValueError:
        raise BadJob(f"{job}: {name} is not a UUID") from None


@dataclass(frozen=True, slots=True)
class Ping(Job):
    """Does nothing, which proves that a job reaches a worker and its result comes back."""

    name = "ping"
    queues = frozenset(QueueName)
    timeout_seconds = 10.0
    attempts = 1

    token: str


@dataclass(frozen=True, slots=True)
class ScheduleContinuousSync(Job):
    """The tick: starts the sources that are due, and ends dead sessions."""

    name = "schedule-continuous-sync"


@dataclass(frozen=True, slots=True)
class ContinuousSync(Job):
    """One cycle of one source: lists its mailboxes, unless `mailbox_ids` names them."""

    name = "continuous-sync"
    timeout_seconds = 3600.0

    source_id: UUID
    mailbox_ids: str = ""
    """Comma-separated ids, for a cycle over these mailboxes only."""


@dataclass(frozen=True, slots=True)
class InitialImport(Job):
    """The first cycle of a source, or a file import."""

    name = "initial-import"
    timeout_seconds = 3600.0

    source_id: UUID
    import_id: str = ""
    """The row in `imports` that defines what is read."""


@dataclass(frozen=True, slots=True)
class ProcessMailbox(Job):
    """A slice of one mailbox."""

    name = "process-mailbox"
    priority = MAILBOX_PRIORITY
    timeout_seconds = 3600.0

    session_id: UUID
    mailbox_id: UUID


@dataclass(frozen=True, slots=True)
class SyncCycleFinished(Job):
    """The end of a cycle; its job id is the session's."""

    name = "sync-cycle-finished"

    session_id: UUID


@dataclass(frozen=True, slots=True)
class IndexEmailBatch(Job):
    """Documents are behind: their messages are new or changed, or their attachments are unread (`stage`)."""

    name = "index-email-batch"
    queues = frozenset({QueueName.INDEXING})
    priority = MAILBOX_PRIORITY
    timeout_seconds = 3600.0

    stage: str = "body"

    ATTACHMENTS: ClassVar[str] = "attachments"


@dataclass(frozen=True, slots=True)
class ReindexJob(Job):
    """Fills a new index next to the live one, and swaps them."""

    name = "reindex"
    queues = frozenset({QueueName.INDEXING})
    priority = MAILBOX_PRIORITY
    timeout_seconds = 3600.0


@dataclass(frozen=True, slots=True)
class RethreadJob(Job):
    """Applies the present rules of conversations to threads that an older release made."""

    name = "rethread"
    queues = frozenset({QueueName.INDEXING})
    priority = ATTACHMENTS_PRIORITY
    timeout_seconds = 3600.0


@dataclass(frozen=True, slots=True)
class ReconcileIndex(Job):
    """Compares the index with Postgres and repairs the differences."""

    name = "reconcile-index"
    queues = frozenset({QueueName.INDEXING})
    priority = MAILBOX_PRIORITY
    timeout_seconds = 3600.0


@dataclass(frozen=True, slots=True)
class AdvanceWorkflow(Job):
    """Runs the steps of a workflow's run that are ready; its steps have their own attempts and timeouts."""

    name = "advance-workflow"
    priority = MAILBOX_PRIORITY
    timeout_seconds = 48 * 3600.0  # longer than any of its steps, which may take half a day

    run_id: UUID


@dataclass(frozen=True, slots=True)
class EvaluateAlerts(Job):
    """Checks the alert rules, and sends the notices that are due."""

    name = "evaluate-alerts"
    attempts = 1


@dataclass(frozen=True, slots=True)
class ApplyRetention(Job):
    """Brings holds up to date, and deletes what the retention policies say."""

    name = "apply-retention"
    queues = frozenset({QueueName.INDEXING})
    priority = MAILBOX_PRIORITY
    timeout_seconds = 3600.0


@dataclass(frozen=True, slots=True)
class CompactPacks(Job):
    """Drops deleted content from the packs, and merges small ones."""

    name = "compact-packs"
    queues = frozenset({QueueName.INDEXING})
    priority = ATTACHMENTS_PRIORITY
    timeout_seconds = 4 * 3600.0


JOBS: dict[str, type[Job]] = {
    kind.name: kind
    for kind in (
        Ping,
        ScheduleContinuousSync,
        ContinuousSync,
        InitialImport,
        ProcessMailbox,
        SyncCycleFinished,
        IndexEmailBatch,
        ReindexJob,
        RethreadJob,
        ReconcileIndex,
        ApplyRetention,
        CompactPacks,
        AdvanceWorkflow,
        EvaluateAlerts,
    )
}


@dataclass(frozen=True, slots=True)
class JobEnvelope:
    """A job in transit: its id, what it belongs to, what caused it, and when it was sent."""

    id: str
    job: Job
    correlation_id: str
    causation_id: str | None
    at: datetime
    priority: int | None = None
    """None for the default of its kind."""
    trace: str | None = None
    """The W3C traceparent of what announced it, if traces are written."""

    @classmethod
    def of(cls, job: Job, job_id: str, correlation_id: str | None = None, causation_id: str | None = None) -> JobEnvelope:
        return cls(job_id, job, correlation_id or job_id, causation_id, datetime.now(UTC))

    def encode(self) -> dict[str, Any]:
        return {
            "v": ENVELOPE_VERSION,
            "id": self.id,
            "correlation_id": self.correlation_id,
            "causation_id": self.causation_id,
            "at": self.at.isoformat(),
            "data": self.job.data(),
            **({"trace": self.trace} if self.trace else {}),
        }

    @classmethod
    def decode(cls, name: str, encoded: Any) -> JobEnvelope:
        kind = JOBS.get(name)
        if kind is None:
            raise UnknownJob(f"there is no job named {name!r}")
        try:
            version, data = encoded["v"], encoded["data"]
            if version != ENVELOPE_VERSION:
                raise UnknownJob(f"{name}: unknown envelope version {version!r}; was it sent by a newer release?")
            at = datetime.fromisoformat(encoded["at"])
            ids = (encoded["correlation_id"], encoded["causation_id"])
            return cls(encoded["id"], kind.from_data(data), *ids, at, trace=encoded.get("trace"))
        except (KeyError, TypeError, ValueError) as error:
            raise BadJob(f"{name}: the envelope is incomplete ({error!r})") from error


def options(kind: type[Job], job_id: str | None, priority: int | None = None) -> dict[str, Any]:
    """BullMQ's options. Every job has a priority: a job without one would always go before all others."""
    chosen: dict[str, Any] = {
        "priority": priority or kind.priority,
        "attempts": kind.attempts,
        "backoff": {"type": "exponential", "delay": 1000},
        "removeOnComplete": {"age": 3600, "count": 1000},
        "removeOnFail": {"age": 7 * 86400, "count": 10_000},
    }
    return chosen if job_id is None else {**chosen, "jobId": job_id}
