"""The jobs: what each is called, where it runs, what it carries, and how it is tried again.

A job carries ids and nothing else: Postgres is the truth, a job is a doorbell.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from enum import StrEnum
from typing import Any, ClassVar, Self

from archiver.errors import ArchiverError


class QueueName(StrEnum):
    INGESTION = "ingestion"
    INDEXING = "indexing"


class BadJob(ArchiverError):
    """A job whose data is not what its kind carries. Trying it again does not help."""


@dataclass(frozen=True, slots=True)
class Job:
    """What a job carries. A subclass is a kind of job; its class variables say how it is run."""

    name: ClassVar[str]
    queues: ClassVar[frozenset[QueueName]]
    priority: ClassVar[int] = 10
    timeout_seconds: ClassVar[float] = 300.0
    attempts: ClassVar[int] = 5

    def data(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_data(cls, data: Mapping[str, Any]) -> Self:
        expected = {field.name for field in fields(cls)}
        if set(data) != expected:
            raise BadJob(f"{cls.name}: expected the fields {sorted(expected)}, got {sorted(data)}")
        for field in fields(cls):
            if not isinstance(data[field.name], str):
                raise BadJob(f"{cls.name}: {field.name} is not a text")
        return cls(**data)


@dataclass(frozen=True, slots=True)
class Ping(Job):
    """Does nothing, and so proves that a job finds a worker and its result the way back."""

    name = "ping"
    queues = frozenset(QueueName)
    priority = 1
    timeout_seconds = 10.0
    attempts = 1

    token: str


JOBS: dict[str, type[Job]] = {kind.name: kind for kind in (Ping,)}


def options(kind: type[Job], job_id: str) -> dict[str, Any]:
    """BullMQ's options. Each job has a priority: one without would go before all others, for ever."""
    return {
        "jobId": job_id,
        "priority": kind.priority,
        "attempts": kind.attempts,
        "backoff": {"type": "exponential", "delay": 1000},
        "removeOnComplete": {"age": 3600, "count": 1000},
        "removeOnFail": {"age": 7 * 86400, "count": 10_000},
    }
