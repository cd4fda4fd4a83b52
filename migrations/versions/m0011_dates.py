"""Dates between 1970 and 2200 only: others could be stored, but not be read, and stopped the index for all"""

from alembic import op

revision = "0011"
down_revision = "0010"
branch_labels = None
depends_on = None

_RANGE = "{0} >= '1970-01-01 00:00:00+00' AND {0} < '2201-01-01 00:00:00+00'"
_COLUMNS = (("messages", "sent_at"), ("messages", "received_at"), ("messages", "sort_at"), ("message_copies", "received_at"))


def upgrade() -> None:
    _mend()
    for table, column in _COLUMNS:
        name = f"ck_{table}_{column}_range"
        op.execute(f"ALTER TABLE {table} ADD CONSTRAINT {name} CHECK ({_RANGE.format(column)}) NOT VALID")
    for table, column in _COLUMNS:
        op.execute(f"ALTER TABLE {table} VALIDATE CONSTRAINT ck_{table}_{column}_range")


def _mend() -> None:
    """What is out of range is absent from now on; a defect of the message says what it was. Its document is made anew."""
    op.execute(f"""
        UPDATE messages m SET
            sent_at = CASE WHEN {_RANGE.format("sent_at")} THEN sent_at END,
            received_at = CASE WHEN {_RANGE.format("received_at")} THEN received_at END,
            sort_at = CASE WHEN {_RANGE.format("sort_at")} THEN sort_at
                WHEN {_RANGE.format("received_at")} THEN received_at
                WHEN {_RANGE.format("sent_at")} THEN sent_at
                ELSE '1970-01-01 00:00:00+00' END,
            date_origin = CASE
                WHEN {_RANGE.format("sent_at")} THEN 'header'
                WHEN {_RANGE.format("received_at")} THEN CASE date_origin WHEN 'received' THEN 'received' ELSE 'server' END
                ELSE 'none' END,
            defects = defects
                || CASE WHEN {_RANGE.format("sent_at")} OR sent_at IS NULL THEN '[]'::jsonb
                    ELSE jsonb_build_array('date_out_of_range: ' || sent_at::text) END
                || CASE WHEN {_RANGE.format("received_at")} OR received_at IS NULL THEN '[]'::jsonb
                    ELSE jsonb_build_array('server_date_out_of_range: ' || received_at::text) END,
            index_version = index_version + 1
        WHERE NOT ({_RANGE.format("sent_at")}) OR NOT ({_RANGE.format("received_at")}) OR NOT ({_RANGE.format("sort_at")})""")  # noqa: S608
    op.execute(f"UPDATE message_copies SET received_at = NULL WHERE NOT ({_RANGE.format('received_at')})")  # noqa: S608
