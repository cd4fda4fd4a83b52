"""Imports as rows of their own; uploads name the import that reads them; grants that allow handing in"""

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import postgresql

revision = "0009"
down_revision = "0008"
branch_labels = None
depends_on = None

# What an earlier release wrote into its source: under way, announced or paused (it waits), or ended with its last run.
_ADOPT = """
INSERT INTO imports (id, source_id, number, mailbox, settings, requested_by, user_id, upload_folder, session_id, outcome,
    message, created_at, started_at, finished_at)
SELECT gen_random_uuid(), s.id, coalesce((s.settings->>'number')::bigint, 0), s.settings->>'mailbox', s.settings - 'number',
    coalesce((SELECT email FROM users u WHERE u.id = s.owner_id), 'local-operator'), s.owner_id,
    substring(s.settings->'paths'->>0 FROM '/uploads/(import-[0-9a-f-]{36})/'),
    coalesce(x.id, r.id), CASE WHEN x.id IS NULL THEN r.outcome END,
    CASE WHEN x.id IS NULL THEN r.detail->>'message' END, coalesce(x.created_at, r.started_at, s.updated_at),
    coalesce(x.created_at, r.started_at), CASE WHEN x.id IS NULL THEN r.finished_at END
FROM ingestion_sources s
LEFT JOIN sync_sessions x ON x.ingestion_source_id = s.id
LEFT JOIN LATERAL (
    SELECT * FROM sync_runs WHERE source_id = s.id AND s.status NOT IN ('pending', 'paused')
        AND NOT EXISTS (SELECT 1 FROM outbox o WHERE o.source_id = s.id AND o.job IN ('continuous-sync', 'initial-import'))
    ORDER BY finished_at DESC LIMIT 1) r ON true
WHERE s.kind = 'import' AND s.removed_at IS NULL AND jsonb_typeof(s.settings->'paths') = 'array'
    AND s.settings->>'mailbox' IS NOT NULL
"""

# An import is started by its request, never by the schedule.
_SETTLE = """
UPDATE ingestion_sources s SET next_due_at = NULL, status = CASE s.status WHEN 'active' THEN 'imported' ELSE s.status END
WHERE s.kind = 'import' AND NOT EXISTS (SELECT 1 FROM sync_sessions x WHERE x.ingestion_source_id = s.id)
"""
_PUT_OFF = """
UPDATE dead_letters d SET next_try_at = now() + interval '100 years' FROM ingestion_sources s
WHERE s.id = d.source_id AND s.kind = 'import' AND d.kind = 'message' AND d.discarded_at IS NULL
"""


def upgrade() -> None:
    _imports()
    op.add_column("uploads", sa.Column("import_id", sa.UUID(), nullable=True))
    op.create_foreign_key(op.f("fk_uploads_import_id"), "uploads", "imports", ["import_id"], ["id"], ondelete="SET NULL")
    op.create_index(op.f("ix_uploads_import_id"), "uploads", ["import_id"])
    op.add_column("grants", sa.Column("may_ingest", sa.Boolean(), server_default=sa.text("false"), nullable=False))
    for statement in (_ADOPT, _SETTLE, _PUT_OFF):
        op.execute(statement)


def _imports() -> None:
    now = sa.text("now()")
    op.create_table(
        "imports",
        sa.Column("id", sa.UUID(), nullable=False),
        sa.Column("source_id", sa.UUID(), nullable=False),
        sa.Column("number", sa.BigInteger(), nullable=False),
        sa.Column("mailbox", sa.Text(), nullable=False),
        sa.Column("settings", postgresql.JSONB(astext_type=sa.Text()), server_default=sa.text("'{}'::jsonb"), nullable=False),
        sa.Column("requested_by", sa.Text(), nullable=False),
        sa.Column("user_id", sa.UUID(), nullable=True),
        sa.Column("upload_folder", sa.Text(), nullable=True),
        sa.Column("upload_removed_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("session_id", sa.UUID(), nullable=True),
        sa.Column("outcome", sa.Text(), nullable=True),
        sa.Column("message", sa.Text(), nullable=True),
        sa.Column("tally", postgresql.JSONB(astext_type=sa.Text()), server_default=sa.text("'[]'::jsonb"), nullable=False),
        sa.Column("created_at", sa.DateTime(timezone=True), server_default=now, nullable=False),
        sa.Column("started_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("finished_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("discarded_at", sa.DateTime(timezone=True), nullable=True),
        sa.CheckConstraint(
            "outcome IN ('success', 'incomplete', 'failed', 'stale', 'cancelled')", name=op.f("ck_imports_outcome")
        ),
        sa.ForeignKeyConstraint(["source_id"], ["ingestion_sources.id"], name=op.f("fk_imports_source_id"), ondelete="CASCADE"),
        sa.ForeignKeyConstraint(["user_id"], ["users.id"], name=op.f("fk_imports_user_id"), ondelete="SET NULL"),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_imports")),
        sa.UniqueConstraint("session_id", name=op.f("uq_imports_session_id")),
    )
    op.create_index(op.f("ix_imports_user_id"), "imports", ["user_id"])
    op.create_index("uq_imports_source_id_number", "imports", ["source_id", "number"], unique=True)
    op.create_index("ix_imports_open", "imports", ["source_id", "number"], postgresql_where=sa.text("outcome IS NULL"))
    op.create_index("ix_imports_listed", "imports", [sa.text("created_at DESC"), sa.text("id DESC")])
    kept = sa.text("upload_folder IS NOT NULL AND upload_removed_at IS NULL")
    op.create_index("ix_imports_kept", "imports", ["id"], postgresql_where=kept)
