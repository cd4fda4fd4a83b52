"""Who did what: written in the transaction of the deed, chained by the database, never changed.

Call `record` last in a transaction: from it to the commit, the next one who records waits.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

from sqlalchemy import Connection, Engine, text

from archiver.db import autocommit, json_text
from archiver.services.principal import Principal

_MAX_CHARS = 2000
_PAGE = 2000

_INSERT = """
    INSERT INTO audit_log (actor, actor_id, action, object_kind, object_id, detail, client_address, request_id)
    SELECT :actor, CAST(:actor_id AS uuid), :action, :object_kind, :object_id, CAST(:detail AS jsonb), :client_address,
        :request_id"""
_DEED = text(_INSERT)
_LOOK = text(f"{_INSERT} FROM set_config('synchronous_commit', 'off', true)")
# the smallest commit that waits for the disk: the log of the database is flushed up to it, and so is what came before
_FLUSH = text("SELECT pg_logical_emit_message(true, 'archiver', '')")

# the same text as in the table's trigger, so that anybody can check the chain with SHA-256 alone
_HASHED = """jsonb_build_array(id, floor(extract(epoch FROM at) * 1000000)::bigint, actor, actor_id, action, object_kind,
    object_id, detail, client_address, request_id)::text"""
_CHAIN = text(
    f"SELECT id, previous_hash, hash, {_HASHED} AS hashed FROM audit_log WHERE id > :after ORDER BY id LIMIT :page"  # noqa: S608
)

_COLUMNS = """SELECT id, at, actor, actor_id, action, object_kind, object_id, detail, client_address, request_id,
    encode(hash, 'hex') AS hash FROM audit_log"""
_FILTERS = {
    "before": "id < :before",
    "actor": "lower(actor) = lower(:actor)",
    "action": "(action = :action OR starts_with(action, :action || '.'))",
    "object_kind": "object_kind = :object_kind",
    "object_id": "object_id = :object_id",
    "since": "at >= :since",
    "until": "at < :until",
}


@dataclass(frozen=True, slots=True)
class Entry:
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
class Verified:
    entries: int
    head: str
    """Number and hash of the last entry. Kept elsewhere, it proves later that the end was not cut off."""
    broken: tuple[str, ...]
    anchors: int = 0
    """Anchors in the packs (archiver.services.audit_anchors)."""
    anchored_entries: int = 0
    """Entries that an anchor covers; those after it are less than a minute old, or were written while no worker ran."""
    accepted: tuple[str, ...] = ()
    """Anchors that do not fit, and why somebody with the keys has said that they need not."""


def record(
    connection: Connection,
    who: Principal,
    action: str,
    object_kind: str | None = None,
    object_id: object = None,
    **detail: object,
) -> None:
    connection.execute(_DEED, _values(who, action, object_kind, object_id, detail))


def record_look(
    engine: Engine, who: Principal, action: str, object_kind: str, object_id: object = None, **detail: object
) -> None:
    """Something was only looked at. On disk before it is shown; the wait for the disk is not under the lock of the chain, so
    that many who look at once wait together, and not one after the other."""
    with autocommit(engine) as connection:
        connection.execute(_LOOK, _values(who, action, object_kind, object_id, detail))
        flush(connection)


def flush(connection: Connection) -> None:
    """Returns when all that was committed before is on disk. On a connection that commits by itself."""
    connection.execute(_FLUSH)


def _values(
    who: Principal, action: str, object_kind: str | None, object_id: object, detail: dict[str, object]
) -> dict[str, object]:
    return {
        "actor": who.name[:_MAX_CHARS],
        "actor_id": who.user_id,
        "action": action,
        "object_kind": object_kind,
        "object_id": None if object_id is None else str(object_id)[:_MAX_CHARS],
        "detail": json_text(_shortened({**detail, **({"key": who.key_id} if who.key_id else {})}), default=str),
        "client_address": who.client_address,
        "request_id": who.request_id,
    }


def listed(connection: Connection, *, most: int = 100, **filters: Any) -> list[Entry]:
    """Newest first; `before` continues below an entry's number."""
    given = {name: value for name, value in filters.items() if value is not None}
    conditions = " AND ".join(_FILTERS[name] for name in given) or "true"
    statement = text(f"{_COLUMNS} WHERE {conditions} ORDER BY id DESC LIMIT :most")
    return [Entry(*row) for row in connection.execute(statement, {**given, "most": most})]


def exported(engine: Engine, **filters: Any) -> Iterator[Entry]:
    """All of them, newest first, a page at a time."""
    before = filters.pop("before", None)
    while True:
        with engine.connect() as connection:
            page = listed(connection, most=_PAGE, before=before, **filters)
        yield from page
        if len(page) < _PAGE:
            return
        before = page[-1].id


def verify(
    engine: Engine, head: str | None = None, seen: Callable[[int, bytes], None] = lambda number, digest: None
) -> Verified:
    """Hashes every entry again. `head`, as an earlier `verify` gave it, must still be in the chain. `seen` gets each entry's
    number and hash."""
    wanted_id, _, wanted_hash = (head or "").partition(":")
    number, last, broken, met = 0, b"", list[str](), head is None
    while True:
        with engine.connect() as connection:
            page = connection.execute(_CHAIN, {"after": number, "page": _PAGE}).all()
        for row in page:
            if row.id != number + 1:
                broken.append(f"{number + 1} to {row.id - 1} are missing")
            elif bytes(row.previous_hash) != last:
                broken.append(f"{row.id} does not follow the one before it")
            if hashlib.sha256(bytes(row.previous_hash) + row.hashed.encode()).digest() != bytes(row.hash):
                broken.append(f"{row.id} was changed")
            met = met or (str(row.id) == wanted_id and bytes(row.hash).hex() == wanted_hash)
            number, last = row.id, bytes(row.hash)
            seen(number, last)
        if len(page) < _PAGE:
            break
    if not met:
        broken.append(f"{head} is not in the chain any more: its end was cut off, or it was written anew")
    return Verified(number, f"{number}:{last.hex()}", tuple(broken))


def _shortened(value: object) -> object:
    """What an entry may hold at most."""
    if isinstance(value, str):
        return value[:_MAX_CHARS]
    if isinstance(value, dict):
        return {str(name)[:_MAX_CHARS]: _shortened(item) for name, item in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [_shortened(item) for item in list(value)[:100]]
    return value
