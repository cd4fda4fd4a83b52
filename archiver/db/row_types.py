"""Rows as dataclasses: whether a dataclass fits the columns of a statement, and how its values are made."""

from __future__ import annotations

import types
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import MISSING, Field, dataclass, fields, is_dataclass
from datetime import date, datetime, timedelta
from decimal import Decimal
from enum import Enum
from functools import lru_cache
from itertools import starmap
from typing import Any, Union, cast, get_args, get_origin, get_type_hints
from uuid import UUID

from psycopg.postgres import types as postgres_types

Values = Sequence[Any]
Maker = Callable[[Iterable[Values]], list[Any]]
Convert = Callable[[Any], Any]

_PYTHON_TYPES: Mapping[str, type] = {
    "bool": bool,
    "bytea": bytes,
    "date": date,
    "float4": float,
    "float8": float,
    "int2": int,
    "int4": int,
    "int8": int,
    "interval": timedelta,
    "name": str,
    "numeric": Decimal,
    "oid": int,
    "text": str,
    "timestamptz": datetime,
    "uuid": UUID,
    "varchar": str,
}
"""What psycopg makes of a column. Other types, such as jsonb, are not checked."""


class RowMismatch(TypeError):
    """A statement does not return what its row class expects: an error of ours, found on first use."""


@dataclass(frozen=True, slots=True)
class Column:
    name: str
    type_code: int
    """The type's OID."""

    @property
    def python_type(self) -> type | None:
        """None if any type will do."""
        found = postgres_types.get(self.type_code)
        if found is None:
            return None
        return list if found.array_oid == self.type_code else _PYTHON_TYPES.get(found.name)


_makers: dict[tuple[str, type], Maker] = {}
_MOST_MAKERS = 4096


def fit(statement: str, row: type, columns: Callable[[], Sequence[Column]]) -> Maker:
    """Makes rows of the statement's values. `columns` is called only the first time, for the check."""
    make = _makers.get((statement, row))
    if make is None:
        if len(_makers) >= _MOST_MAKERS:  # statements that are put together at run time
            _makers.clear()
        make = _makers[statement, row] = _check(statement, row, columns())
    return make


def _check(statement: str, row: type, columns: Sequence[Column]) -> Maker:
    try:
        optional = _fields(row)
        return _value_maker(row, columns) if optional is None else _record_maker(row, optional, columns)
    except RowMismatch as error:
        raise RowMismatch(f"{error}\n{statement}") from None


def _value_maker(row: type, columns: Sequence[Column]) -> Maker:
    if len(columns) != 1:
        raise RowMismatch(f"{_name(row)} is one value, and the statement returns {_listed(c.name for c in columns)}")
    convert = _conversion(_name(row), row, columns[0])
    if convert is None:
        return lambda found: [value for (value,) in found]
    return lambda found: [None if value is None else convert(value) for (value,) in found]


def _fields(row: type) -> dict[str, bool] | None:
    """Whether each field of a dataclass or named tuple has a default; None for the type of a single value."""
    if is_dataclass(row):
        return {one.name: _has_default(one) for one in fields(row) if one.init}
    if issubclass(row, tuple) and hasattr(row, "_field_defaults"):
        return {name: name in row._field_defaults for name in row._fields}  # type: ignore[attr-defined]
    return None


def _has_default(one: Field[Any]) -> bool:
    return one.default is not MISSING or one.default_factory is not MISSING


def _record_maker(row: type, optional: Mapping[str, bool], columns: Sequence[Column]) -> Maker:
    names = [column.name for column in columns]
    required = {name for name, has_default in optional.items() if not has_default}
    if len(set(names)) < len(names) or not required <= set(names) <= set(optional):
        raise RowMismatch(f"{_name(row)} has the fields {_listed(optional)}; the statement returns {_listed(names)}")
    hints = _hints(row)
    conversions = [_conversion(f"{_name(row)}.{column.name}", hints[column.name], column) for column in columns]
    if names == list(optional)[: len(names)] and not any(conversions):
        return lambda found: list(starmap(row, found))
    steps = list(zip(names, conversions, strict=True))
    return lambda found: [row(**dict(starmap(_converted, zip(steps, one, strict=True)))) for one in found]


def _converted(step: tuple[str, Convert | None], value: Any) -> tuple[str, Any]:
    name, convert = step
    return name, value if value is None or convert is None else convert(value)


def _conversion(where: str, hint: Any, column: Column) -> Convert | None:
    """Values of an Enum and tuples are made of strings and lists; everything else comes as it is."""
    wanted, found = _plain(hint), column.python_type
    if not isinstance(wanted, type) or wanted in (object, Any) or found is None:
        return None
    if issubclass(wanted, Enum) and found is str:
        return cast(Convert, wanted)
    if wanted is tuple and found is list:
        return tuple
    if not issubclass(found, wanted) and not (wanted is Sequence and found is list):
        raise RowMismatch(f"{where} is {wanted.__name__}, and the statement's column {column.name} is {found.__name__}")
    return None


def _plain(hint: Any) -> Any:
    """The class behind `T | None` and `list[T]`; None for everything that can't be checked."""
    if isinstance(hint, types.UnionType) or get_origin(hint) is Union:
        options = [one for one in get_args(hint) if one is not types.NoneType]
        return _plain(options[0]) if len(options) == 1 else None
    return get_origin(hint) or hint


@lru_cache(maxsize=512)
def _hints(row: type) -> dict[str, Any]:
    return get_type_hints(row)


def _name(row: type) -> str:
    return f"{row.__module__}.{row.__qualname__}"


def _listed(names: Iterable[str]) -> str:
    return ", ".join(names)
