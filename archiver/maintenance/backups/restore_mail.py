"""Restores mail into an IMAP account, with its folders, flags and dates, skipping messages that are already there."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from functools import partial
from itertools import islice
from typing import Any
from urllib.parse import parse_qsl, unquote, urlsplit
from uuid import UUID

from sqlalchemy import Engine

from archiver.access import audit
from archiver.access.principal import LOCAL_OPERATOR
from archiver.db.sql import query
from archiver.errors import UsageError
from archiver.maintenance.rows import RestoredCopy
from archiver.sources.access import Outgoing, open_target
from archiver.store.archive import Archive

_PAGE = 500
_IDS = """
    SELECT m.id FROM messages m WHERE m.id > :after AND (CAST(:mailbox_id AS uuid) IS NULL OR EXISTS (
        SELECT 1 FROM message_copies c WHERE c.message_id = m.id AND c.mailbox_id = :mailbox_id AND c.deleted_at IS NULL))
    ORDER BY m.id LIMIT :limit"""

# The current folders of a message; if it is gone from its mailbox, the last ones.
_COPIES = """
    SELECT DISTINCT m.id, m.sha256, c.folder, c.flags, coalesce(c.received_at, m.sort_at) AS received_at
    FROM messages m JOIN message_copies c ON c.message_id = m.id
    WHERE m.id = ANY(:ids) AND c.deleted_at IS NULL AND (CAST(:mailbox_id AS uuid) IS NULL OR c.mailbox_id = :mailbox_id)
        AND (c.gone_at IS NULL OR NOT EXISTS (
            SELECT 1 FROM message_copies o WHERE o.message_id = m.id AND o.mailbox_id = c.mailbox_id
            AND o.gone_at IS NULL AND o.deleted_at IS NULL))
    ORDER BY c.folder, received_at, m.id"""


@dataclass(slots=True)
class Restored:
    appended: int = 0
    present: int = 0
    """Already in the account."""
    failed: list[dict[str, str]] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class RestoreTarget:
    """`imaps://user@host:port/folder?setting=value`: the settings of an imap source, and the parent folder of all mail."""

    settings: dict[str, Any]
    below: str
    host: str


def parse_target(url: str) -> RestoreTarget:
    parts = urlsplit(url)
    if parts.scheme not in ("imap", "imaps") or not parts.hostname or not parts.username:
        raise UsageError(f"--to {parts.scheme}://…: expected imaps://USER@HOST[:PORT][/FOLDER] (or imap://, with STARTTLS)")
    if parts.password is not None:
        raise UsageError("--to: passwords are not accepted as arguments; use --password-file, or enter it at the prompt")
    try:
        port = parts.port
    except ValueError:
        raise UsageError(f"--to {parts.hostname}: the port is not a number between 0 and 65535") from None
    settings: dict[str, Any] = {
        "host": parts.hostname,
        "user": unquote(parts.username),
        "tls": "implicit" if parts.scheme == "imaps" else "starttls",
        **dict(parse_qsl(parts.query)),
    }
    if port is not None:
        settings["port"] = port
    return RestoreTarget(settings, unquote(parts.path).strip("/"), parts.hostname)


def all_ids(engine: Engine, mailbox_id: UUID | None = None) -> Iterator[UUID]:
    """The ids of all messages, or of those in one mailbox."""
    after = UUID(int=0)
    while True:
        with engine.connect() as connection:
            values = {"after": after, "mailbox_id": mailbox_id, "limit": _PAGE}
            page = query(connection, _IDS, UUID, **values)
        yield from page
        if len(page) < _PAGE:
            return
        after = page[-1]


def restore_mail(
    engine: Engine,
    archive: Archive,
    ids: Iterable[UUID],
    target: RestoreTarget,
    password: str,
    mailbox_id: UUID | None = None,
    progress: Callable[[Restored], None] = lambda _: None,
) -> Restored:
    """Appends these messages to the account. Safe to interrupt and repeat: messages that are already there are skipped."""
    done = Restored()
    outgoing = _outgoing(engine, archive, ids, target, mailbox_id)
    with open_target("imap", target.settings, {"password": password}) as account:
        for report in account.deliver(outgoing):
            done.appended += report.appended
            done.present += report.present
            done.failed += [{"id": message_id, "error": reason} for message_id, reason in report.failed]
            progress(done)
    with engine.begin() as connection:
        to = f"{target.settings['user']} at {target.host}"
        audit.record(
            connection, LOCAL_OPERATOR, "mail.restored", "account", to, messages=done.appended, failed=len(done.failed)
        )
    return done


def _outgoing(
    engine: Engine, archive: Archive, ids: Iterable[UUID], target: RestoreTarget, mailbox_id: UUID | None
) -> Iterator[Outgoing]:
    remaining = iter(ids)
    while page := list(islice(remaining, _PAGE)):
        with engine.connect() as connection:
            rows = query(connection, _COPIES, RestoredCopy, ids=page, mailbox_id=mailbox_id)
        for row in rows:
            folder = "/".join(filter(None, (target.below, row.folder or "INBOX")))
            pieces = partial(archive.stream, row.sha256)
            yield Outgoing(str(row.id), folder, pieces, row.flags, row.received_at)
