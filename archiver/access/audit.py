"""The audit log: written in the transaction of the action itself, chained by the database, never changed.

Call `record` last in a transaction: until the commit, every other caller of `record` waits for the lock of the chain.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

from sqlalchemy import Connection, Engine, text

from archiver.access.principal import Principal
from archiver.db.engine import autocommit
from archiver.db.sql import query
from archiver.db.values import json_text

_MAX_CHARS = 2000
_PAGE = 2000

_INSERT = """
    INSERT INTO audit_log (actor, actor_id, action, object_kind, object_id, detail, client_address, request_id)
    SELECT :actor, CAST(:actor_id AS uuid), :action, :object_kind, :object_id, CAST(:detail AS jsonb), :client_address,
        :request_id"""
_ACTION = text(_INSERT)
_VIEW = text(f"{_INSERT} FROM set_config('synchronous_commit', 'off', true)")
# The smallest commit that waits for the disk: it flushes the write-ahead log up to itself, and so everything before it.
_FLUSH = text("SELECT pg_logical_emit_message(true, 'archiver', '')")

# The same text as in the table's trigger, so that SHA-256 alone is enough to check the chain.
_HASHED = """jsonb_build_array(id, floor(extract(epoch FROM at) * 1000000)::bigint, actor, actor_id, action, object_kind,
    object_id, detail, client_address, request_id)::text"""
_CHAIN = f"SELECT id, previous_hash, hash, {_HASHED} AS hashed FROM audit_log WHERE id > :after ORDER BY id LIMIT :page"  # noqa: S608

_COLUMNS = """SELECT id, at, actor, actor_id, action, object_kind, object_id, detail, client_address, request_id,
    encode(hash, 'hex') AS hash FROM audit_log"""
_FILTERS = {
    "before": "id < :before",
    "actor": "lower(actor) = lower(:actor)",
    "action": "(action = ANY(:actions) OR starts_with(action, :action || '.'))",
    "object_kind": "object_kind = :object_kind",
    "object_id": "object_id = :object_id",
    "since": "at >= :since",
    "until": "at < :until",
}
# Entries are never rewritten, so an action that was renamed is found under its former names as well.
_FORMER_NAMES = {"search.done": ("search",), "export.requested": ("export", "export.written")}


@dataclass(frozen=True, slots=True)
class AuditEntry:
    id: int
    at: datetime
    actor: str
    actor_id: UUID | None
    action: str
    object_kind: str | None
    object_id: str | None
    detail: dict[str, Any]
    client_address: str | None
    request_id: str | None
    hash: str


@dataclass(frozen=True, slots=True)
class ChainLink:
    id: int
    previous_hash: bytes
    hash: bytes
    hashed: str


@dataclass(frozen=True, slots=True)
class Verified:
    entries: int
    head: str
    """Number and hash of the last entry. Stored elsewhere, it proves later that the log was not truncated."""
    broken: tuple[str, ...]
    anchors: int = 0
    """Anchors in the packs (archiver.evidence.anchors)."""
    anchored_entries: int = 0
    """Entries that an anchor covers; those after it are less than a minute old, or were written while no worker ran."""
    accepted: tuple[str, ...] = ()
    """Anchors that do not match, each with the reason why an administrator with the keys accepted that."""


def record(
    connection: Connection,
    principal: Principal,
    action: str,
    object_kind: str | None = None,
    object_id: object = None,
    **detail: object,
) -> None:
    connection.execute(_ACTION, _values(principal, action, object_kind, object_id, detail))


def record_look(
    engine: Engine, principal: Principal, action: str, object_kind: str, object_id: object = None, **detail: object
) -> None:
    """Records that something was viewed, on disk before it is shown.

    The wait for the disk is outside the lock of the chain, so that concurrent readers wait together, not one after the other.
    """
    with autocommit(engine) as connection:
        connection.execute(_VIEW, _values(principal, action, object_kind, object_id, detail))
        flush(connection)


def flush(connection: Connection) -> None:
    """Returns when everything committed before is on disk. Needs a connection in autocommit mode."""
    connection.execute(_FLUSH)


def _values(
    principal: Principal, action: str, object_kind: str | None, object_id: object, detail: dict[str, object]
) -> dict[str, object]:
    return {
        "actor": principal.name[:_MAX_CHARS],
        "actor_id": principal.user_id,
        "action": action,
        "object_kind": object_kind,
        "object_id": None if object_id is None else str(object_id)[:_MAX_CHARS],
        "detail": json_text(_shorten({**detail, **({"key": principal.key_id} if principal.key_id else {})}), default=str),
        "client_address": principal.client_address,
        "request_id": principal.request_id,
    }


def list_entries(connection: Connection, *, limit: int = 100, **filters: Any) -> list[AuditEntry]:
    """Newest first; `before` continues below an entry's number. `action` is an action, or the prefix of several."""
    values = {name: value for name, value in filters.items() if value is not None}
    conditions = " AND ".join(_FILTERS[name] for name in values) or "true"
    if "action" in values:
        values["actions"] = [values["action"], *_FORMER_NAMES.get(values["action"], ())]
    statement = f"{_COLUMNS} WHERE {conditions} ORDER BY id DESC LIMIT :limit"
    return query(connection, statement, AuditEntry, **values, limit=limit)


def export_entries(engine: Engine, **filters: Any) -> Iterator[AuditEntry]:
    """All entries, newest first, read a page at a time."""
    before = filters.pop("before", None)
    while True:
        with engine.connect() as connection:
            page = list_entries(connection, limit=_PAGE, before=before, **filters)
        yield from page
        if len(page) < _PAGE:
            return
        before = page[-1].id


def verify(
    engine: Engine, head: str | None = None, on_entry: Callable[[int, bytes], None] = lambda number, digest: None
) -> Verified:
    """Rehashes every entry. `head`, as returned by an earlier `verify`, must still be in the chain. `on_entry` receives the
    number and hash of each entry."""
    wanted_id, _, wanted_hash = (head or "").partition(":")
    number, last, broken, met = 0, b"", list[str](), head is None
    while True:
        with engine.connect() as connection:
            page = query(connection, _CHAIN, ChainLink, after=number, page=_PAGE)
        for row in page:
            # Numbers come from the trigger, without gaps: a missing one was deleted, by whoever can disable the trigger.
            if row.id != number + 1:
                broken.append(_missing(number + 1, row.id - 1))
            elif row.previous_hash != last:
                broken.append(f"entry {row.id} does not follow its predecessor")
            if hashlib.sha256(row.previous_hash + row.hashed.encode()).digest() != row.hash:
                broken.append(f"entry {row.id} was changed")
            met = met or (str(row.id) == wanted_id and row.hash.hex() == wanted_hash)
            number, last = row.id, row.hash
            on_entry(number, last)
        if len(page) < _PAGE:
            break
    if not met:
        broken.append(f"{head} is no longer in the chain: the log was truncated or rewritten")
    return Verified(number, f"{number}:{last.hex()}", tuple(broken))


def _missing(first: int, last: int) -> str:
    return f"entry {first} is missing" if first == last else f"entries {first} to {last} are missing"


def _shorten(value: object) -> object:
    """Limits the size of an entry."""
    if isinstance(value, str):
        return value[:_MAX_CHARS]
    if isinstance(value, dict):
        return {str(name)[:_MAX_CHARS]: _shorten(item) for name, item in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [_shorten(item) for item in list(value)[:100]]
    return value
