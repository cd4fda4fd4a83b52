"""Workflows: their runs, and the steps of each"""

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import postgresql

revision = "0018"
down_revision = "0017"
branch_labels = None
depends_on = None

_RUN_STATES = "state IN ('queued', 'running', 'rolling_back', 'done', 'failed', 'cancelled')"
_STEP_STATES = "state IN ('waiting', 'running', 'done', 'failed', 'skipped', 'undoing', 'undone', 'undo_failed')"


def upgrade() -> None:
    _runs()
    _steps()


def _runs() -> None:
    now, moment = sa.text("now()"), sa.DateTime(timezone=True)
    op.create_table(
        "workflow_runs",
        sa.Column("id", sa.UUID(), nullable=False),
        sa.Column("workflow", sa.Text(), nullable=False),
        sa.Column("version", sa.BigInteger(), nullable=False),
        sa.Column("owner", sa.Text(), nullable=False),
        sa.Column("owner_name", sa.Text(), nullable=False),
        sa.Column("key", sa.Text(), nullable=True),
        sa.Column("correlation_id", sa.Text(), nullable=False),
        sa.Column("input", postgresql.JSONB(), server_default=sa.text("'{}'::jsonb"), nullable=False),
        sa.Column("state", sa.Text(), server_default="queued", nullable=False),
        sa.Column("error", sa.Text(), nullable=True),
        sa.Column("cancel_requested_at", moment, nullable=True),
        sa.Column("created_at", moment, server_default=now, nullable=False),
        sa.Column("started_at", moment, nullable=True),
        sa.Column("finished_at", moment, nullable=True),
        sa.CheckConstraint(_RUN_STATES, name=op.f("ck_workflow_runs_state")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_workflow_runs")),
    )
    keyed, is_open = sa.text("key IS NOT NULL"), sa.text("state IN ('queued', 'running', 'rolling_back')")
    ended = sa.text("state IN ('done', 'failed', 'cancelled')")
    op.create_index("uq_workflow_runs_key", "workflow_runs", ["workflow", "owner", "key"], unique=True, postgresql_where=keyed)
    op.create_index("ix_workflow_runs_open", "workflow_runs", ["workflow", "owner"], postgresql_where=is_open)
    op.create_index(
        "ix_workflow_runs_ended", "workflow_runs", ["workflow", sa.text("finished_at DESC")], postgresql_where=ended
    )


def _steps() -> None:
    now, zero, moment = sa.text("now()"), sa.text("0"), sa.DateTime(timezone=True)
    op.create_table(
        "workflow_steps",
        sa.Column("run_id", sa.UUID(), nullable=False),
        sa.Column("step", sa.Text(), nullable=False),
        sa.Column("part", sa.BigInteger(), nullable=False),
        sa.Column("group_number", sa.BigInteger(), nullable=False),
        sa.Column("position", sa.BigInteger(), nullable=False),
        sa.Column("state", sa.Text(), server_default="waiting", nullable=False),
        sa.Column("attempts", sa.BigInteger(), server_default=zero, nullable=False),
        sa.Column("attempts_allowed", sa.BigInteger(), nullable=False),
        sa.Column("undo_attempts", sa.BigInteger(), server_default=zero, nullable=False),
        sa.Column("fence", sa.BigInteger(), server_default=zero, nullable=False),
        sa.Column("doorbell", sa.UUID(), nullable=True),
        sa.Column("available_at", moment, server_default=now, nullable=False),
        sa.Column("result", postgresql.JSONB(), nullable=True),
        sa.Column("progress_done", sa.BigInteger(), server_default=zero, nullable=False),
        sa.Column("progress_total", sa.BigInteger(), server_default=zero, nullable=False),
        sa.Column("error", sa.Text(), nullable=True),
        sa.Column("started_at", moment, nullable=True),
        sa.Column("finished_at", moment, nullable=True),
        sa.CheckConstraint(_STEP_STATES, name=op.f("ck_workflow_steps_state")),
        sa.ForeignKeyConstraint(["run_id"], ["workflow_runs.id"], name=op.f("fk_workflow_steps_run_id"), ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("run_id", "step", "part", name=op.f("pk_workflow_steps")),
    )
