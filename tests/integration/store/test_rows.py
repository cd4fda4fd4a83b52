"""Every statement that is read as typed rows is described by PostgreSQL and compared with its row class."""

from __future__ import annotations

import ast
import hashlib
import importlib
import re
import sys
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple

import psycopg
import pytest
from sqlalchemy import Engine

from archiver.access import audit, grants
from archiver.access.principal import LOCAL_OPERATOR
from archiver.access.scope import EVERYTHING, MailScope
from archiver.cleanups import statements as cleanups
from archiver.db import sql
from archiver.db.ids import message_uuid, uuid7
from archiver.db.row_types import Column, fit
from archiver.errors import NotFound
from archiver.exports import statements as export_statements
from archiver.indexing import jobs as index_jobs
from archiver.indexing import rereading, splitting
from archiver.maintenance import reseal, snapshot
from archiver.marks import changes, notes, tags
from archiver.reading import attached_files, browsing, messages, statistics
from archiver.reading.messages import PageCursor
from archiver.restores import statements as restores
from archiver.retention import labels
from archiver.retention.delete import delete_mailbox_mail
from archiver.search import conversations, news, suggestions
from archiver.search.names import DatabaseNames
from archiver.search.searcher import IndexSearcher
from archiver.search.service import MailSearch
from archiver.sources import dead_letters, imports
from archiver.store.journal import BEFORE_STAMPS, Config
from archiver.sync import ledger
from archiver.sync.ingest.known_keys import known_keys
from connectors.base import Batch, RawMessage
from tests.integration.store.conftest import MAILBOX, SECOND, World
from tests.support.store_world import mail

ROOT = Path(__file__).parents[3]
QUERIES = ("query", "query_one", "query_optional")
PLACES = {f"{module}{name}": 1 for module in ("", "sql.") for name in QUERIES}
PLACES |= dict.fromkeys(("pipeline.ask", "self.ask", "self.rows.ask"), 0)
"""Where the statement is among the arguments; the row class follows it."""
ELSEWHERE = ("archiver.db.", "archiver.search_server.", "archiver.extract.", "archiver.parsing.")
"""Where these words mean something else, or the functions themselves are."""
_PARAMETER = re.compile(r"(?<![:\w]):([a-zA-Z_]\w*)")


class Use(NamedTuple):
    where: str
    statement: str
    row: type


class PutTogether(NamedTuple):
    """A statement that is put together at run time."""

    module: str
    function: str


def uses() -> Iterator[Use | PutTogether]:
    for path in sorted((ROOT / "archiver").rglob("*.py")):
        source = path.read_text()
        name = ".".join(path.relative_to(ROOT).with_suffix("").parts)
        if ("query" not in source and ".ask(" not in source) or name.startswith(ELSEWHERE):
            continue
        names = vars(importlib.import_module(name))
        for function in ast.walk(ast.parse(source)):
            if isinstance(function, ast.FunctionDef):
                for node in ast.walk(function):
                    yield from _use(name, function.name, names, node)


def _use(module: str, function: str, names: dict[str, Any], node: ast.AST) -> Iterator[Use | PutTogether]:
    if not isinstance(node, ast.Call):
        return
    place = PLACES.get(ast.unparse(node.func))
    if place is None or len(node.args) < place + 2:
        return
    code = [compile(ast.Expression(one), module, "eval") for one in node.args[place : place + 2]]
    try:
        statement, row = (eval(one, names) for one in code)
    except NameError:
        yield PutTogether(module, function)
        return
    yield Use(f"{module}:{node.lineno}", statement, row)


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
    assert len(found) > 200


def test_every_statement_that_is_put_together_at_run_time_fits(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """They are checked when they first run, so each of them runs here."""
    seen: set[PutTogether] = set()

    def noting(statement: str, row: type, columns: Any) -> Any:
        frame = sys._getframe(1)
        while frame.f_back is not None and frame.f_globals["__name__"] == sql.__name__:
            frame = frame.f_back
        function = frame.f_code.co_qualname.partition(".<locals>")[0].rpartition(".")[2]
        seen.add(PutTogether(frame.f_globals["__name__"], function))
        return fit(statement, row, columns)

    monkeypatch.setattr(sql, "fit", noting)
    world.open().store_batch(world.origin(), Batch((RawMessage("k1", mail(1), folder="INBOX"),)))
    for scope in (EVERYTHING, MailScope(frozenset({MAILBOX}))):
        _read_all(world, scope)
        _browse(world, scope)
        _mark(world, scope)
    _maintain(world)
    missing = {use for use in ALL if isinstance(use, PutTogether)} - seen
    assert not missing, "\n".join(f"{use.module}.{use.function}" for use in sorted(missing))


def _read_all(world: World, scope: MailScope) -> None:
    message_id = message_uuid(hashlib.sha256(mail(1)).digest())
    with world.engine.connect() as connection:
        (row,) = messages.listed(connection, scope, folder="INBOX")
        assert messages.listed(connection, scope, below=PageCursor(row.date, row.id)) == []
        assert messages.detail(connection, scope, message_id).message == row
        assert messages.variants(connection, scope, message_id) == []
        assert len(messages.copies(connection, scope, message_id)) == 1
        assert [one.id for one in messages.thread(connection, scope, message_id)[0]] == [message_id]
        assert [one.id for one in messages.around(connection, scope, row).messages] == [message_id]
        assert MAILBOX in {box.id for box in messages.mailboxes(connection, scope)}
        assert messages.visible_hash(connection, scope, message_id)[1] == len(mail(1))
        assert not messages.is_read(connection, scope, message_id)
        assert statistics.figures(connection, scope).messages == 1
        assert conversations._conversations(connection, scope, [message_id]) == {}
        assert conversations.summaries(connection, scope, [(message_id, message_id)]) == {}
        assert splitting._find(connection, LOCAL_OPERATOR, scope, message_id).id == message_id
        assert restores.pending(connection, message_id, MAILBOX, scope, 0, 1) == []
        assert restores.report(connection, message_id, scope, None, 0, 1) == []
        assert cleanups.entries(connection, message_id, scope, None, 0, 1) == []
        for kind in suggestions._STATEMENTS:
            suggestions._beginning(connection, scope, kind, "x", 1)
    with world.engine.connect() as connection:
        assert export_statements.load_part(connection, message_id, scope, 0, 1) == ([], [])
    names, search = DatabaseNames(world.engine), MailSearch(world.engine, IndexSearcher(lambda: None))  # type: ignore[arg-type,return-value]
    assert names.addresses("nobody", scope.mailboxes, 1) == names.folders("none", scope.mailboxes, 1) == []
    assert names.labels("none", scope.mailboxes, 1) == []
    assert search.not_searchable(scope).states == {"pending": 1}
    assert list(search._visible(iter([str(message_id)]), scope)) == [message_id]
    for grouped in (False, True):
        assert [one.id for one in search._load([str(message_id)], scope, grouped=grouped)[0]] == [message_id]


def _browse(world: World, scope: MailScope) -> None:
    message_id = message_uuid(hashlib.sha256(mail(1)).digest())
    long_ago = datetime(2000, 1, 1, tzinfo=UTC)
    with world.engine.connect() as connection:
        assert MAILBOX in {box.id for box in browsing.list_mailboxes(connection, scope)}
        assert browsing.load_mailbox(connection, scope, MAILBOX).id == MAILBOX
        for expected in (1, 1_000_000):
            assert [one.id for one in browsing.leaf_through(connection, scope, "INBOX", expected).messages] == [message_id]
        assert attached_files.of_messages(connection, scope, [message_id], 1) == []
        assert attached_files.holders(connection, scope, b"none", message_id, 1) == []
        assert messages.visible_among(connection, scope, [message_id]) == {message_id}
        assert news.new_messages(connection, scope, long_ago) == [message_id]
        assert news.new_among(connection, scope, long_ago, [message_id]) == {message_id}


def _mark(world: World, scope: MailScope) -> None:
    message_id = message_uuid(hashlib.sha256(mail(1)).digest())
    request = labels.LabelRequest("none", [message_id])
    change = changes.MailChange(uuid7(), uuid7(), "tag", "x", uuid7(), 0, 0, 0, None, datetime.now(UTC), None, None)
    with world.engine.begin() as connection:
        assert tags.list_tags(connection, scope) == []
        notes.require_visible(connection, scope, message_id)
        assert labels.Labelling(world.engine, world.archive, LOCAL_OPERATOR, scope)._visible(connection, request)
        for action in changes.ChangeAction:
            if action is not changes.ChangeAction.DELETE:  # of no message: there is neither tag nor user
                assert changes._apply(connection, LOCAL_OPERATOR, replace(change, action=action), scope, []) == []
    assert changes.delete_portion(world.engine, world.archive, LOCAL_OPERATOR, change, scope) == 0


def _maintain(world: World) -> None:
    with world.engine.begin() as connection:
        assert audit.list_entries(connection, action="none", actor="nobody") == []
        for name in ("mailbox", "source"):
            with pytest.raises(NotFound):
                grants.find_target(connection, **{"mailbox": None, "pattern": None, "source": None, name: "none"})
        index_jobs.announce_orphaned(connection)
        assert not rereading.are_left(connection, with_ocr=True)
        assert dead_letters.listed(connection) == []
        assert imports.listed(connection, LOCAL_OPERATOR) == []
        assert known_keys(connection, MAILBOX, ["k1", "k2", "k␟"]) == {"k1"}
        assert ledger.differences(connection, MAILBOX, "INBOX", [], "#").gone == ["k1"]
        tables = {table: snapshot._read(connection, table) for table in snapshot._COLUMNS}
        snapshot.restore_config(connection, Config(datetime.now(UTC), tables, BEFORE_STAMPS, None))
    index_jobs.close(world.engine, index_jobs.BODY, index_jobs.Announcements([], []), is_unfinished=False)
    assert reseal.reseal(world.engine, world.keyring) == 0
    assert not reseal._is_unfinished(world.engine, world.keyring)
    assert delete_mailbox_mail(world.engine, world.archive, SECOND, "for a test").copies == 0


def test_a_statement_that_does_not_fit_is_found(engine: Engine) -> None:
    with engine.connect() as connection:
        raw = connection.connection.driver_connection
        assert isinstance(raw, psycopg.Connection)
        with pytest.raises(TypeError, match=r"int, and the statement's column id is UUID"):
            fit("misfit", int, lambda: columns(raw, "SELECT id FROM messages WHERE id = :id"))
