"""Mail out again, as it came in: one message, or many as a zip of .eml files or one mbox, with a manifest of their hashes."""

from __future__ import annotations

import os
import re
import shutil
import zipfile
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from itertools import islice
from pathlib import Path
from tempfile import SpooledTemporaryFile
from typing import Any
from uuid import UUID

import orjson
from sqlalchemy import Engine, text

from archiver.errors import NotFound, UsageError
from archiver.logs import get_logger
from archiver.services import messages
from archiver.services.access import EVERYTHING, Scope
from archiver.services.poison_rows import UNREADABLE, PoisonRow, one_by_one
from archiver.store.archive import Archive
from archiver.store.errors import StoreError

_PAGE = 1_000
_IN_MEMORY_BYTES = 8 << 20
_PIECE_BYTES = 1 << 20
_FIRST_IN_ZIP = datetime(1980, 1, 1, tzinfo=UTC)
_LAST_IN_ZIP = datetime(2107, 12, 31, 23, 59, 58, tzinfo=UTC)
_COLUMNS = "m.id, m.sha256, m.sort_at, m.sender, m.subject, m.size_bytes"
_FROM_LINE = re.compile(rb"^(>*From )", re.MULTILINE)

log = get_logger("export")


@dataclass(slots=True)
class Exported:
    messages: int = 0
    bytes: int = 0
    failed: list[dict[str, str]] = field(default_factory=list)
    """What could not be read, and why; everything else is in the export."""


def raw_message(engine: Engine, archive: Archive, message_id: UUID) -> Iterator[bytes]:
    """The original bytes, piece by piece."""
    with engine.connect() as connection:
        row = connection.execute(text("SELECT sha256 FROM messages WHERE id = :id"), {"id": message_id}).one_or_none()
    if row is None:
        raise NotFound(f"there is no message {message_id}")
    return archive.stream(bytes(row.sha256))


_MESSAGE = text("""
    SELECT id, encode(sha256, 'hex') AS sha256, internet_message_id AS message_id, sort_at AS date, sender AS "from", subject,
        size_bytes AS bytes, archived_at FROM messages WHERE id = :id""")
_COPIES = text("""
    SELECT b.address AS mailbox, c.folder, c.flags, c.labels, c.gone_at, c.provider_key ~ '^api:[0-9a-f]{64}$' AS handed_in
    FROM message_copies c JOIN mailboxes b ON b.id = c.mailbox_id
    WHERE c.message_id = :id AND c.deleted_at IS NULL ORDER BY b.address, c.folder""")
_MAILBOXES = text("SELECT id FROM mailboxes WHERE lower(address) = lower(:address) ORDER BY id")


def message_summary(engine: Engine, message_id: UUID) -> dict[str, Any]:
    """What a message is and where it lies."""
    with engine.connect() as connection:
        row = connection.execute(_MESSAGE, {"id": message_id}).mappings().one_or_none()
        copies = connection.execute(_COPIES, {"id": message_id}).mappings().all()
        variants = messages.variants(connection, EVERYTHING, message_id)
    if row is None:
        raise NotFound(f"there is no message {message_id}")
    return {**row, "copies": [dict(copy) for copy in copies], "variants": [one.id for one in variants]}


def find_mailbox(engine: Engine, given: str) -> UUID:
    """By its id, or by its address if only one source has it."""
    try:
        return UUID(given)
    except ValueError:
        pass
    with engine.connect() as connection:
        ids = connection.execute(_MAILBOXES, {"address": given}).scalars().all()
    if not ids:
        raise NotFound(f"there is no mailbox {given}")
    if len(ids) > 1:
        raise UsageError(f"{len(ids)} sources have a mailbox {given}: give its id, one of {', '.join(map(str, ids))}")
    found: UUID = ids[0]
    return found


def export(
    engine: Engine,
    archive: Archive,
    target: Path,
    kind: str,
    mailbox_id: UUID | None = None,
    ids: Iterator[UUID] | None = None,
    scope: Scope = EVERYTHING,
    spend: Callable[[int], None] = lambda _: None,
) -> Exported:
    """Writes `target` beside itself first: what stands there under its name is whole. `kind` is zip or mbox.

    These messages (`ids`, which are asked for as they are needed), or those of a mailbox, or all; of them what the scope sees.
    `spend` is told the size of each message before it is written, and may raise to stop.
    """
    temporary = target.with_name(f".{target.name}.{os.getpid()}")
    try:
        write = _write_zip if kind == "zip" else _write_mbox
        rows = _messages(engine, scope.narrowed(mailbox_id)) if ids is None else _messages_of(engine, ids, scope)
        done = write(_spending(rows, spend), archive, temporary, target)
        temporary.replace(target)
    finally:
        with suppress(FileNotFoundError):
            temporary.unlink()
    return done


def _spending(rows: Iterator[Any], spend: Callable[[int], None]) -> Iterator[Any]:
    for row in rows:
        if not isinstance(row, PoisonRow):
            spend(row.size_bytes)
        yield row


def _messages(engine: Engine, scope: Scope) -> Iterator[Any]:
    statement = f"SELECT {_COLUMNS} FROM messages m WHERE m.id > :after AND {scope.messages('m')} ORDER BY m.id LIMIT :limit"  # noqa: S608
    after = UUID(int=0)
    while True:
        keys, page = _page(engine, statement, {"after": after, "limit": _PAGE, **scope.values()})
        yield from page
        if len(keys) < _PAGE:
            return
        after = keys[-1]


def _messages_of(engine: Engine, ids: Iterator[UUID], scope: Scope) -> Iterator[Any]:
    statement = f"SELECT {_COLUMNS} FROM messages m WHERE m.id = ANY(:ids) AND {scope.messages('m')}"  # noqa: S608
    while batch := list(islice(ids, _PAGE)):
        found = {row.id: row for row in _page(engine, statement, {"ids": batch, **scope.values()})[1]}
        yield from (found[message_id] for message_id in batch if message_id in found)


_ALONE = text(f"SELECT {_COLUMNS} FROM messages m WHERE m.id = :id")  # noqa: S608


def _page(engine: Engine, statement: str, values: dict[str, Any]) -> tuple[list[UUID], list[Any]]:
    """The ids and the rows; in place of a row that can't be read stands a PoisonRow."""
    with engine.connect() as connection:
        try:
            page: list[Any] = list(connection.execute(text(statement), values))
            return [row.id for row in page], page
        except UNREADABLE:
            keys = connection.execute(text(f"SELECT id FROM ({statement}) AS found"), values).scalars().all()  # noqa: S608
        rows, poison = one_by_one([(key, 0) for key in keys], lambda key: connection.execute(_ALONE, {"id": key}).all())
        return list(keys), [*rows, *poison]


def _write_zip(rows: Iterator[Any], archive: Archive, path: Path, target: Path) -> Exported:
    done = Exported()
    manifest = path.with_name(path.name + ".manifest")
    try:
        with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED, allowZip64=True) as out:
            with manifest.open("wb") as lines:

                def write(row: Any) -> None:
                    name = f"{row.sort_at:%Y/%m}/{row.id}.eml"
                    _copy_into_zip(out, name, archive, row)
                    lines.write(orjson.dumps(_entry(row, name)) + b"\n")

                for row in rows:
                    _write(row, done, write)
                for failed in done.failed:
                    lines.write(orjson.dumps(failed) + b"\n")
            out.write(manifest, "manifest.jsonl")
    finally:
        with suppress(FileNotFoundError):
            manifest.unlink()
    return done


def _write(row: Any, done: Exported, write: Callable[[Any], None]) -> None:
    """A message that can't be written is named in the manifest and in the report, and the rest is exported.

    What the disk says about the export itself is no fault of a message.
    """
    try:
        if isinstance(row, PoisonRow):
            raise _Unwritable(row.reason)
        write(row)
        done.messages += 1
        done.bytes += row.size_bytes
    except OSError:
        raise
    except (StoreError, _Unwritable) as error:
        done.failed.append(_failed(row, str(error)))
    except Exception as error:
        log.exception("message_not_exported", message=str(row.id))
        done.failed.append(_failed(row, f"it can't be written: {type(error).__name__}"))


class _Unwritable(Exception):
    pass


def _failed(row: Any, error: str) -> dict[str, str]:
    sha256 = getattr(row, "sha256", None)
    return {"id": str(row.id), **({"sha256": bytes(sha256).hex()} if sha256 is not None else {}), "error": error}


def _copy_into_zip(out: zipfile.ZipFile, name: str, archive: Archive, row: Any) -> None:
    """Read to its end before its beginning is written: a zip has no way back."""
    info = zipfile.ZipInfo(name, _zip_date(row.sort_at))
    info.compress_type = zipfile.ZIP_DEFLATED
    with SpooledTemporaryFile(_IN_MEMORY_BYTES, dir=str(Path(str(out.filename)).parent)) as whole:
        for piece in archive.stream(bytes(row.sha256)):
            whole.write(piece)
        whole.seek(0)
        with out.open(info, "w", force_zip64=row.size_bytes > (1 << 31) - 1) as file:
            shutil.copyfileobj(whole, file, _PIECE_BYTES)


def _zip_date(at: datetime) -> tuple[int, int, int, int, int, int]:
    """Zip knows the years from 1980 to 2107."""
    at = min(max(at, _FIRST_IN_ZIP), _LAST_IN_ZIP)
    return at.year, at.month, at.day, at.hour, at.minute, at.second


def _write_mbox(rows: Iterator[Any], archive: Archive, path: Path, target: Path) -> Exported:
    """mboxrd: lines that begin with `From `, quoted or not, get one more `>`, so that the bytes can be found again."""
    done = Exported()
    manifest = path.with_name(path.name + ".manifest")
    try:
        _write_mbox_and_manifest(rows, archive, path, manifest, done)
        manifest.replace(target.with_name(target.name + ".manifest.jsonl"))
    finally:
        manifest.unlink(missing_ok=True)
    return done


def _write_mbox_and_manifest(rows: Iterator[Any], archive: Archive, path: Path, manifest: Path, done: Exported) -> None:
    with path.open("wb") as out, manifest.open("wb") as lines:

        def write(row: Any) -> None:
            data = archive.read(bytes(row.sha256))
            sender = re.sub(r"\s", "", row.sender or "") or "MAILER-DAEMON"
            postmark = f"From {sender} {row.sort_at:%a %b %d %H:%M:%S %Y}\n".encode("ascii", "replace")
            entry = orjson.dumps(_entry(row, None)) + b"\n"
            out.write(postmark + _FROM_LINE.sub(rb">\1", data) + (b"\n" if data.endswith(b"\n") else b"\n\n"))
            lines.write(entry)

        for row in rows:
            _write(row, done, write)
        for failed in done.failed:
            lines.write(orjson.dumps(failed) + b"\n")


def _entry(row: Any, name: str | None) -> dict[str, Any]:
    entry = {"id": row.id, "sha256": bytes(row.sha256).hex(), "bytes": row.size_bytes, "date": row.sort_at}
    return entry if name is None else {"file": name, **entry}
