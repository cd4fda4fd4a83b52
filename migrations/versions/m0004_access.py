"""Access: verified addresses, second factor, grants of a source, sign-in pauses, uploads, exports, and a chained audit log"""

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import postgresql

revision = "0004"
down_revision = "0003"
branch_labels = None
depends_on = None

_AUDIT_CHAIN = """
CREATE FUNCTION audit_log_chain() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE last record;
BEGIN
    PERFORM pg_advisory_xact_lock(hashtextextended('archiver:audit_log', 0));
    SELECT id, hash INTO last FROM audit_log ORDER BY id DESC LIMIT 1;
    NEW.id := coalesce(last.id, 0) + 1;
    NEW.at := clock_timestamp();
    NEW.previous_hash := coalesce(last.hash, '\\x'::bytea);
    NEW.hash := sha256(NEW.previous_hash || convert_to(jsonb_build_array(NEW.id,
        floor(extract(epoch FROM NEW.at) * 1000000)::bigint, NEW.actor, NEW.actor_id, NEW.action, NEW.object_kind,
        NEW.object_id, NEW.detail, NEW.client_address, NEW.request_id)::text, 'UTF8'));
    RETURN NEW;
END $$;
CREATE TRIGGER audit_log_chain BEFORE INSERT ON audit_log FOR EACH ROW EXECUTE FUNCTION audit_log_chain();
CREATE FUNCTION audit_log_refuse() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    RAISE EXCEPTION 'audit_log is append-only' USING ERRCODE = 'insufficient_privilege';
END $$;
CREATE TRIGGER audit_log_append_only BEFORE UPDATE OR DELETE OR TRUNCATE ON audit_log
    FOR EACH STATEMENT EXECUTE FUNCTION audit_log_refuse();
"""


def upgrade() -> None:
    op.add_column("users", sa.Column("address_verified_at", sa.DateTime(timezone=True), nullable=True))
    op.add_column("users", sa.Column("totp_confirmed_at", sa.DateTime(timezone=True), nullable=True))
    op.add_column("users", sa.Column("totp_last_step", sa.BigInteger(), nullable=True))
    _grants()
    op.create_table(
        "sign_in_pauses",
        sa.Column("key", sa.Text(), nullable=False),
        sa.Column("failures", sa.BigInteger(), server_default=sa.text("0"), nullable=False),
        sa.Column("blocked_until", sa.DateTime(timezone=True), server_default=sa.text("now()"), nullable=False),
        sa.Column("last_failed_at", sa.DateTime(timezone=True), server_default=sa.text("now()"), nullable=False),
        sa.PrimaryKeyConstraint("key", name=op.f("pk_sign_in_pauses")),
    )
    op.create_index(op.f("ix_sign_in_pauses_last_failed_at"), "sign_in_pauses", ["last_failed_at"])
    _files()
    op.execute(_AUDIT_CHAIN)


def _grants() -> None:
    op.add_column("grants", sa.Column("source_id", sa.UUID(), nullable=True))
    op.create_foreign_key(op.f("fk_grants_source_id"), "grants", "ingestion_sources", ["source_id"], ["id"], ondelete="CASCADE")
    op.create_index(op.f("ix_grants_source_id"), "grants", ["source_id"])
    op.drop_constraint(op.f("ck_grants_one_target"), "grants")
    op.create_check_constraint(
        op.f("ck_grants_one_target"), "grants", "num_nonnulls(mailbox_id, address_pattern, source_id) = 1"
    )
    op.drop_index("uq_grants_target", "grants")
    op.create_index(
        "uq_grants_target",
        "grants",
        ["user_id", "mailbox_id", "address_pattern", "source_id"],
        unique=True,
        postgresql_nulls_not_distinct=True,
    )


def _files() -> None:
    op.create_table(
        "uploads",
        sa.Column("id", sa.UUID(), nullable=False),
        sa.Column("user_id", sa.UUID(), nullable=True),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("size_bytes", sa.BigInteger(), nullable=False),
        sa.Column("sha256", sa.LargeBinary(), nullable=True),
        sa.Column("state", sa.Text(), server_default="receiving", nullable=False),
        sa.Column("created_at", sa.DateTime(timezone=True), server_default=sa.text("now()"), nullable=False),
        sa.Column("updated_at", sa.DateTime(timezone=True), server_default=sa.text("now()"), nullable=False),
        sa.CheckConstraint("state IN ('receiving', 'complete')", name=op.f("ck_uploads_state")),
        sa.CheckConstraint("size_bytes >= 0", name=op.f("ck_uploads_size_bytes")),
        sa.ForeignKeyConstraint(["user_id"], ["users.id"], name=op.f("fk_uploads_user_id"), ondelete="SET NULL"),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_uploads")),
    )
    op.create_index(op.f("ix_uploads_user_id"), "uploads", ["user_id"])
    op.create_table(
        "exports",
        sa.Column("id", sa.UUID(), nullable=False),
        sa.Column("user_id", sa.UUID(), nullable=False),
        sa.Column("selection", postgresql.JSONB(astext_type=sa.Text()), server_default=sa.text("'{}'::jsonb"), nullable=False),
        sa.Column("format", sa.Text(), nullable=False),
        sa.Column("state", sa.Text(), server_default="queued", nullable=False),
        sa.Column("messages", sa.BigInteger(), server_default=sa.text("0"), nullable=False),
        sa.Column("bytes", sa.BigInteger(), server_default=sa.text("0"), nullable=False),
        sa.Column("failed", sa.BigInteger(), server_default=sa.text("0"), nullable=False),
        sa.Column("error", sa.Text(), nullable=True),
        sa.Column("created_at", sa.DateTime(timezone=True), server_default=sa.text("now()"), nullable=False),
        sa.Column("finished_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("expires_at", sa.DateTime(timezone=True), nullable=True),
        sa.CheckConstraint("state IN ('queued', 'running', 'done', 'failed')", name=op.f("ck_exports_state")),
        sa.ForeignKeyConstraint(["user_id"], ["users.id"], name=op.f("fk_exports_user_id"), ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_exports")),
    )
    op.create_index(op.f("ix_exports_user_id"), "exports", ["user_id"])
    op.create_index("ix_exports_open", "exports", ["id"], postgresql_where=sa.text("state IN ('queued', 'running')"))
