"""The states that rows can be in. The database rejects every other value."""

from enum import StrEnum


class SourceStatus(StrEnum):
    PENDING = "pending"
    IMPORTING = "importing"
    ACTIVE = "active"
    SYNCING = "syncing"
    PAUSED = "paused"
    ERROR = "error"
    IMPORTED = "imported"


class SessionState(StrEnum):
    LISTING = "listing"
    RUNNING = "running"


class MailboxRunState(StrEnum):
    QUEUED = "queued"
    RUNNING = "running"
    DONE = "done"
    FAILED = "failed"
    CANCELLED = "cancelled"


class RunOutcome(StrEnum):
    SUCCESS = "success"
    INCOMPLETE = "incomplete"
    FAILED = "failed"
    STALE = "stale"
    CANCELLED = "cancelled"


class ImportState(StrEnum):
    """An import waits for its turn, runs, and then has the outcome of its run."""

    WAITING = "waiting"
    RUNNING = "running"
    SUCCESS = "success"
    INCOMPLETE = "incomplete"
    FAILED = "failed"
    STALE = "stale"
    CANCELLED = "cancelled"


class SearchState(StrEnum):
    PENDING = "pending"
    BODY = "body"
    FULL = "full"
    PARTIAL = "partial"
    FAILED = "failed"


class SearchIndexState(StrEnum):
    LIVE = "live"
    BUILDING = "building"


class DateOrigin(StrEnum):
    HEADER = "header"
    SERVER = "server"
    RECEIVED = "received"
    NONE = "none"


class AgeOrigin(StrEnum):
    """What the age of a message is counted from, for a retention policy."""

    RECEIVED = "received"
    SENT = "sent"
    ARCHIVED = "archived"


class ParticipantRole(StrEnum):
    FROM = "from"
    SENDER = "sender"
    REPLY_TO = "reply_to"
    TO = "to"
    CC = "cc"
    BCC = "bcc"


class TextState(StrEnum):
    PENDING = "pending"
    OK = "ok"
    EMPTY = "empty"
    ENCRYPTED = "encrypted"
    TOO_LARGE = "too_large"
    TIMEOUT = "timeout"
    UNSUPPORTED = "unsupported"
    BROKEN = "broken"


class PackState(StrEnum):
    OPEN = "open"
    SEALED = "sealed"
    LEFT = "left"  # abandoned after a write error: still read, never appended to
    RETIRED = "retired"  # replaced by compaction; its file is removed after a day


class DeadLetterKind(StrEnum):
    MESSAGE = "message"
    DOCUMENT = "document"
    JOB = "job"


class UserRole(StrEnum):
    ADMINISTRATOR = "administrator"
    AUDITOR = "auditor"
    USER = "user"


class UploadState(StrEnum):
    RECEIVING = "receiving"
    COMPLETE = "complete"


class ExportState(StrEnum):
    QUEUED = "queued"
    RUNNING = "running"
    DONE = "done"
    FAILED = "failed"


class RestoreState(StrEnum):
    """checking (the dry run) → ready → restoring → done; a failed or cancelled one can be started again."""

    CHECKING = "checking"
    READY = "ready"
    RESTORING = "restoring"
    DONE = "done"
    FAILED = "failed"
    CANCELLED = "cancelled"


class RestoreOutcome(StrEnum):
    RESTORED = "restored"
    PRESENT = "present"
    """It was already there."""
    ABSENT = "absent"
    """It was not there; found by the dry run."""
    REFUSED = "refused"


class CleanupState(StrEnum):
    """checking (the dry run) → ready → deleting → done, or stopped at the first surprise."""

    CHECKING = "checking"
    READY = "ready"
    DELETING = "deleting"
    DONE = "done"
    STOPPED = "stopped"


class CleanupOutcome(StrEnum):
    READY = "ready"
    """Fulfils every condition."""
    DELETING = "deleting"
    """Its move to the trash was begun."""
    DELETED = "deleted"
    GONE = "gone"
    """It was no longer at the source."""
    KEPT = "kept"


class WorkflowState(StrEnum):
    """queued → running → done, or → rolling_back → failed or cancelled."""

    QUEUED = "queued"
    RUNNING = "running"
    ROLLING_BACK = "rolling_back"
    DONE = "done"
    FAILED = "failed"
    CANCELLED = "cancelled"


class StepState(StrEnum):
    """waiting → running → done, waiting (again) or failed; what was begun → undoing → undone or undo_failed."""

    WAITING = "waiting"
    RUNNING = "running"
    DONE = "done"
    FAILED = "failed"
    SKIPPED = "skipped"
    UNDOING = "undoing"
    UNDONE = "undone"
    UNDO_FAILED = "undo_failed"


class AlertSeverity(StrEnum):
    INFO = "info"
    WARNING = "warning"
    CRITICAL = "critical"


class NoticeEvent(StrEnum):
    RAISED = "raised"
    RESOLVED = "resolved"
    SUMMARY = "summary"
    TEST = "test"


class DeliveryState(StrEnum):
    PENDING = "pending"
    SENT = "sent"
    FAILED = "failed"
    CANCELLED = "cancelled"
