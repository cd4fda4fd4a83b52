"""What the connectors decide without a server: which messages are fetched, skipped, changed and listed."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, date, datetime
from typing import Any

import pytest

from connectors.base import ChangeKind, CopyChange, Skipped
from connectors.google import plan as google
from connectors.google.changes import News
from connectors.google.settings import GmailSettings
from connectors.imap import plan as imap
from connectors.imap.cursor import ImapCursor
from connectors.imap.folders import ImapFolder, Status
from connectors.imap.message import Meta
from connectors.imap.settings import ImapSettings
from connectors.microsoft import plan as microsoft
from connectors.microsoft.cursor import MicrosoftCursor
from connectors.microsoft.folders import GraphFolder
from connectors.microsoft.metadata import MessageMetadata
from connectors.microsoft.settings import OutlookSettings
from connectors.selection import FolderRole

OPENED = Status(messages=10, uid_validity=7, uid_next=21, modseq=99)


def test_an_imap_folder_starts_over_with_its_uidvalidity() -> None:
    cursor = ImapCursor(validity=7, uid=20, count=10, rules="r", day=5)
    assert imap.start_cursor(cursor, OPENED, "r", frozenset(), "") == cursor
    for changed, rules in ((replace(cursor, validity=6), "r"), (cursor, "other rules")):
        assert imap.start_cursor(changed, OPENED, rules, frozenset(), "") == ImapCursor(validity=7, rules=rules)


@pytest.mark.parametrize(
    ("cursor", "new", "is_needed"),
    [
        (ImapCursor(count=10, day=5), 0, False),
        (ImapCursor(count=8, day=5), 2, False),
        (ImapCursor(count=8, day=5), 3, True),
        (ImapCursor(count=11, day=5), 0, True),
        (ImapCursor(count=10, day=4), 0, True),
        (ImapCursor(count=-1, day=5), 10, True),
    ],
)
def test_an_imap_folder_is_listed_when_its_count_is_unexplained(cursor: ImapCursor, new: int, is_needed: bool) -> None:
    assert imap.needs_listing(cursor, OPENED, new, day=5) is is_needed


def test_the_cursor_after_a_pass_has_the_numbers_from_before_it() -> None:
    done = imap.finish_cursor(ImapCursor(validity=7, uid=3, rules="r", day=5), OPENED, last_uid=20, count=10)
    assert done == ImapCursor(validity=7, uid=20, count=10, uid_next=21, modseq=99, rules="r", day=5)
    assert done.is_unchanged(OPENED, "r", 5)


def test_one_key_is_fetched_once() -> None:
    metas = [Meta(1, "a", "f"), Meta(2, "b", "f"), Meta(3, "a", "f"), Meta(4, "c", "f")]
    assert list(imap.once_each(metas, {"c"})) == [1, 2]


def test_of_gmail_only_all_mail_spam_and_trash_are_read() -> None:
    def folder(name: str, role: FolderRole | None = None, *attributes: str) -> ImapFolder:
        return ImapFolder(name, name.encode(), frozenset(attributes), role)

    listed = [
        folder("INBOX"),
        folder("[Gmail]/All Mail", None, "\\all"),
        folder("[Gmail]/Spam", FolderRole.SPAM),
        folder("[Gmail]/Trash", FolderRole.TRASH),
    ]
    settings = ImapSettings(host="imap.example.org", user="a@example.org")
    names = [one.name for one in imap.wanted_folders(listed, frozenset({"X-GM-EXT-1"}), settings)]
    assert names == ["[Gmail]/All Mail", "[Gmail]/Spam", "[Gmail]/Trash"]
    assert imap.wanted_folders(listed, frozenset(), settings) == listed


def gmail(**more: Any) -> GmailSettings:
    return GmailSettings(client_id="c", address="a@gmail.com", **more)


def test_a_date_rule_lists_what_is_excluded_too() -> None:
    parts = google.mailbox_parts(gmail(date_from=date(2020, 1, 1)))
    assert [part.name for part in parts] == ["all", "newest", "old", "SPAM", "TRASH"]
    assert parts[0].parameters == {"q": "after:1577836799"}
    assert (parts[2].parameters, parts[2].rule) == ({"q": "before:1577836800"}, "date_from: 2020-01-01")
    assert parts[2].needs_lookup, "the newest page may have listed it"
    assert not parts[3].needs_lookup
    assert parts[3].rule == "include_spam: no"


def test_a_last_day_lists_what_came_later_too() -> None:
    parts = google.mailbox_parts(gmail(date_to=date(2020, 1, 1)))
    assert [part.name for part in parts] == ["all", "newest", "later", "SPAM", "TRASH"]
    assert parts[0].parameters == {"q": "before:1577923200"}
    assert (parts[2].parameters, parts[2].rule) == ({"q": "after:1577923199"}, "date_to: 2020-01-01")
    both = google.mailbox_parts(gmail(date_from=date(2020, 1, 1), date_to=date(2020, 1, 1)))
    assert both[0].parameters == {"q": "after:1577836799 before:1577923200"}
    assert [part.name for part in both][:4] == ["all", "newest", "old", "later"]


def test_chosen_labels_are_listed_and_the_rest_is_excluded() -> None:
    parts = google.label_parts(gmail(folders_in=["Work*"]), {"L1": "Work", "L2": "Play", "L3": "Work/Old"})
    assert [part.name for part in parts] == ["L1", "L3", "rest"]
    assert parts[-1].rule == "folders_in: Work*"


def test_a_page_of_gmail() -> None:
    part = google.ListingPart("all", {})
    plan = google.plan_page(part, ["a", "b", "c"], held={"a"}, drafts={"b"})
    assert plan == google.MessagePlan(("c",), (Skipped("b", "include_drafts: no", "All Mail"),))


def test_the_history_of_gmail() -> None:
    news = News({"new": ("INBOX",), "spam": ("SPAM",), "known": ("INBOX", "L1"), "unsaid": None, "later": None}, {"gone": None})
    plan = google.plan_news(news, {"known", "unsaid"}, {"unsaid": ("SENT",)}, {"L1": "Work"}, gmail())
    assert plan.todo == ("new", "later")
    assert [one.provider_key for one in plan.skipped] == ["spam"]
    assert plan.changes[0] == CopyChange(ChangeKind.GONE, "gone")
    assert [(one.provider_key, one.labels) for one in plan.changes[1:]] == [("known", ("Inbox", "Work")), ("unsaid", ("Sent",))]


def test_the_keys_of_a_listing_are_reported_in_pieces() -> None:
    listing = google.ListingKeys(is_continued=False)
    listing.add(["a", "b"])
    piece = listing.piece()
    assert piece is not None
    assert (piece.provider_keys, piece.is_continued, piece.is_whole) == (("a", "b"), False, False)
    assert listing.piece() is None
    listing.add(["c"])
    last = listing.piece(is_last=True)
    assert last is not None
    assert (last.provider_keys, last.is_whole) == (("a", "b", "c"), True)


INBOX = GraphFolder("f", "Inbox", FolderRole.INBOX, 3)


def entry(key: str, **more: Any) -> MessageMetadata:
    given = {"received_at": datetime(2024, 1, 1, tzinfo=UTC), **more}
    return MessageMetadata(key=key, **given)


def test_a_page_of_graph() -> None:
    settings = OutlookSettings(client_id="c", date_from=date(2020, 1, 1))
    old = entry("old", received_at=datetime(2019, 1, 1, tzinfo=UTC))
    entries = [entry("new"), old, entry("held"), entry("moved", is_removed=True), entry("never seen", is_removed=True)]
    plan = microsoft.plan_page(INBOX, MicrosoftCursor(), entries, {"held", "moved"}, settings)
    assert list(plan.wanted) == ["new"]
    assert [(one.provider_key, one.rule) for one in plan.skipped.values()] == [("old", "date_from: 2020-01-01")]
    assert [one.provider_key for one in plan.changes] == ["held"]
    assert plan.left_folder == ("moved",)


def test_a_changed_draft_is_downloaded_again() -> None:
    settings = OutlookSettings(client_id="c", include_drafts=True)
    draft = [entry("draft", is_draft=True)]
    assert list(microsoft.plan_page(INBOX, MicrosoftCursor(is_full=False), draft, {"draft"}, settings).wanted) == ["draft"]
    assert not microsoft.plan_page(INBOX, MicrosoftCursor(is_full=True), draft, {"draft"}, settings).wanted


def test_the_listing_of_a_folder_of_graph_in_pages() -> None:
    first, second = MicrosoftCursor(), MicrosoftCursor(link="2")
    done = MicrosoftCursor(link="delta", is_full=False)
    only = microsoft.page_listing(INBOX, first, [entry("a")], done)
    assert only is not None
    assert only.is_whole
    begin = microsoft.page_listing(INBOX, first, [entry("a")], second)
    end = microsoft.page_listing(INBOX, second, [entry("b")], done)
    assert begin is not None
    assert end is not None
    assert [(one.is_continued, one.is_whole) for one in (begin, end)] == [(False, False), (True, False)]
    assert microsoft.page_listing(INBOX, done, [entry("c")], done) is None, "a change, not a listing"


def test_few_folders_are_requested_at_once() -> None:
    folders = [replace(INBOX, id=str(number), total=total) for number, total in enumerate((10, 30, 20, 5))]
    assert [folder.id for folder in microsoft.first_few(folders)] == ["0", "1"]
    assert [folder.id for folder in microsoft.first_few([replace(INBOX, total=5000), *folders])] == ["f"]
