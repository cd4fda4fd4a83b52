"""Attachments that are read once more: by a better extractor, or because their pictures may hold text"""

import sqlalchemy as sa
from alembic import op

from migrations import indexes

revision = "0016"
down_revision = "0015"
branch_labels = None
depends_on = None

# Of pictures, sounds and videos, version 2 of the extractor reads no more than version 1.
_UNCHANGED = """
    UPDATE attachments SET extractor_version = 2, needs_ocr = media_type LIKE 'image/%' AND size_bytes >= 10240
    WHERE extractor_version = 1 AND text_state = 'empty'
        AND (media_type LIKE 'image/%' OR media_type LIKE 'audio/%' OR media_type LIKE 'video/%')"""


def upgrade() -> None:
    op.add_column(
        "attachments", sa.Column("needs_ocr", sa.Boolean(), server_default=sa.text("false"), nullable=False), if_not_exists=True
    )
    indexes.create("ix_attachments_needs_ocr", "attachments", ["sha256"], where="needs_ocr")
    indexes.create("ix_attachments_extractor_version", "attachments", ["extractor_version"], where="extractor_version > 0")
    op.execute(_UNCHANGED)
