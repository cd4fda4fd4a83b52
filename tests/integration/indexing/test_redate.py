"""A reindex gives mail of older releases the dates that it has by the rules of today."""

from __future__ import annotations

from datetime import UTC, datetime

from archiver.indexing.reindex import ReindexRun
from tests.integration.indexing.conftest import IndexWorld

COPIED = datetime(2026, 11, 1, tzinfo=UTC)


def mail(subject: str, date: str, received: str) -> bytes:
    trace = f"Received: from a by b; {received}\n" if received else ""
    return f"{trace}From: ann@example.org\nSubject: {subject}\nDate: {date}\n\n{subject}\n".encode()


def test_mail_that_was_copied_later_gets_its_own_date(at: IndexWorld) -> None:
    old = "Sun, 1 Mar 1998 10:00:00 +0000"
    mails = [mail("traced", old, old), mail("untraced", old, ""), mail("usual", "Sat, 31 Oct 2026 10:00:00 +0000", "")]
    at.put(*mails, received_at=COPIED)
    with at.engine.begin() as connection:  # as earlier releases have stored them
        connection.exec_driver_sql("UPDATE messages SET sort_at = received_at WHERE subject <> 'usual'")
    at.index()
    before = {found["subject"]: found["date"] for found in at.documents().values()}
    assert before["traced"] == COPIED.timestamp()
    while not ReindexRun(at.engine, at.archive, at.server, 2).run():
        pass
    dates = {row.subject: row.sort_at for row in at.rows("SELECT subject, sort_at FROM messages")}
    assert dates["traced"] == dates["untraced"] == datetime(1998, 3, 1, 10, tzinfo=UTC)
    assert dates["usual"] == datetime(2026, 10, 31, 10, tzinfo=UTC)
    assert {found["subject"]: found["date"] for found in at.documents().values()} == {
        subject: date.timestamp() for subject, date in dates.items()
    }
    at.assert_agrees()
