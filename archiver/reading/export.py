"""Original bytes out of the archive: one message, or many in a form that can be imported again."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime, tzinfo
from itertools import islice
from pathlib import Path
from tempfile import SpooledTemporaryFile
from typing import IO, TYPE_CHECKING, Any
from uuid import UUID

import orjson
from sqlalchemy import Engine

from archiver.access import audit
from archiver.access.principal import Principal, Right
from archiver.access.scope import EVERYTHING, MailScope, scope_of
from archiver.db.engine import autocommit
from archiver.db.poison_rows import UNREADABLE, PoisonRow, one_by_one
from archiver.db.sql import query, query_optional
from archiver.errors import NotFound, UsageError
from archiver.logs import get_logger
from archiver.reading import messages
from archiver.reading.export_formats import FORMATS, IN_MEMORY_BYTES, ExportedMessage, ExportFormat
from archiver.store.archive import Archive
from archiver.store.errors import StoreError

if TYPE_CHECKING:  # loads large libraries, and not every caller searches
    from archiver.search.service import MailSearch

REQUESTED = "export.requested"
"""The audit action of every export, whether it is written at once or in the background."""
_PAGE = 1_000
_COLUMNS = "m.id, m.sha256, m.sort_at, m.sender, m.subject, m.size_bytes"

log = get_logger("export")

ExportRow = ExportedMessage | PoisonRow


@dataclass(slots=True)
class Exported:
    messages: int = 0
    bytes: int = 0
    failed: list[dict[str, str]] = field(default_factory=list)
    """What could not be read, and why; everything else is in the export."""


def raw_message(engine: Engine, archive: Archive, message_id: UUID) -> Iterator[bytes]:
    """The original bytes, piece by piece."""
    with engine.connect() as connection:
        sha256 = query_optional(connection, "SELECT sha256 FROM messages WHERE id = :id", bytes, id=message_id)
    if sha256 is None:
        raise NotFound(f"there is no message {message_id}")
    return archive.stream(sha256)


_MESSAGE = """
    SELECT id, encode(sha256, 'hex') AS sha256, internet_message_id AS message_id, sort_at AS date, sender, subject,
        size_bytes AS bytes, archived_at FROM messages WHERE id = :id"""
_COPIES = """
    SELECT b.address AS mailbox, c.folder, c.flags, c.labels, c.gone_at, c.provider_key ~ '^api:[0-9a-f]{64}$' AS handed_in
    FROM message_copies c JOIN mailboxes b ON b.id = c.mailbox_id
    WHERE c.message_id = :id AND c.deleted_at IS NULL ORDER BY b.address, c.folder"""
_MAILBOXES = "SELECT id FROM mailboxes WHERE lower(address) = lower(:address) ORDER BY id"


def message_summary(engine: Engine, message_id: UUID) -> dict[str, Any]:
    """What a message is, and where its copies are."""
    with engine.connect() as connection:
        found = query_optional(connection, _MESSAGE, MessageSummary, id=message_id)
        copies = query(connection, _COPIES, CopySummary, id=message_id)
        variants = messages.variants(connection, EVERYTHING, message_id)
    if found is None:
        raise NotFound(f"there is no message {message_id}")
    message = {"from" if name == "sender" else name: value for name, value in asdict(found).items()}
    return {**message, "copies": [asdict(copy) for copy in copies], "variants": [one.id for one in variants]}


@dataclass(frozen=True, slots=True)
class MessageSummary:
    """In the order in which it is shown."""

    id: UUID
    sha256: str
    message_id: str | None
    date: datetime
    sender: str | None
    subject: str | None
    bytes: int
    archived_at: datetime


@dataclass(frozen=True, slots=True)
class CopySummary:
    mailbox: str
    folder: str
    flags: list[str]
    labels: list[str]
    gone_at: datetime | None
    handed_in: bool


def find_mailbox(engine: Engine, given: str) -> UUID:
    """By its id, or by its address if only one source has it."""
    try:
        return UUID(given)
    except ValueError:
        pass
    with engine.connect() as connection:
        ids = query(connection, _MAILBOXES, UUID, address=given)
    if not ids:
        raise NotFound(f"there is no mailbox {given}")
    if len(ids) > 1:
        raise UsageError(f"{len(ids)} sources have a mailbox {given}: give its id, one of {', '.join(map(str, ids))}")
    return ids[0]


def export_as(
    principal: Principal,
    engine: Engine,
    archive: Archive,
    search: MailSearch,
    target: Path,
    kind: str,
    *,
    query: str | None = None,
    mailbox_id: UUID | None = None,
    wanted: Sequence[UUID] = (),
    zone: tzinfo = UTC,
    spend: Callable[[int], None] = lambda _: None,
) -> Exported:
    """Exports at once what the principal may read of a query, a mailbox, certain messages, or of everything. The audit log has
    the request before the first byte is written. Raises NotFound if one of the messages `wanted` is not among them."""
    principal.require(Right.EXPORT)
    with autocommit(engine) as connection:
        scope = scope_of(connection, principal)
        for message_id in wanted:
            messages.visible_hash(connection, scope, message_id)
    ids = iter(wanted) if wanted else None
    if query:
        ids = search.message_ids(query, scope, zone=zone)
    everything = not (query or mailbox_id or wanted)
    selection = {"query": query, "mailbox_id": mailbox_id, "messages": wanted, "everything": everything}
    audit.record_look(
        engine, principal, REQUESTED, "export", format=kind, **{name: value for name, value in selection.items() if value}
    )
    return export(engine, archive, target, kind, mailbox_id, ids, scope, spend)


def export(
    engine: Engine,
    archive: Archive,
    target: Path,
    kind: str,
    mailbox_id: UUID | None = None,
    ids: Iterator[UUID] | None = None,
    scope: MailScope = EVERYTHING,
    spend: Callable[[int], None] = lambda _: None,
) -> Exported:
    """Writes a draft beside `target` and renames it at the end: what has the name is whole. `kind`: see export_formats.

    The messages `ids` (consumed as they are needed), or those of a mailbox, or all; of them what the scope sees.
    `spend` is called with the size of each message before it is written, and may raise to stop.
    """
    draft = target.with_name(f".{target.name}.{os.getpid()}")
    manifest = draft.with_name(draft.name + ".manifest")
    rows = _messages(engine, scope.narrow_to(mailbox_id)) if ids is None else _messages_of(engine, ids, scope)
    out = FORMATS[kind](draft, target)
    try:
        with manifest.open("wb") as lines:
            done = _write_all(_spending(rows, spend), archive, out, lines, draft.parent)
        out.finish(manifest)
    finally:
        out.discard()
        manifest.unlink(missing_ok=True)
    return done


def _spending(rows: Iterator[ExportRow], spend: Callable[[int], None]) -> Iterator[ExportRow]:
    for row in rows:
        if not isinstance(row, PoisonRow):
            spend(row.size_bytes)
        yield row


def _messages(engine: Engine, scope: MailScope) -> Iterator[ExportRow]:
    statement = f"SELECT {_COLUMNS} FROM messages m WHERE m.id > :after AND {scope.messages('m')} ORDER BY m.id LIMIT :limit"  # noqa: S608
    after = UUID(int=0)
    while True:
        keys, page = _page(engine, statement, {"after": after, "limit": _PAGE, **scope.values()})
        yield from page
        if len(keys) < _PAGE:
            return
        after = keys[-1]


def _messages_of(engine: Engine, ids: Iterator[UUID], scope: MailScope) -> Iterator[ExportRow]:
    statement = f"SELECT {_COLUMNS} FROM messages m WHERE m.id = ANY(:ids) AND {scope.messages('m')}"  # noqa: S608
    while batch := list(islice(ids, _PAGE)):
        found = {row.id: row for row in _page(engine, statement, {"ids": batch, **scope.values()})[1]}
        yield from (found[message_id] for message_id in batch if message_id in found)


_ALONE = f"SELECT {_COLUMNS} FROM messages m WHERE m.id = :id"  # noqa: S608


def _page(engine: Engine, statement: str, values: dict[str, Any]) -> tuple[list[UUID], list[ExportRow]]:
    """The ids and the rows; a row that can't be read is replaced by a PoisonRow."""
    with engine.connect() as connection:
        try:
            page = query(connection, statement, ExportedMessage, **values)
            return [row.id for row in page], [*page]
        except UNREADABLE:
            keys = query(connection, f"SELECT id FROM ({statement}) AS found", UUID, **values)  # noqa: S608
        rows, poison = one_by_one([(key, 0) for key in keys], lambda key: query(connection, _ALONE, ExportedMessage, id=key))
        return keys, [*rows, *poison]


def _write_all(rows: Iterator[ExportRow], archive: Archive, out: ExportFormat, lines: IO[bytes], folder: Path) -> Exported:
    """A message that can't be read is named in the manifest and in the report, and the rest is exported."""
    done = Exported()
    for row in rows:
        if isinstance(row, PoisonRow):
            done.failed.append({"id": str(row.id), "error": row.reason})
            continue
        with SpooledTemporaryFile(IN_MEMORY_BYTES, dir=str(folder)) as message:
            try:
                _read(row, archive, message)
            except _Unwritable as error:
                done.failed.append(_failed(row, str(error)))
                continue
            name = out.add(row, message)
        lines.write(orjson.dumps(_entry(row, name)) + b"\n")
        done.messages += 1
        done.bytes += row.size_bytes
    for failed in done.failed:
        lines.write(orjson.dumps(failed) + b"\n")
    return done


class _Unwritable(Exception):
    pass


def _read(row: ExportedMessage, archive: Archive, message: IO[bytes]) -> None:
    """To its end, before its beginning is written: no format has a way back.

    Whatever goes wrong while it is read is this message's fault; a disk that can't hold it stops the export.
    """
    for piece in _stored_pieces(row, archive):
        message.write(piece)
    message.seek(0)


def _stored_pieces(row: ExportedMessage, archive: Archive) -> Iterator[bytes]:
    try:
        yield from archive.stream(row.sha256)
    except StoreError as error:
        raise _Unwritable(str(error)) from error
    except Exception as error:
        log.exception("message_not_exported", message=str(row.id))
        said = error.strerror if isinstance(error, OSError) else None
        raise _Unwritable(f"it can't be read: {said or type(error).__name__}") from error


def _failed(row: ExportedMessage, error: str) -> dict[str, str]:
    return {"id": str(row.id), "sha256": row.sha256.hex(), "error": error}


def _entry(row: ExportedMessage, name: str | None) -> dict[str, Any]:
    entry = {"id": row.id, "sha256": row.sha256.hex(), "bytes": row.size_bytes, "date": row.sort_at}
    return entry if name is None else {"file": name, **entry}
