"""Recipients that a journal recorded are found by readers of the copy that has them, and by nobody else."""

from __future__ import annotations

from datetime import UTC, datetime
from uuid import UUID
from zoneinfo import ZoneInfo

import pytest

from archiver.mail.message import read_message
from archiver.search.document import IndexedCopy, Inputs, build_document
from archiver.search.query.compiler import compile_query
from archiver.search.query.parser import parse
from tests.support.journal_reports import ORIGINAL

ALICE, BOB, CAROL, SOURCE = (UUID(int=number) for number in range(1, 5))
COPIES = (
    IndexedCopy(ALICE, SOURCE, "Journal", (), ("bcc:carol@example.org", "to:bob@example.org")),
    IndexedCopy(BOB, SOURCE, "Journal", (), ("to:bob@example.org",)),
    IndexedCopy(CAROL, SOURCE, "Journal", (), ("bcc:carol@example.org",)),
)


def _finds(query: str, visible: frozenset[UUID] | None) -> bool:
    document = build_document(
        Inputs(UUID(int=9), 1, b"x" * 32, datetime(2026, 11, 2, tzinfo=UTC), 100, read_message(ORIGINAL), copies=COPIES)
    )
    tree = parse(query, datetime.now(UTC), ZoneInfo("UTC"))
    (search,) = compile_query(tree, query, None, visible)  # type: ignore[arg-type]
    tokens = {*document["recipient"], *document["any_recipient"]}
    return any(f'"{one}"' in search.filter for one in tokens)


@pytest.mark.parametrize("query", ["bcc:carol@example.org", "bcc:@example.org", "participant:carol@example.org"])
def test_a_blind_copy_is_found_by_its_sender_its_recipient_and_who_reads_all(query: str) -> None:
    assert _finds(query, frozenset({ALICE}))
    assert _finds(query, frozenset({CAROL}))
    assert _finds(query, None)
    assert not _finds(query, frozenset({BOB}))


def test_other_recipients_are_found_by_their_role() -> None:
    assert _finds("to:bob@example.org", frozenset({BOB}))
    assert not _finds("to:bob@example.org", frozenset({CAROL}))
    assert not _finds("cc:bob@example.org", None)
    assert not _finds("from:bob@example.org", None)
