"""What all tables share: constraint names, column types, defaults."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime
from enum import StrEnum
from typing import Annotated, Any
from uuid import UUID

from sqlalchemy import BigInteger, CheckConstraint, DateTime, LargeBinary, MetaData, Text, func, text
from sqlalchemy.dialects.postgresql import ARRAY, JSONB
from sqlalchemy.dialects.postgresql import UUID as PG_UUID
from sqlalchemy.orm import DeclarativeBase, mapped_column

from archiver.date_range import END, FIRST
from archiver.db.ids import uuid7

Json = Any  # what `json.loads` returns; the shapes are documented at the columns


class Base(DeclarativeBase):
    metadata = MetaData(
        naming_convention={
            "ix": "ix_%(table_name)s_%(column_0_N_name)s",
            "uq": "uq_%(table_name)s_%(column_0_N_name)s",
            "ck": "ck_%(table_name)s_%(constraint_name)s",
            "fk": "fk_%(table_name)s_%(column_0_N_name)s",
            "pk": "pk_%(table_name)s",
        }
    )
    type_annotation_map = {  # noqa: RUF012  (SQLAlchemy's own protocol)
        str: Text,
        int: BigInteger,
        bytes: LargeBinary,
        datetime: DateTime(timezone=True),
        UUID: PG_UUID(as_uuid=True),
        dict[str, Json]: JSONB,
        list[Json]: JSONB,
        list[str]: ARRAY(Text),
    }


Id = Annotated[UUID, mapped_column(primary_key=True, default=uuid7)]
CreatedAt = Annotated[datetime, mapped_column(server_default=func.now())]
Count = Annotated[int, mapped_column(server_default=text("0"))]
JsonObject = Annotated[dict[str, Json], mapped_column(server_default=text("'{}'::jsonb"))]
JsonList = Annotated[list[Json], mapped_column(server_default=text("'[]'::jsonb"))]
Texts = Annotated[list[str], mapped_column(server_default=text("'{}'::text[]"))]


def one_of(column: str, states: type[StrEnum]) -> CheckConstraint:
    return CheckConstraint(f"{column} IN ({_quote(states)})", name=column)


def sha256_length(column: str) -> CheckConstraint:
    return CheckConstraint(f"octet_length({column}) = 32", name=f"{column}_length")


def date_in_range(column: str) -> CheckConstraint:
    """Limits a column to what Python can represent in every time zone (archiver.date_range)."""
    return CheckConstraint(in_range(column), name=f"{column}_range")


def in_range(column: str) -> str:
    return f"{column} >= '{FIRST:%Y-%m-%d} 00:00:00+00' AND {column} < '{END:%Y-%m-%d} 00:00:00+00'"


def _quote(states: Iterable[str]) -> str:
    return ", ".join(f"'{state}'" for state in states)
