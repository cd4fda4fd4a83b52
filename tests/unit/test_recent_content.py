"""What was parsed a moment ago is not parsed again, and is soon forgotten."""

from __future__ import annotations

from archiver.reading.content import MailContent, RecentContent


def test_kept_for_a_moment_and_no_more_than_some() -> None:
    recent = RecentContent()
    for number in range(100):
        recent.put((bytes([number]), "cid"), MailContent(opened=True, text=str(number)))
    assert recent.get((bytes([0]), "cid")) is None
    newest = recent.get((bytes([99]), "cid"))
    assert newest is not None
    assert newest.text == "99"
    assert recent.get((bytes([99]), "elsewhere")) is None


def test_large_content_and_old_content_are_not_kept() -> None:
    recent = RecentContent()
    recent.put((b"a", "cid"), MailContent(opened=True, text="x" * 300_000))
    assert recent.get((b"a", "cid")) is None
    forgetful = RecentContent(seconds=-1)
    forgetful.put((b"a", "cid"), MailContent(opened=True))
    assert forgetful.get((b"a", "cid")) is None
