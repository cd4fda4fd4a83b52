"""Legal holds, and the trigger that lets no deletion pass them"""

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import postgresql

revision = "0019"
down_revision = "0018"
branch_labels = None
depends_on = None

# Creating a trigger waits for running statements on the table and blocks none that only read.
_GUARD = """
CREATE FUNCTION holds_on(message uuid, mailbox uuid) RETURNS SETOF holds LANGUAGE plpgsql STABLE
    SET search_path = pg_catalog, public, pg_temp AS $$
BEGIN
    RETURN QUERY SELECT h.* FROM holds h WHERE h.released_at IS NULL AND (
        mailbox = ANY(h.mailbox_ids)
        OR EXISTS (SELECT 1 FROM hold_messages x WHERE x.hold_id = h.id AND x.message_id = message)
        OR (h.addresses <> '{}' AND (
            EXISTS (SELECT 1 FROM participants p WHERE p.message_id = message AND p.address = ANY(h.addresses))
            OR EXISTS (SELECT 1 FROM mailboxes b WHERE b.id = mailbox AND lower(b.address) = ANY(h.addresses)))));
END $$;
CREATE FUNCTION refuse_deletion_on_hold() RETURNS trigger LANGUAGE plpgsql
    SET search_path = pg_catalog, public, pg_temp AS $$
DECLARE names text;
BEGIN
    PERFORM pg_advisory_xact_lock_shared(hashtextextended('archiver:holds', 0));
    IF current_setting('archiver.replays_deletions', true) IS DISTINCT FROM 'yes'
            AND EXISTS (SELECT 1 FROM holds WHERE released_at IS NULL) THEN
        SELECT string_agg(name, ', ' ORDER BY name) INTO names FROM holds_on(OLD.message_id, OLD.mailbox_id);
        IF names IS NOT NULL THEN
            RAISE EXCEPTION 'message % is on hold: %', OLD.message_id, names USING ERRCODE = 'restrict_violation';
        END IF;
        IF current_setting('archiver.holds_checked', true) IS DISTINCT FROM 'yes'
                AND EXISTS (SELECT 1 FROM holds WHERE released_at IS NULL AND query IS NOT NULL) THEN
            RAISE EXCEPTION 'message % was not compared with the queries of the holds', OLD.message_id
                USING ERRCODE = 'restrict_violation';
        END IF;
    END IF;
    IF TG_OP = 'DELETE' THEN
        RETURN OLD;
    END IF;
    RETURN NEW;
END $$;
CREATE TRIGGER refuse_marking_on_hold BEFORE UPDATE ON message_copies FOR EACH ROW
    WHEN (OLD.deleted_at IS NULL AND OLD.message_id IS NOT NULL
        AND (NEW.deleted_at IS NOT NULL OR NEW.message_id IS DISTINCT FROM OLD.message_id))
    EXECUTE FUNCTION refuse_deletion_on_hold();
CREATE TRIGGER refuse_removal_on_hold BEFORE DELETE ON message_copies FOR EACH ROW
    WHEN (OLD.deleted_at IS NULL AND OLD.message_id IS NOT NULL) EXECUTE FUNCTION refuse_deletion_on_hold();
"""


def upgrade() -> None:
    op.create_table(
        "holds",
        sa.Column("id", sa.UUID(), nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("reason", sa.Text(), nullable=False),
        sa.Column("mailbox_ids", postgresql.ARRAY(sa.UUID()), server_default=sa.text("'{}'::uuid[]"), nullable=False),
        sa.Column("addresses", postgresql.ARRAY(sa.Text()), server_default=sa.text("'{}'::text[]"), nullable=False),
        sa.Column("query", sa.Text(), nullable=True),
        sa.Column("zone", sa.Text(), server_default=sa.text("'UTC'"), nullable=False),
        sa.Column("created_by", sa.Text(), nullable=False),
        sa.Column("created_by_id", sa.UUID(), nullable=True),
        sa.Column("created_at", sa.DateTime(timezone=True), server_default=sa.text("now()"), nullable=False),
        sa.Column("evaluated_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("release_requested_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("release_requested_by", sa.Text(), nullable=True),
        sa.Column("release_requested_by_id", sa.UUID(), nullable=True),
        sa.Column("release_reason", sa.Text(), nullable=True),
        sa.Column("released_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("released_by", sa.Text(), nullable=True),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_holds")),
    )
    op.create_index(
        "uq_holds_name", "holds", [sa.text("lower(name)")], unique=True, postgresql_where=sa.text("released_at IS NULL")
    )
    op.create_table(
        "hold_messages",
        sa.Column("hold_id", sa.UUID(), nullable=False),
        sa.Column("message_id", sa.UUID(), nullable=False),
        sa.Column("is_selected", sa.Boolean(), server_default=sa.text("false"), nullable=False),
        sa.ForeignKeyConstraint(["hold_id"], ["holds.id"], name=op.f("fk_hold_messages_hold_id"), ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("hold_id", "message_id", name=op.f("pk_hold_messages")),
    )
    op.create_index(op.f("ix_hold_messages_message_id"), "hold_messages", ["message_id"], unique=False)
    op.execute(_GUARD)
