"""Counters that all processes share."""

from __future__ import annotations

from sqlalchemy.orm import Mapped, mapped_column

from archiver.db.tables.base import Base


class MetricCounterTable(Base):
    """Only ever added to (archiver.db.counters)."""

    __tablename__ = "metric_counters"

    name: Mapped[str] = mapped_column(primary_key=True)
    labels: Mapped[str] = mapped_column(primary_key=True)
    value: Mapped[float]
