"""Counters that survive a restart of Redis; memory, processor time and jobs of each worker process"""

import sqlalchemy as sa
from alembic import op

revision = "0021"
down_revision = "0020"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "metric_counters",
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("labels", sa.Text(), nullable=False),
        sa.Column("value", sa.Float(), nullable=False),
        sa.PrimaryKeyConstraint("name", "labels", name=op.f("pk_metric_counters")),
    )
    zero = sa.text("0")
    op.add_column("worker_processes", sa.Column("resident_bytes", sa.BigInteger(), server_default=zero, nullable=False))
    op.add_column("worker_processes", sa.Column("cpu_seconds", sa.Float(), server_default=zero, nullable=False))
    op.add_column("worker_processes", sa.Column("running_jobs", sa.BigInteger(), server_default=zero, nullable=False))
