"""The tables, as metadata only: nothing is queried with these classes. A test compares them with what the migrations create."""

from archiver.db.ids import message_uuid, uuid7
from archiver.db.tables.access import (
    ApiKeyTable,
    AuditLogTable,
    ExportMessageTable,
    ExportTable,
    GrantTable,
    LoginSessionTable,
    SigningKeyTable,
    SignInPauseTable,
    UploadTable,
    UserTable,
)
from archiver.db.tables.alerts import (
    AlertChannelTable,
    AlertDeliveryTable,
    AlertRuleTable,
    AlertTable,
    MaintenanceOutcomeTable,
)
from archiver.db.tables.base import Base
from archiver.db.tables.cleanups import CleanupMessageTable, CleanupTable
from archiver.db.tables.labels import MessageLabelTable, RetentionLabelTable
from archiver.db.tables.ledger import FolderListingTable, SkippedMessageTable, UnaccountedKeyTable
from archiver.db.tables.marks import MailChangeItemTable, MailChangeTable, MessageTagTable, NoteTable, TagTable
from archiver.db.tables.messages import (
    AttachmentTable,
    IndexLeaseTable,
    MessageAttachmentTable,
    MessageCopyTable,
    MessageTable,
    ParticipantTable,
    ReadingAttemptTable,
)
from archiver.db.tables.metrics import MetricCounterTable
from archiver.db.tables.restores import RestoreMessageTable, RestoreTable
from archiver.db.tables.retention import (
    ErasureMessageTable,
    ErasureObjectTable,
    ErasureTable,
    HoldMessageTable,
    HoldNoticeTable,
    HoldTable,
    PolicyCheckTable,
    PolicyVersionTable,
    RetentionRunTable,
)
from archiver.db.tables.search import SearchIndexTable, ThreadLinkTable, ThreadRulesTable
from archiver.db.tables.sources import IngestionSourceTable, MailboxTable
from archiver.db.tables.store import ArchiveStateTable, MessagePartTable, ObjectTable, PackTable, TombstoneTable
from archiver.db.tables.sync import (
    DeadLetterTable,
    ImportTable,
    OutboxTable,
    SyncRunTable,
    SyncSessionMailboxTable,
    SyncSessionTable,
)
from archiver.db.tables.workers import WorkerPauseTable, WorkerProcessTable
from archiver.db.tables.workflows import WorkflowRunTable, WorkflowStepTable

__all__ = [
    "AlertChannelTable",
    "AlertDeliveryTable",
    "AlertRuleTable",
    "AlertTable",
    "ApiKeyTable",
    "ArchiveStateTable",
    "AttachmentTable",
    "AuditLogTable",
    "Base",
    "CleanupMessageTable",
    "CleanupTable",
    "DeadLetterTable",
    "ErasureMessageTable",
    "ErasureObjectTable",
    "ErasureTable",
    "ExportMessageTable",
    "ExportTable",
    "FolderListingTable",
    "GrantTable",
    "HoldMessageTable",
    "HoldNoticeTable",
    "HoldTable",
    "ImportTable",
    "IndexLeaseTable",
    "IngestionSourceTable",
    "LoginSessionTable",
    "MailChangeItemTable",
    "MailChangeTable",
    "MailboxTable",
    "MaintenanceOutcomeTable",
    "MessageAttachmentTable",
    "MessageCopyTable",
    "MessageLabelTable",
    "MessagePartTable",
    "MessageTable",
    "MessageTagTable",
    "MetricCounterTable",
    "NoteTable",
    "ObjectTable",
    "OutboxTable",
    "PackTable",
    "ParticipantTable",
    "PolicyCheckTable",
    "PolicyVersionTable",
    "ReadingAttemptTable",
    "RestoreMessageTable",
    "RestoreTable",
    "RetentionLabelTable",
    "RetentionRunTable",
    "SearchIndexTable",
    "SignInPauseTable",
    "SigningKeyTable",
    "SkippedMessageTable",
    "SyncRunTable",
    "SyncSessionMailboxTable",
    "SyncSessionTable",
    "TagTable",
    "ThreadLinkTable",
    "ThreadRulesTable",
    "TombstoneTable",
    "UnaccountedKeyTable",
    "UploadTable",
    "UserTable",
    "WorkerPauseTable",
    "WorkerProcessTable",
    "WorkflowRunTable",
    "WorkflowStepTable",
    "message_uuid",
    "uuid7",
]
