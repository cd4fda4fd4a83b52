"""The tables. `Base.metadata` and the migrations describe the same schema; a test holds them together."""

from archiver.models.access import ApiKey, AuditEntry, Export, Grant, Session, SignInPause, Upload, User
from archiver.models.base import Base
from archiver.models.ids import message_uuid, uuid7
from archiver.models.ledger import FolderListing, SkippedMessage, UnaccountedKey
from archiver.models.messages import (
    Attachment,
    IndexLease,
    Message,
    MessageAttachment,
    MessageCopy,
    Participant,
    ReadingAttempt,
)
from archiver.models.search import SearchIndex, ThreadLink
from archiver.models.sources import IngestionSource, Mailbox
from archiver.models.store import ArchiveState, MessagePart, Pack, StoredObject, Tombstone
from archiver.models.sync import DeadLetter, Import, OutboxRow, SyncRun, SyncSession, SyncSessionMailbox

__all__ = [
    "ApiKey",
    "ArchiveState",
    "Attachment",
    "AuditEntry",
    "Base",
    "DeadLetter",
    "Export",
    "FolderListing",
    "Grant",
    "Import",
    "IndexLease",
    "IngestionSource",
    "Mailbox",
    "Message",
    "MessageAttachment",
    "MessageCopy",
    "MessagePart",
    "OutboxRow",
    "Pack",
    "Participant",
    "ReadingAttempt",
    "SearchIndex",
    "Session",
    "SignInPause",
    "SkippedMessage",
    "StoredObject",
    "SyncRun",
    "SyncSession",
    "SyncSessionMailbox",
    "ThreadLink",
    "Tombstone",
    "UnaccountedKey",
    "Upload",
    "User",
    "message_uuid",
    "uuid7",
]
