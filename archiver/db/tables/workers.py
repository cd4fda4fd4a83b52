"""The worker processes that run, and the pause that a migration asks them for."""

from __future__ import annotations

from datetime import datetime

from sqlalchemy import CheckConstraint, SmallInteger, func, text
from sqlalchemy.orm import Mapped, mapped_column

from archiver.db.tables.base import Base, Count, CreatedAt, Id


class WorkerProcessTable(Base):
    """A worker process. One that has not been seen for a minute is gone."""

    __tablename__ = "worker_processes"

    id: Mapped[Id]
    queue: Mapped[str]
    host: Mapped[str]
    pid: Mapped[int]
    is_paused: Mapped[bool] = mapped_column(server_default="false")
    """It has finished its jobs, and begins none until the pause is over."""
    started_at: Mapped[CreatedAt]
    seen_at: Mapped[datetime] = mapped_column(server_default=func.now())
    resident_bytes: Mapped[Count]
    cpu_seconds: Mapped[float] = mapped_column(server_default=text("0"))
    running_jobs: Mapped[Count]


class WorkerPauseTable(Base):
    """At most one row: no worker may work while it is there and has not expired."""

    __tablename__ = "worker_pause"

    id: Mapped[int] = mapped_column(SmallInteger, primary_key=True, server_default=text("1"))
    reason: Mapped[str]
    started_at: Mapped[CreatedAt]
    expires_at: Mapped[datetime]
    """Renewed by whoever asked for the pause, which ends with that process."""

    __table_args__ = (CheckConstraint("id = 1", name="one_row"),)
