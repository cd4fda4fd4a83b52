"""What all sync jobs of one process share."""

from __future__ import annotations

import threading
from dataclasses import dataclass, field

from sqlalchemy import Engine

from archiver.config import Settings
from archiver.db.counters import Counters
from archiver.secrets import Keyring
from archiver.sync.idle_guard import IdleGuard
from archiver.sync.ingest.store_batch import Ingest
from archiver.sync.quotas import Buckets
from connectors.base import BATCH_BYTES

_BUDGET_BYTES = 96 << 20


@dataclass(frozen=True, slots=True)
class SyncResources:
    settings: Settings
    engine: Engine
    ingest: Ingest
    keyring: Keyring
    buckets: Buckets = field(default_factory=Buckets)
    idle_guard: IdleGuard = field(default_factory=IdleGuard)
    counters: Counters = field(default_factory=Counters)
    stopping: threading.Event = field(default_factory=threading.Event)
    in_flight: threading.BoundedSemaphore = field(
        default_factory=lambda: threading.BoundedSemaphore(_BUDGET_BYTES // BATCH_BYTES)
    )
    """One permit per batch in memory, so that all mail in flight fits into one budget."""
