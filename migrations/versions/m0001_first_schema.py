"""The first schema"""

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import postgresql

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "attachments",
        sa.Column("sha256", sa.LargeBinary(), nullable=False),
        sa.Column("size_bytes", sa.BigInteger(), nullable=False),
        sa.Column("media_type", sa.Text(), nullable=False),
        sa.Column("text_state", sa.Text(), server_default="pending", nullable=False),
        sa.Column("text_reason", sa.Text(), nullable=True),
        sa.Column("text_sha256", sa.LargeBinary(), nullable=True),
        sa.Column("pages", postgresql.JSONB(astext_type=sa.Text()), server_default=sa.text("'[]'::jsonb"), nullable=False),
        sa.Column("extractor_version", sa.Integer(), server_default=sa.text("0"), nullable=False),
        sa.Column("created_at", sa.DateTime(timezone=True), server_default=sa.text("now()"), nullable=False),
        sa.CheckConstraint(
            "text_state IN ('pending', 'ok', 'empty', 'encrypted', 'too_large', 'timeout', 'unsupported', 'broken')",
            name=op.f("ck_attachments_text_state"),
        ),
        sa.CheckConstraint("octet_length(sha256) = 32", name=op.f("ck_attachments_sha256_length")),
        sa.PrimaryKeyConstraint("sha256", name=op.f("pk_attachments")),
    )
    op.create_index(
        "ix_attachments_pending", "attachments", ["sha256"], unique=False, postgresql_where=sa.text("text_state = 'pending'")
    )
    op.create_table(
        "audit_log",
        sa.Column("id", sa.BigInteger(), sa.Identity(always=True), nullable=False),
        sa.Column("at", sa.DateTime(timezone=True), server_default=sa.text("now()"), nullable=False),
        sa.Column("actor", sa.Text(), nullable=False),
        sa.Column("actor_id", sa.UUID(), nullable=True),
        sa.Column("action", sa.Text(), nullable=False),
        sa.Column("object_kind", sa.Text(), nullable=True),
        sa.Column("object_id", sa.Text(), nullable=True),
        sa.Column("detail", postgresql.JSONB(astext_type=sa.Text()), server_default=sa.text("'{}'::jsonb"), nullable=False),
        sa.Column("client_address", sa.Text(), nullable=True),
        sa.Column("request_id", sa.Text(), nullable=True),
        sa.Column("previous_hash", sa.LargeBinary(), nullable=False),
        sa.Column("hash", sa.LargeBinary(), nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_audit_log")),
    )
    op.create_index("ix_audit_log_actor_id", "audit_log", ["actor_id"], unique=False)
    op.create_index("ix_audit_log_at", "audit_log", [sa.literal_column("at DESC"), sa.literal_column("id DESC")], unique=False)
    op.create_index("ix_audit_log_object", "audit_log", ["object_kind", "object_id"], unique=False)
    op.create_table(
        "messages",
        sa.Column("id", sa.UUID(), nullable=False),
        sa.Column("sha256", sa.LargeBinary(), nullable=False),
        sa.Column("canonical_sha256", sa.LargeBinary(), nullable=False),
        sa.Column("internet_message_id", sa.Text(), nullable=True),
        sa.Column("in_reply_to", sa.Text(), nullable=True),
        sa.Column("reference_ids", postgresql.ARRAY(sa.Text()), server_default=sa.text("'{}'::text[]"), nullable=False),
        sa.Column("thread_id", sa.UUID(), nullable=True),
        sa.Column("sent_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("received_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("sort_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("date_origin", sa.Text(), nullable=False),
        sa.Column("sender", sa.Text(), nullable=True),
        sa.Column("sender_name", sa.Text(), nullable=True),
        sa.Column("subject", sa.Text(), nullable=True),
        sa.Column("size_bytes", sa.BigInteger(), nullable=False),
        sa.Column("has_attachments", sa.Boolean(), server_default=sa.text("false"), nullable=False),
        sa.Column("defects", postgresql.JSONB(astext_type=sa.Text()), server_default=sa.text("'[]'::jsonb"), nullable=False),
        sa.Column("parser_version", sa.Integer(), server_default=sa.text("0"), nullable=False),
        sa.Column("index_version", sa.BigInteger(), server_default=sa.text("1"), nullable=False),
        sa.Column("indexed_version", sa.BigInteger(), server_default=sa.text("0"), nullable=False),
        sa.Column("index_lease_until", sa.DateTime(timezone=True), nullable=True),
        sa.Column("search_state", sa.Text(), server_default="pending", nullable=False),
        sa.Column(
            "search_reasons", postgresql.JSONB(astext_type=sa.Text()), server_default=sa.text("'[]'::jsonb"), nullable=False
        ),
        sa.Column("first_run_id", sa.UUID(), nullable=True),
        sa.Column("archived_at", sa.DateTime(timezone=True), server_default=sa.text("now()"), nullable=False),
        sa.CheckConstraint("date_origin IN ('header', 'server', 'received', 'none')", name=op.f("ck_messages_date_origin")),
        sa.CheckConstraint(
            "search_state IN ('pending', 'body', 'full', 'partial', 'failed')", name=op.f("ck_messages_search_state")
        ),
        sa.CheckConstraint("indexed_version <= index_version", name=op.f("ck_messages_indexed_version")),
        sa.CheckConstraint("octet_length(canonical_sha256) = 32", name=op.f("ck_messages_canonical_sha256_length")),
        sa.CheckConstraint("octet_length(sha256) = 32", name=op.f("ck_messages_sha256_length")),
        sa.CheckConstraint("size_bytes >= 0", name=op.f("ck_messages_size_bytes")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_messages")),
        sa.UniqueConstraint("sha256", name=op.f("uq_messages_sha256")),
    )
    op.create_index("ix_messages_canonical_sha256", "messages", ["canonical_sha256"], unique=False)
    op.create_index("ix_messages_first_run_id", "messages", ["first_run_id"], unique=False)
    op.create_index(
        "ix_messages_internet_message_id", "messages", [sa.literal_column("md5(internet_message_id)")], unique=False
    )
    op.create_index(
        "ix_messages_not_full",
        "messages",
        ["search_state", "id"],
        unique=False,
        postgresql_where=sa.text("search_state <> 'full'"),
    )
    op.create_index(
        "ix_messages_sort_at", "messages", [sa.literal_column("sort_at DESC"), sa.literal_column("id DESC")], unique=False
    )
    op.create_index("ix_messages_thread_id", "messages", ["thread_id"], unique=False)
    op.create_index(
        "ix_messages_to_index", "messages", ["id"], unique=False, postgresql_where=sa.text("indexed_version < index_version")
    )
    op.create_table(
        "packs",
        sa.Column("id", sa.UUID(), nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("state", sa.Text(), server_default="open", nullable=False),
        sa.Column("size_bytes", sa.BigInteger(), server_default=sa.text("0"), nullable=False),
        sa.Column("frames", sa.BigInteger(), server_default=sa.text("0"), nullable=False),
        sa.Column("sha256", sa.LargeBinary(), nullable=True),
        sa.Column("created_at", sa.DateTime(timezone=True), server_default=sa.text("now()"), nullable=False),
        sa.Column("sealed_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("retired_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("verified_at", sa.DateTime(timezone=True), nullable=True),
        sa.CheckConstraint("state IN ('open', 'sealed', 'left', 'retired')", name=op.f("ck_packs_state")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_packs")),
        sa.UniqueConstraint("name", name=op.f("uq_packs_name")),
    )
    op.create_index("ix_packs_state", "packs", ["state"], unique=False)
    op.create_table(
        "users",
        sa.Column("id", sa.UUID(), nullable=False),
        sa.Column("email", sa.Text(), nullable=False),
        sa.Column("name", sa.Text(), nullable=True),
        sa.Column("password_hash", sa.Text(), nullable=True),
        sa.Column("role", sa.Text(), server_default="user", nullable=False),
        sa.Column("may_read_all", sa.Boolean(), server_default=sa.text("false"), nullable=False),
        sa.Column("totp_secret", sa.LargeBinary(), nullable=True),
        sa.Column("recovery_code_hashes", postgresql.ARRAY(sa.Text()), server_default=sa.text("'{}'::text[]"), nullable=False),
        sa.Column("oidc_subject", sa.Text(), nullable=True),
        sa.Column("settings", postgresql.JSONB(astext_type=sa.Text()), server_default=sa.text("'{}'::jsonb"), nullable=False),
        sa.Column("created_at", sa.DateTime(timezone=True), server_default=sa.text("now()"), nullable=False),
        sa.Column("last_sign_in_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("disabled_at", sa.DateTime(timezone=True), nullable=True),
        sa.CheckConstraint("role IN ('administrator', 'auditor', 'user')", name=op.f("ck_users_role")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_users")),
        sa.UniqueConstraint("oidc_subject", name=op.f("uq_users_oidc_subject")),
    )
    op.create_index("uq_users_email", "users", [sa.literal_column("lower(email)")], unique=True)
    op.create_table(
        "api_keys",
        sa.Column("id", sa.UUID(), nullable=False),
        sa.Column("user_id", sa.UUID(), nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("prefix", sa.Text(), nullable=False),
        sa.Column("key_hash", sa.LargeBinary(), nullable=False),
        sa.Column("scopes", postgresql.ARRAY(sa.Text()), server_default=sa.text("'{}'::text[]"), nullable=False),
        sa.Column("created_at", sa.DateTime(timezone=True), server_default=sa.text("now()"), nullable=False),
        sa.Column("expires_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("last_used_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("revoked_at", sa.DateTime(timezone=True), nullable=True),
        sa.ForeignKeyConstraint(["user_id"], ["users.id"], name=op.f("fk_api_keys_user_id"), ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_api_keys")),
        sa.UniqueConstraint("prefix", name=op.f("uq_api_keys_prefix")),
    )
    op.create_index(op.f("ix_api_keys_user_id"), "api_keys", ["user_id"], unique=False)
    op.create_table(
        "ingestion_sources",
        sa.Column("id", sa.UUID(), nullable=False),
        sa.Column("kind", sa.Text(), nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("owner_id", sa.UUID(), nullable=True),
        sa.Column("credentials", sa.LargeBinary(), nullable=True),
        sa.Column("settings", postgresql.JSONB(astext_type=sa.Text()), server_default=sa.text("'{}'::jsonb"), nullable=False),
        sa.Column("status", sa.Text(), server_default="pending", nullable=False),
        sa.Column("status_message", sa.Text(), nullable=True),
        sa.Column("sync_state", postgresql.JSONB(astext_type=sa.Text()), server_default=sa.text("'{}'::jsonb"), nullable=False),
        sa.Column("next_due_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("failures", sa.BigInteger(), server_default=sa.text("0"), nullable=False),
        sa.Column("last_started_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("last_finished_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("created_at", sa.DateTime(timezone=True), server_default=sa.text("now()"), nullable=False),
        sa.Column("updated_at", sa.DateTime(timezone=True), server_default=sa.text("now()"), nullable=False),
        sa.Column("removed_at", sa.DateTime(timezone=True), nullable=True),
        sa.CheckConstraint(
            "status IN ('pending', 'importing', 'active', 'syncing', 'paused', 'error', 'imported')",
            name=op.f("ck_ingestion_sources_status"),
        ),
        sa.ForeignKeyConstraint(["owner_id"], ["users.id"], name=op.f("fk_ingestion_sources_owner_id"), ondelete="SET NULL"),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_ingestion_sources")),
    )
    op.create_index(
        "ix_ingestion_sources_due",
        "ingestion_sources",
        ["next_due_at"],
        unique=False,
        postgresql_where=sa.text("removed_at IS NULL"),
    )
    op.create_index(op.f("ix_ingestion_sources_owner_id"), "ingestion_sources", ["owner_id"], unique=False)
    op.create_index(
        "uq_ingestion_sources_name",
        "ingestion_sources",
        [sa.literal_column("lower(name)")],
        unique=True,
        postgresql_where=sa.text("removed_at IS NULL"),
    )
    op.create_table(
        "message_attachments",
        sa.Column("message_id", sa.UUID(), nullable=False),
        sa.Column("position", sa.SmallInteger(), nullable=False),
        sa.Column("attachment_sha256", sa.LargeBinary(), nullable=False),
        sa.Column("name", sa.Text(), nullable=True),
        sa.Column("media_type", sa.Text(), nullable=False),
        sa.Column("is_inline", sa.Boolean(), server_default=sa.text("false"), nullable=False),
        sa.Column("content_id", sa.Text(), nullable=True),
        sa.Column("detail", postgresql.JSONB(astext_type=sa.Text()), server_default=sa.text("'{}'::jsonb"), nullable=False),
        sa.ForeignKeyConstraint(
            ["attachment_sha256"], ["attachments.sha256"], name=op.f("fk_message_attachments_attachment_sha256")
        ),
        sa.ForeignKeyConstraint(
            ["message_id"], ["messages.id"], name=op.f("fk_message_attachments_message_id"), ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("message_id", "position", name=op.f("pk_message_attachments")),
    )
    op.create_index(
        op.f("ix_message_attachments_attachment_sha256"), "message_attachments", ["attachment_sha256"], unique=False
    )
    op.create_table(
        "objects",
        sa.Column("sha256", sa.LargeBinary(), nullable=False),
        sa.Column("kind", sa.Text(), nullable=False),
        sa.Column("pack_id", sa.UUID(), nullable=False),
        sa.Column("position", sa.BigInteger(), nullable=False),
        sa.Column("stored_bytes", sa.BigInteger(), nullable=False),
        sa.Column("raw_bytes", sa.BigInteger(), nullable=False),
        sa.CheckConstraint("octet_length(sha256) = 32", name=op.f("ck_objects_sha256_length")),
        sa.PrimaryKeyConstraint("sha256", "kind", name=op.f("pk_objects")),
    )
    op.create_index("ix_objects_pack_id_position", "objects", ["pack_id", "position"], unique=False)
    op.create_table(
        "message_parts",
        sa.Column("message_id", sa.UUID(), nullable=False),
        sa.Column("part_sha256", sa.LargeBinary(), nullable=False),
        sa.CheckConstraint("octet_length(part_sha256) = 32", name=op.f("ck_message_parts_part_sha256_length")),
        sa.ForeignKeyConstraint(["message_id"], ["messages.id"], name=op.f("fk_message_parts_message_id"), ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("message_id", "part_sha256", name=op.f("pk_message_parts")),
    )
    op.create_index("ix_message_parts_part_sha256", "message_parts", ["part_sha256"], unique=False)
    op.create_table(
        "participants",
        sa.Column("message_id", sa.UUID(), nullable=False),
        sa.Column("position", sa.Integer(), nullable=False),
        sa.Column("role", sa.Text(), nullable=False),
        sa.Column("address", sa.Text(), nullable=False),
        sa.Column("name", sa.Text(), nullable=True),
        sa.CheckConstraint("role IN ('from', 'sender', 'reply_to', 'to', 'cc', 'bcc')", name=op.f("ck_participants_role")),
        sa.PrimaryKeyConstraint("message_id", "position", name=op.f("pk_participants")),
    )
    op.create_index("ix_participants_address", "participants", [sa.literal_column("left(address, 320)"), "role"], unique=False)
    op.create_table(
        "sessions",
        sa.Column("id", sa.UUID(), nullable=False),
        sa.Column("token_hash", sa.LargeBinary(), nullable=False),
        sa.Column("user_id", sa.UUID(), nullable=False),
        sa.Column("created_at", sa.DateTime(timezone=True), server_default=sa.text("now()"), nullable=False),
        sa.Column("last_seen_at", sa.DateTime(timezone=True), server_default=sa.text("now()"), nullable=False),
        sa.Column("expires_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("client_address", sa.Text(), nullable=True),
        sa.Column("user_agent", sa.Text(), nullable=True),
        sa.ForeignKeyConstraint(["user_id"], ["users.id"], name=op.f("fk_sessions_user_id"), ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_sessions")),
        sa.UniqueConstraint("token_hash", name=op.f("uq_sessions_token_hash")),
    )
    op.create_index(op.f("ix_sessions_expires_at"), "sessions", ["expires_at"], unique=False)
    op.create_index(op.f("ix_sessions_user_id"), "sessions", ["user_id"], unique=False)
    op.create_table(
        "mailboxes",
        sa.Column("id", sa.UUID(), nullable=False),
        sa.Column("source_id", sa.UUID(), nullable=False),
        sa.Column("address", sa.Text(), nullable=False),
        sa.Column("display_name", sa.Text(), nullable=True),
        sa.Column("provider_id", sa.Text(), nullable=True),
        sa.Column("sync_state", postgresql.JSONB(astext_type=sa.Text()), server_default=sa.text("'{}'::jsonb"), nullable=False),
        sa.Column("next_due_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("failures", sa.BigInteger(), server_default=sa.text("0"), nullable=False),
        sa.Column("status_message", sa.Text(), nullable=True),
        sa.Column("created_at", sa.DateTime(timezone=True), server_default=sa.text("now()"), nullable=False),
        sa.Column("gone_at", sa.DateTime(timezone=True), nullable=True),
        sa.ForeignKeyConstraint(["source_id"], ["ingestion_sources.id"], name=op.f("fk_mailboxes_source_id")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_mailboxes")),
    )
    op.create_index("ix_mailboxes_address", "mailboxes", [sa.literal_column("lower(address)")], unique=False)
    op.create_index(
        "uq_mailboxes_source_id_address", "mailboxes", ["source_id", sa.literal_column("lower(address)")], unique=True
    )
    op.create_table(
        "outbox",
        sa.Column("id", sa.UUID(), nullable=False),
        sa.Column("queue", sa.Text(), nullable=False),
        sa.Column("job", sa.Text(), nullable=False),
        sa.Column("payload", postgresql.JSONB(astext_type=sa.Text()), server_default=sa.text("'{}'::jsonb"), nullable=False),
        sa.Column("priority", sa.SmallInteger(), server_default=sa.text("10"), nullable=False),
        sa.Column("source_id", sa.UUID(), nullable=True),
        sa.Column("session_id", sa.UUID(), nullable=True),
        sa.Column("available_at", sa.DateTime(timezone=True), server_default=sa.text("now()"), nullable=False),
        sa.Column("sent_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("created_at", sa.DateTime(timezone=True), server_default=sa.text("now()"), nullable=False),
        sa.ForeignKeyConstraint(["source_id"], ["ingestion_sources.id"], name=op.f("fk_outbox_source_id"), ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_outbox")),
    )
    op.create_index(
        "ix_outbox_pending",
        "outbox",
        ["queue", "source_id", "priority", "id"],
        unique=False,
        postgresql_where=sa.text("sent_at IS NULL"),
    )
    op.create_index("ix_outbox_sent_at", "outbox", ["sent_at"], unique=False, postgresql_where=sa.text("sent_at IS NOT NULL"))
    op.create_index("ix_outbox_session_id", "outbox", ["session_id"], unique=False)
    op.create_index("ix_outbox_source_id", "outbox", ["source_id"], unique=False)
    op.create_table(
        "sync_runs",
        sa.Column("id", sa.UUID(), nullable=False),
        sa.Column("source_id", sa.UUID(), nullable=False),
        sa.Column("outcome", sa.Text(), nullable=False),
        sa.Column("is_initial_import", sa.Boolean(), server_default=sa.text("false"), nullable=False),
        sa.Column("started_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("finished_at", sa.DateTime(timezone=True), server_default=sa.text("now()"), nullable=False),
        sa.Column("total_mailboxes", sa.BigInteger(), server_default=sa.text("0"), nullable=False),
        sa.Column("completed_mailboxes", sa.BigInteger(), server_default=sa.text("0"), nullable=False),
        sa.Column("failed_mailboxes", sa.BigInteger(), server_default=sa.text("0"), nullable=False),
        sa.Column("archived", sa.BigInteger(), server_default=sa.text("0"), nullable=False),
        sa.Column("duplicates", sa.BigInteger(), server_default=sa.text("0"), nullable=False),
        sa.Column("skipped", sa.BigInteger(), server_default=sa.text("0"), nullable=False),
        sa.Column("failed", sa.BigInteger(), server_default=sa.text("0"), nullable=False),
        sa.Column("missing", sa.BigInteger(), server_default=sa.text("0"), nullable=False),
        sa.Column("bytes", sa.BigInteger(), server_default=sa.text("0"), nullable=False),
        sa.Column(
            "error_messages", postgresql.JSONB(astext_type=sa.Text()), server_default=sa.text("'[]'::jsonb"), nullable=False
        ),
        sa.Column("detail", postgresql.JSONB(astext_type=sa.Text()), server_default=sa.text("'{}'::jsonb"), nullable=False),
        sa.CheckConstraint(
            "outcome IN ('success', 'incomplete', 'failed', 'stale', 'cancelled')", name=op.f("ck_sync_runs_outcome")
        ),
        sa.ForeignKeyConstraint(
            ["source_id"], ["ingestion_sources.id"], name=op.f("fk_sync_runs_source_id"), ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_sync_runs")),
    )
    op.create_index(
        "ix_sync_runs_source_id_finished_at", "sync_runs", ["source_id", sa.literal_column("finished_at DESC")], unique=False
    )
    op.create_table(
        "sync_sessions",
        sa.Column("id", sa.UUID(), nullable=False),
        sa.Column("ingestion_source_id", sa.UUID(), nullable=False),
        sa.Column("state", sa.Text(), server_default="listing", nullable=False),
        sa.Column("is_initial_import", sa.Boolean(), server_default=sa.text("false"), nullable=False),
        sa.Column("total_mailboxes", sa.BigInteger(), server_default=sa.text("0"), nullable=False),
        sa.Column("completed_mailboxes", sa.BigInteger(), server_default=sa.text("0"), nullable=False),
        sa.Column("failed_mailboxes", sa.BigInteger(), server_default=sa.text("0"), nullable=False),
        sa.Column(
            "error_messages", postgresql.JSONB(astext_type=sa.Text()), server_default=sa.text("'[]'::jsonb"), nullable=False
        ),
        sa.Column("rerun_requested", sa.Boolean(), server_default=sa.text("false"), nullable=False),
        sa.Column("created_at", sa.DateTime(timezone=True), server_default=sa.text("now()"), nullable=False),
        sa.Column("last_activity_at", sa.DateTime(timezone=True), server_default=sa.text("now()"), nullable=False),
        sa.CheckConstraint("state IN ('listing', 'running')", name=op.f("ck_sync_sessions_state")),
        sa.CheckConstraint("completed_mailboxes + failed_mailboxes <= total_mailboxes", name=op.f("ck_sync_sessions_counts")),
        sa.ForeignKeyConstraint(
            ["ingestion_source_id"],
            ["ingestion_sources.id"],
            name=op.f("fk_sync_sessions_ingestion_source_id"),
            ondelete="CASCADE",
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_sync_sessions")),
    )
    op.create_index("ix_sync_sessions_last_activity_at", "sync_sessions", ["last_activity_at"], unique=False)
    op.create_index(
        "uq_sync_sessions_live",
        "sync_sessions",
        ["ingestion_source_id"],
        unique=True,
        postgresql_where=sa.text("state IN ('listing', 'running')"),
    )
    op.create_table(
        "dead_letters",
        sa.Column("id", sa.UUID(), nullable=False),
        sa.Column("kind", sa.Text(), nullable=False),
        sa.Column("source_id", sa.UUID(), nullable=True),
        sa.Column("mailbox_id", sa.UUID(), nullable=True),
        sa.Column("message_id", sa.UUID(), nullable=True),
        sa.Column("provider_key", sa.Text(), nullable=True),
        sa.Column("folder", sa.Text(), nullable=True),
        sa.Column("queue", sa.Text(), nullable=True),
        sa.Column("job", sa.Text(), nullable=True),
        sa.Column("job_id", sa.Text(), nullable=True),
        sa.Column("payload", postgresql.JSONB(astext_type=sa.Text()), server_default=sa.text("'{}'::jsonb"), nullable=False),
        sa.Column("raw_sha256", sa.LargeBinary(), nullable=True),
        sa.Column("reason", sa.Text(), nullable=False),
        sa.Column("attempts", sa.BigInteger(), server_default=sa.text("1"), nullable=False),
        sa.Column("created_at", sa.DateTime(timezone=True), server_default=sa.text("now()"), nullable=False),
        sa.Column("last_failed_at", sa.DateTime(timezone=True), server_default=sa.text("now()"), nullable=False),
        sa.Column("next_try_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("discarded_at", sa.DateTime(timezone=True), nullable=True),
        sa.CheckConstraint(
            "(kind = 'message' AND mailbox_id IS NOT NULL AND provider_key IS NOT NULL)"
            " OR (kind = 'document' AND message_id IS NOT NULL)"
            " OR (kind = 'job' AND queue IS NOT NULL AND job IS NOT NULL AND job_id IS NOT NULL)",
            name=op.f("ck_dead_letters_complete"),
        ),
        sa.CheckConstraint("kind IN ('message', 'document', 'job')", name=op.f("ck_dead_letters_kind")),
        sa.ForeignKeyConstraint(["mailbox_id"], ["mailboxes.id"], name=op.f("fk_dead_letters_mailbox_id"), ondelete="CASCADE"),
        sa.ForeignKeyConstraint(["message_id"], ["messages.id"], name=op.f("fk_dead_letters_message_id"), ondelete="CASCADE"),
        sa.ForeignKeyConstraint(
            ["source_id"], ["ingestion_sources.id"], name=op.f("fk_dead_letters_source_id"), ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_dead_letters")),
    )
    op.create_index(
        "ix_dead_letters_due", "dead_letters", ["next_try_at"], unique=False, postgresql_where=sa.text("discarded_at IS NULL")
    )
    op.create_index(
        "ix_dead_letters_listed",
        "dead_letters",
        [sa.literal_column("last_failed_at DESC"), sa.literal_column("id DESC")],
        unique=False,
    )
    op.create_index("ix_dead_letters_message_id", "dead_letters", ["message_id"], unique=False)
    op.create_index("ix_dead_letters_source_id", "dead_letters", ["source_id"], unique=False)
    op.create_index(
        "uq_dead_letters_document", "dead_letters", ["message_id"], unique=True, postgresql_where=sa.text("kind = 'document'")
    )
    op.create_index(
        "uq_dead_letters_job", "dead_letters", ["queue", "job_id"], unique=True, postgresql_where=sa.text("kind = 'job'")
    )
    op.create_index(
        "uq_dead_letters_message",
        "dead_letters",
        ["mailbox_id", "provider_key"],
        unique=True,
        postgresql_where=sa.text("kind = 'message'"),
    )
    op.create_table(
        "grants",
        sa.Column("id", sa.UUID(), nullable=False),
        sa.Column("user_id", sa.UUID(), nullable=False),
        sa.Column("mailbox_id", sa.UUID(), nullable=True),
        sa.Column("address_pattern", sa.Text(), nullable=True),
        sa.Column("granted_by", sa.UUID(), nullable=True),
        sa.Column("created_at", sa.DateTime(timezone=True), server_default=sa.text("now()"), nullable=False),
        sa.CheckConstraint("(mailbox_id IS NULL) <> (address_pattern IS NULL)", name=op.f("ck_grants_one_target")),
        sa.ForeignKeyConstraint(["granted_by"], ["users.id"], name=op.f("fk_grants_granted_by"), ondelete="SET NULL"),
        sa.ForeignKeyConstraint(["mailbox_id"], ["mailboxes.id"], name=op.f("fk_grants_mailbox_id"), ondelete="CASCADE"),
        sa.ForeignKeyConstraint(["user_id"], ["users.id"], name=op.f("fk_grants_user_id"), ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_grants")),
    )
    op.create_index(op.f("ix_grants_mailbox_id"), "grants", ["mailbox_id"], unique=False)
    op.create_index(op.f("ix_grants_user_id"), "grants", ["user_id"], unique=False)
    op.create_index(
        "uq_grants_target",
        "grants",
        ["user_id", "mailbox_id", "address_pattern"],
        unique=True,
        postgresql_nulls_not_distinct=True,
    )
    op.create_table(
        "message_copies",
        sa.Column("id", sa.UUID(), nullable=False),
        sa.Column("message_id", sa.UUID(), nullable=True),
        sa.Column("mailbox_id", sa.UUID(), nullable=False),
        sa.Column("provider_key", sa.Text(), nullable=False),
        sa.Column("folder", sa.Text(), server_default=sa.text("''"), nullable=False),
        sa.Column("flags", postgresql.ARRAY(sa.Text()), server_default=sa.text("'{}'::text[]"), nullable=False),
        sa.Column("labels", postgresql.ARRAY(sa.Text()), server_default=sa.text("'{}'::text[]"), nullable=False),
        sa.Column("received_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("run_id", sa.UUID(), nullable=True),
        sa.Column("created_at", sa.DateTime(timezone=True), server_default=sa.text("now()"), nullable=False),
        sa.Column("gone_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("deleted_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("deleted_reason", sa.Text(), nullable=True),
        sa.CheckConstraint("message_id IS NOT NULL OR deleted_at IS NOT NULL", name=op.f("ck_message_copies_has_message")),
        sa.ForeignKeyConstraint(
            ["message_id"], ["messages.id"], name=op.f("fk_message_copies_message_id"), ondelete="SET NULL"
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_message_copies")),
    )
    op.create_index("ix_message_copies_folder", "message_copies", ["mailbox_id", "folder"], unique=False)
    op.create_index(op.f("ix_message_copies_message_id"), "message_copies", ["message_id"], unique=False)
    op.create_index("uq_message_copies_mailbox_id_provider_key", "message_copies", ["mailbox_id", "provider_key"], unique=True)
    op.create_table(
        "sync_session_mailboxes",
        sa.Column("session_id", sa.UUID(), nullable=False),
        sa.Column("mailbox_id", sa.UUID(), nullable=False),
        sa.Column("state", sa.Text(), server_default="queued", nullable=False),
        sa.Column("slice", sa.BigInteger(), server_default=sa.text("0"), nullable=False),
        sa.Column("seen", sa.BigInteger(), server_default=sa.text("0"), nullable=False),
        sa.Column("archived", sa.BigInteger(), server_default=sa.text("0"), nullable=False),
        sa.Column("duplicates", sa.BigInteger(), server_default=sa.text("0"), nullable=False),
        sa.Column("skipped", sa.BigInteger(), server_default=sa.text("0"), nullable=False),
        sa.Column("failed", sa.BigInteger(), server_default=sa.text("0"), nullable=False),
        sa.Column("missing", sa.BigInteger(), server_default=sa.text("0"), nullable=False),
        sa.Column("bytes", sa.BigInteger(), server_default=sa.text("0"), nullable=False),
        sa.Column("total", sa.BigInteger(), nullable=True),
        sa.Column("error_message", sa.Text(), nullable=True),
        sa.Column("started_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("finished_at", sa.DateTime(timezone=True), nullable=True),
        sa.CheckConstraint(
            "state IN ('queued', 'running', 'done', 'failed', 'cancelled')", name=op.f("ck_sync_session_mailboxes_state")
        ),
        sa.CheckConstraint("slice >= 0", name=op.f("ck_sync_session_mailboxes_slice")),
        sa.ForeignKeyConstraint(
            ["mailbox_id"], ["mailboxes.id"], name=op.f("fk_sync_session_mailboxes_mailbox_id"), ondelete="CASCADE"
        ),
        sa.ForeignKeyConstraint(
            ["session_id"], ["sync_sessions.id"], name=op.f("fk_sync_session_mailboxes_session_id"), ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("session_id", "mailbox_id", name=op.f("pk_sync_session_mailboxes")),
    )
    op.create_index("ix_sync_session_mailboxes_mailbox_id", "sync_session_mailboxes", ["mailbox_id"], unique=False)
    op.create_index("ix_sync_session_mailboxes_state", "sync_session_mailboxes", ["session_id", "state"], unique=False)
