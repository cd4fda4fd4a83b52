"""Mail in a real Postgres and a real search server, put there with the real document builder."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from uuid import UUID

import meilisearch
from meilisearch.index import Index
from sqlalchemy import Engine, insert

from archiver.db.tables import IngestionSourceTable, MailboxTable, MessageCopyTable, MessageLabelTable, ParticipantTable, uuid7
from archiver.db.tables import MessageTable as MessageRow
from archiver.extract.extraction import TextPage
from archiver.mail.message import Message, read_message
from archiver.search.document import INDEX_SETTINGS, FileText, IndexedCopy, Inputs, Participant, build_document
from archiver.search.searcher import IndexSearcher
from archiver.search.service import MailSearch
from archiver.store.content import MemoryContent
from archiver.sync.ingest.rows import MessageRows, describe
from tests.integration.search.search_process import finished


@dataclass(frozen=True, slots=True)
class Place:
    """A copy to be made."""

    mailbox: str
    folder: str = "INBOX"
    labels: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Kept:
    """A message as the test knows it: what a naive scan looks at."""

    id: UUID
    raw: bytes
    mail: Message
    rows: MessageRows
    places: tuple[Place, ...]
    files: tuple[FileText, ...] = ()

    @property
    def retention_labels(self) -> tuple[str, ...]:
        return (("personal",), ("keep-until", "personal"), (), ())[self.id.int % 4]

    @property
    def sort_at(self) -> datetime:
        found: datetime = self.rows.message["sort_at"]
        return found


@dataclass(slots=True)
class MailWorld:
    engine: Engine
    client: meilisearch.Client
    index: Index
    search: MailSearch
    mailboxes: dict[str, UUID] = field(default_factory=dict)
    sources: dict[str, UUID] = field(default_factory=dict)
    owners: dict[str, UUID] = field(default_factory=dict)
    kept: dict[UUID, Kept] = field(default_factory=dict)

    def add(
        self, mails: Iterable[tuple[bytes, Sequence[Place]]], files: dict[str, tuple[TextPage, ...]] | None = None
    ) -> list[UUID]:
        """Archives and indexes. `files`: the text of attachments, by name. Mail that is there already is left out."""
        new: dict[UUID, Kept] = {}
        for raw, places in mails:
            rows = describe(MemoryContent(raw), hashlib.sha256(raw).digest(), None)
            if rows.id in self.kept or rows.id in new:
                continue
            mail = read_message(raw)
            texts = tuple(
                FileText(one.name, one.content_type, one.sha256, (files or {})[one.name])
                for one in mail.attachments
                if one.name in (files or {})
            )
            new[rows.id] = Kept(rows.id, raw, mail, rows, tuple(places), texts)
        with self.engine.begin() as connection:
            for place in {place.mailbox: place for one in new.values() for place in one.places}.values():
                self.mailbox(place.mailbox)
            messages = [
                {
                    **one.rows.message,
                    "sha256": one.rows.sha256,
                    "canonical_sha256": bytes.fromhex(one.rows.message["canonical_sha256"]),
                    "reference_ids": list(one.rows.message["reference_ids"]),
                    "defects": list(one.rows.message["defects"]),
                    "thread_id": one.id,
                    "has_attachments": one.mail.has_attachments,
                    "search_state": "full",
                }
                for one in new.values()
            ]
            connection.execute(insert(MessageRow), messages)
            people = [
                {"message_id": row["m"], "position": row["p"], "role": row["r"], "address": row["a"], "name": row["n"]}
                for one in new.values()
                for row in one.rows.participants
            ]
            if people:
                connection.execute(insert(ParticipantTable), people)
            copies = [
                {
                    "id": uuid7(),
                    "message_id": one.id,
                    "mailbox_id": self.mailboxes[place.mailbox],
                    "provider_key": f"{one.id}/{number}",
                    "folder": place.folder,
                    "labels": list(place.labels),
                }
                for one in new.values()
                for number, place in enumerate(one.places)
            ]
            connection.execute(insert(MessageCopyTable), copies)
            labels = [
                {"message_id": one.id, "label": label, "set_by": "someone", "set_at": datetime.now(UTC)}
                for one in new.values()
                for label in one.retention_labels
            ]
            if labels:
                connection.execute(insert(MessageLabelTable), labels)
        self.kept.update(new)
        finished(self.client, self.index.add_documents([self.document(one) for one in new.values()]))
        return list(new)

    def mailbox(self, address: str, source: str = "") -> UUID:
        if address not in self.mailboxes:
            source = source or f"source of {address.partition('@')[2]}"
            with self.engine.begin() as connection:
                if source not in self.sources:
                    self.sources[source] = uuid7()
                    connection.execute(
                        insert(IngestionSourceTable), [{"id": self.sources[source], "kind": "imap", "name": source}]
                    )
                self.mailboxes[address] = uuid7()
                self.owners[address] = self.sources[source]
                row = {"id": self.mailboxes[address], "source_id": self.sources[source], "address": address}
                connection.execute(insert(MailboxTable), [row])
        return self.mailboxes[address]

    def document(self, one: Kept) -> dict[str, object]:
        row = one.rows.message
        inputs = Inputs(
            id=one.id,
            version=1,
            sha256=one.rows.sha256,
            sort_at=row["sort_at"],
            size_bytes=row["size_bytes"],
            message=one.mail,
            internet_message_id=row["internet_message_id"],
            thread_id=one.id,
            sender=row["sender"],
            subject=row["subject"],
            people=[Participant(person["r"], person["a"], person["n"]) for person in one.rows.participants],
            copies=[
                IndexedCopy(self.mailboxes[place.mailbox], self.owners[place.mailbox], place.folder, place.labels)
                for place in one.places
            ],
            files=one.files,
            retention_labels=one.retention_labels,
        )
        return build_document(inputs)


def make_world(engine: Engine, client: meilisearch.Client) -> MailWorld:
    """An empty one, with an index of its own."""
    uid = f"mail-{uuid7().hex}"
    finished(client, client.create_index(uid, {"primaryKey": "id"}))
    index = client.index(uid)
    finished(client, index.update_settings(INDEX_SETTINGS))
    config = client.config
    asker = IndexSearcher(lambda: meilisearch.Client(config.url, config.api_key), uid)
    return MailWorld(engine, client, index, MailSearch(engine, asker))


def mail(
    subject: str = "Hello",
    body: str = "Hello.",
    sender: str = "Alice Smith <alice@corp.com>",
    to: str = "Bob <bob@example.org>",
    at: datetime = datetime(2024, 5, 6, 12, tzinfo=UTC),
    more: str = "",
    files: Sequence[tuple[str, str]] = (),
) -> bytes:
    """A message; `files` are names and media types of attachments."""
    head = f"From: {sender}\r\nTo: {to}\r\nSubject: {subject}\r\nDate: {at:%a, %d %b %Y %H:%M:%S +0000}\r\n{more}"
    head += "MIME-Version: 1.0\r\n"
    text = f"Content-Type: text/plain; charset=utf-8\r\n\r\n{body}\r\n"
    if not files:
        return (head + text).encode()
    parts = "".join(
        f'--x\r\nContent-Type: {kind}\r\nContent-Disposition: attachment; filename="{name}"\r\n\r\n{name}\r\n'
        for name, kind in files
    )
    return (head + f"Content-Type: multipart/mixed; boundary=x\r\n\r\n--x\r\n{text}{parts}--x--\r\n").encode()


def in_mbox(raw: bytes) -> bytes:
    """The same mail as Thunderbird keeps it: a variant."""
    return b"X-Mozilla-Status: 0001\nX-Mozilla-Status2: 00000000\n" + raw.replace(b"\r\n", b"\n")
