from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone

import pytest
from pydantic import ValidationError

from connectors.selection import FolderRole, SourceSettings, date_rule, folder_rule, mailbox_rule, matches, rules_digest


@pytest.mark.parametrize(
    ("pattern", "text", "expected"),
    [
        ("INBOX", "inbox", True),
        ("INBOX", "INBOX/Sub", False),
        ("INBOX*", "INBOX/Sub", True),
        ("Projects/*", "Projects/2024/North", True),
        ("[Gmail]/*", "[Gmail]/All Mail", True),
        ("[Gmail]/*", "G/All Mail", False),
        ("a?c", "abc", True),
        ("a?c", "abbc", False),
        ("a.c", "abc", False),
        ("ÜBER*", "übersicht", True),
        ("*@example.org", "Anna@Example.ORG", True),
        ("", "", True),
        ("*", "line\nbreak", True),
    ],
)
def test_patterns(pattern: str, text: str, expected: bool) -> None:
    assert matches(pattern, text) is expected


def test_a_mailbox_is_wanted_unless_a_rule_says_otherwise() -> None:
    settings = SourceSettings(mailboxes_in=("*@example.org",), mailboxes_out=("bot*",))
    assert mailbox_rule(SourceSettings(), "anyone@anywhere.example") is None
    assert mailbox_rule(settings, "Anna@example.org") is None
    assert mailbox_rule(settings, "bot7@example.org") == "mailboxes_out: bot*"
    assert mailbox_rule(settings, "anna@example.net") == "mailboxes_in: *@example.org"


@pytest.mark.parametrize(
    ("role", "setting"), [(FolderRole.SPAM, "spam"), (FolderRole.TRASH, "trash"), (FolderRole.DRAFTS, "drafts")]
)
def test_some_roles_are_left_out_unless_asked_for(role: FolderRole, setting: str) -> None:
    assert folder_rule(SourceSettings(), "Anything", role) == f"include_{setting}: no"
    assert folder_rule(SourceSettings.model_validate({f"include_{setting}": True}), "Anything", role) is None
    assert folder_rule(SourceSettings(folders_in=("Any*",)), "Anything", role) is None


def test_a_folder_that_is_out_is_out_in_any_role() -> None:
    settings = SourceSettings(folders_in=("A*",), folders_out=("Archive/Old",), include_trash=True)
    assert folder_rule(settings, "Archive/Old", FolderRole.TRASH) == "folders_out: Archive/Old"
    assert folder_rule(settings, "Archive") is None
    assert folder_rule(settings, "INBOX", FolderRole.INBOX) == "folders_in: A*"


def test_dates_are_days_in_utc() -> None:
    settings = SourceSettings.model_validate({"date_from": "2024-05-02"})
    midnight = datetime(2024, 5, 2, tzinfo=UTC)
    assert date_rule(settings, midnight) is None
    assert date_rule(settings, midnight - timedelta(seconds=1)) == "date_from: 2024-05-02"
    assert date_rule(settings, datetime(2024, 5, 2, 1, tzinfo=timezone(timedelta(hours=2)))) == "date_from: 2024-05-02"
    assert date_rule(settings, None) is None
    assert date_rule(SourceSettings(), midnight) is None


def test_the_last_day_is_included() -> None:
    settings = SourceSettings.model_validate({"date_from": "2024-05-02", "date_to": "2024-05-02"})
    midnight = datetime(2024, 5, 2, tzinfo=UTC)
    assert date_rule(settings, midnight + timedelta(hours=23, minutes=59)) is None
    assert date_rule(settings, midnight + timedelta(days=1)) == "date_to: 2024-05-02"
    assert date_rule(settings, midnight - timedelta(days=1)) == "date_from: 2024-05-02"
    assert date_rule(SourceSettings.model_validate({"date_to": "2024-05-02"}), None) is None
    with pytest.raises(ValidationError, match="before date_from"):
        SourceSettings.model_validate({"date_from": "2024-05-02", "date_to": "2024-05-01"})


def test_lists_can_be_given_as_text() -> None:
    assert SourceSettings.model_validate({"folders_out": "Junk, Old stuff ,"}).folders_out == ("Junk", "Old stuff")


def test_unknown_settings_are_refused() -> None:
    with pytest.raises(ValidationError, match="folder_out"):
        SourceSettings.model_validate({"folder_out": "Junk"})


def test_the_digest_follows_the_rules_that_choose_messages() -> None:
    plain = rules_digest(SourceSettings())
    assert rules_digest(SourceSettings(schedule="0 3 * * *", mailboxes_out=("x",))) == plain
    assert plain == "51fca03e12a3", "the cursors of earlier releases stay valid"
    others = [
        {"folders_in": "A"},
        {"folders_out": "A"},
        {"date_from": "2024-01-01"},
        {"date_to": "2024-01-01"},
        {"include_spam": True},
    ]
    digests = {rules_digest(SourceSettings.model_validate(other)) for other in others}
    assert len(digests | {plain}) == len(others) + 1
