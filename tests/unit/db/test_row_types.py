"""Rows are compared with the columns of their statement, once."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Any, NamedTuple
from uuid import UUID, uuid4

import pytest

from archiver.db.row_types import Column, RowMismatch, fit
from archiver.db.sql import driver_form

UUID_OID, TEXT, INT8, NUMERIC, TEXTS, JSONB = 2950, 25, 20, 1700, 1009, 3802


class Colour(StrEnum):
    RED = "red"


@dataclass(frozen=True, slots=True)
class Painted:
    id: UUID
    colour: Colour | None
    tags: tuple[str, ...]
    size: int = 0


class Pair(NamedTuple):
    first: str
    second: Any


COLUMNS = [Column("id", UUID_OID), Column("colour", TEXT), Column("tags", TEXTS), Column("size", INT8)]


def made(statement: str, row: type, columns: list[Column], *values: tuple[Any, ...]) -> list[Any]:
    return fit(statement, row, lambda: columns)(values)


def test_values_become_what_the_fields_say() -> None:
    number = uuid4()
    found = made("one", Painted, COLUMNS, (number, "red", ["a", "b"], 3), (number, None, [], 0))
    assert found == [Painted(number, Colour.RED, ("a", "b"), 3), Painted(number, None, (), 0)]


def test_the_order_of_columns_does_not_matter_and_a_default_may_be_left_out() -> None:
    number = uuid4()
    reversed_columns = COLUMNS[2::-1]
    assert made("reversed", Painted, reversed_columns, (["a"], "red", number)) == [Painted(number, Colour.RED, ("a",))]


def test_named_tuples_and_single_values() -> None:
    assert made("pair", Pair, [Column("first", TEXT), Column("second", JSONB)], ("a", {"b": 1})) == [Pair("a", {"b": 1})]
    assert made("colour", Colour, [Column("?column?", TEXT)], ("red",), (None,)) == [Colour.RED, None]
    assert made("number", int, [Column("count", INT8)], (1,), (2,)) == [1, 2]


@pytest.mark.parametrize(
    ("row", "columns", "message"),
    [
        (Painted, [*COLUMNS, Column("more", TEXT)], "has the fields id, colour, tags, size; the statement returns .*, more"),
        (Painted, COLUMNS[1:], "has the fields id, .* returns colour, tags, size\nSELECT"),
        (Painted, [*COLUMNS, COLUMNS[0]], "returns id, colour, tags, size, id"),
        (Painted, [*COLUMNS[:3], Column("size", NUMERIC)], "Painted.size is int, and the statement's column size is Decimal"),
        (Painted, [Column("id", TEXT), *COLUMNS[1:]], "Painted.id is UUID, and the statement's column id is str"),
        (UUID, COLUMNS, "UUID is one value, and the statement returns id, colour, tags, size"),
        (UUID, [Column("name", TEXT)], "UUID is UUID, and the statement's column name is str"),
    ],
)
def test_a_mismatch_names_both_sides(row: type, columns: list[Column], message: str) -> None:
    with pytest.raises(RowMismatch, match=message):
        fit("SELECT mismatch", row, lambda: columns)


def test_the_check_is_done_once_per_statement() -> None:
    asked: list[int] = []

    def columns() -> list[Column]:
        asked.append(1)
        return [Column("id", UUID_OID)]

    for _ in range(3):
        fit("once", UUID, columns)
    assert asked == [1]


def test_a_parameter_is_a_name_after_a_colon() -> None:
    given = "SELECT x::text, CAST(:a AS int), :b::json FROM t WHERE y LIKE '%[%' AND z > '00:10' AND ':' = :c"
    assert driver_form(given) == (
        "SELECT x::text, CAST(%(a)s AS int), %(b)s::json FROM t WHERE y LIKE '%%[%%' AND z > '00:10' AND ':' = %(c)s"
    )
