"""Every statement that is read as typed rows is described by PostgreSQL and compared with its row class."""

from __future__ import annotations

import ast
import importlib
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import psycopg
import pytest
from sqlalchemy import Engine

from archiver.db.row_types import Column, fit

ROOT = Path(__file__).parents[2]
PLACES = {"query": 1, "query_one": 1, "query_optional": 1, "ask": 0}
"""Where the statement is among the arguments; the row class follows it."""
_PARAMETER = re.compile(r"(?<![:\w]):([a-zA-Z_]\w*)")


class Use(NamedTuple):
    where: str
    statement: str
    row: type


class Unresolved(NamedTuple):
    where: str
    expression: str


def uses() -> Iterator[Use | Unresolved]:
    for path in sorted((ROOT / "archiver").rglob("*.py")):
        source = path.read_text()
        if "query" not in source and ".ask(" not in source:
            continue
        name = ".".join(path.relative_to(ROOT).with_suffix("").parts)
        if name.startswith(("archiver.db.", "archiver.search_server.")):
            continue
        names = vars(importlib.import_module(name))
        for node in ast.walk(ast.parse(source)):
            place = PLACES.get(_called(node)) if isinstance(node, ast.Call) else None
            if place is not None and isinstance(node, ast.Call) and len(node.args) > place + 1:
                yield from _resolve(f"{name}:{node.lineno}", names, node.args[place], node.args[place + 1])


def _called(node: ast.Call) -> str:
    return node.func.id if isinstance(node.func, ast.Name) else node.func.attr if isinstance(node.func, ast.Attribute) else ""


def _resolve(where: str, names: dict[str, Any], statement: ast.expr, row: ast.expr) -> Iterator[Use | Unresolved]:
    try:
        found, kind = (eval(compile(ast.Expression(node), where, "eval"), names) for node in (statement, row))
    except NameError:
        yield Unresolved(where, ast.unparse(statement))
        return
    if isinstance(found, str) and isinstance(kind, type):
        yield Use(where, found, kind)


ALL = list(uses())


def columns(raw: psycopg.Connection[Any], statement: str) -> list[Column]:
    """As PostgreSQL describes them, without running the statement."""
    names = list(dict.fromkeys(_PARAMETER.findall(statement)))
    attempts = (_PARAMETER.sub(lambda found: f"${names.index(found[1]) + 1}", statement), _PARAMETER.sub("NULL", statement))
    error = b""
    for attempt in attempts:
        result = raw.pgconn.prepare(b"", attempt.encode())
        if result.status == psycopg.pq.ExecStatus.COMMAND_OK:
            described = raw.pgconn.describe_prepared(b"")
            return [Column((described.fname(at) or b"").decode(), described.ftype(at)) for at in range(described.nfields)]
        error = result.error_message
    raise AssertionError(f"{error.decode()}\n{statement}")


def test_every_statement_fits_its_rows(engine: Engine) -> None:
    found = [use for use in ALL if isinstance(use, Use)]
    wrong = []
    with engine.connect() as connection:
        raw = connection.connection.driver_connection
        assert isinstance(raw, psycopg.Connection)
        raw.autocommit = True
        for use in found:
            try:
                described = columns(raw, use.statement)
                fit(use.statement, use.row, lambda described=described: described)  # type: ignore[misc]
            except (AssertionError, TypeError) as error:
                wrong.append(f"{use.where}: {error}")
        raw.autocommit = False
    assert not wrong, "\n\n".join(wrong)
    assert len(found) >= 40


def test_statements_that_are_put_together_at_run_time_are_few() -> None:
    """They are checked when they first run."""
    unresolved = [use for use in ALL if isinstance(use, Unresolved)]
    assert len(unresolved) * 4 < len(ALL), unresolved


def test_a_statement_that_does_not_fit_is_found(engine: Engine) -> None:
    with engine.connect() as connection:
        raw = connection.connection.driver_connection
        assert isinstance(raw, psycopg.Connection)
        with pytest.raises(TypeError, match=r"int, and the statement's column id is UUID"):
            fit("misfit", int, lambda: columns(raw, "SELECT id FROM messages WHERE id = :id"))
