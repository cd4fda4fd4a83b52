"""What changes, from what is found and what is open; when quiet hours end; and the texts of all rules."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

import pytest

from archiver.alerts import wording
from archiver.alerts.addresses import AppriseAddress, MailAddress, WebhookAddress, parse_address
from archiver.alerts.channels import ChannelWishes, configured_channels
from archiver.alerts.conditions import CONDITIONS
from archiver.alerts.plan import Finding, OpenAlert, plan_changes
from archiver.alerts.quiet_hours import end_of_quiet
from archiver.alerts.rules import RULES
from archiver.alerts.summary import WeeklyFigures, compose_summary, due_since
from archiver.config import Settings
from archiver.db.ids import uuid7
from archiver.db.states import AlertSeverity
from archiver.errors import ConfigError, UsageError
from archiver.http.catalogue import Texts

NOW = datetime(2026, 11, 18, 12, 0, tzinfo=UTC)


def alert(rule: str, *, seen: int, since: int, raised: bool) -> OpenAlert:
    """`seen` and `since`: minutes ago."""
    first = NOW - timedelta(minutes=since)
    return OpenAlert(uuid7(), rule, "", first, NOW - timedelta(minutes=seen), first if raised else None)


def test_a_condition_has_to_hold_before_it_is_raised_and_to_be_gone_before_it_is_resolved() -> None:
    young, old = alert("gap", seen=1, since=59, raised=False), alert("gap", seen=1, since=60, raised=False)
    for one, expected in ((young, ()), (old, (old.id,))):
        changes = plan_changes([Finding("gap")], [one], RULES, frozenset(), NOW)
        assert (changes.begin, changes.raise_ids) == ((), expected)
    fresh, gone = alert("gap", seen=1, since=90, raised=True), alert("gap", seen=5, since=90, raised=True)
    assert plan_changes([], [fresh], RULES, frozenset(), NOW).resolve_ids == ()
    assert plan_changes([], [gone], RULES, frozenset(), NOW).resolve_ids == (gone.id,)


def test_what_goes_before_it_was_raised_is_forgotten_and_a_rule_that_could_not_be_checked_changes_nothing() -> None:
    pending, raised = alert("gap", seen=1, since=5, raised=False), alert("disk_full", seen=9, since=9, raised=True)
    changes = plan_changes([], [pending, raised], RULES, frozenset(), NOW)
    assert (changes.forget_ids, changes.resolve_ids) == ((pending.id,), (raised.id,))
    unchanged = plan_changes([], [pending, raised], RULES, frozenset({"gap", "disk_full"}), NOW)
    assert (unchanged.forget_ids, unchanged.resolve_ids) == ((), ())


def test_each_subject_has_an_alert_of_its_own() -> None:
    changes = plan_changes([Finding("gap", "a"), Finding("gap", "b"), Finding("gap", "a")], [], RULES, frozenset(), NOW)
    assert [one.subject for one in changes.begin] == ["a", "b"]


@pytest.mark.parametrize(
    ("at", "begin", "end", "expected"),
    [
        ("2026-11-18 23:30", "22:00", "07:00", "2026-11-19 07:00"),
        ("2026-11-19 03:00", "22:00", "07:00", "2026-11-19 07:00"),
        ("2026-11-18 12:00", "22:00", "07:00", None),
        ("2026-11-18 12:00", "12:00", "13:00", "2026-11-18 13:00"),
        ("2026-11-18 13:00", "12:00", "13:00", None),
        ("2026-11-18 12:00", None, None, None),
        ("2026-11-18 12:00", "12:00", "12:00", None),
        ("2026-03-28 23:30", "22:00", "07:00", "2026-03-29 07:00"),  # the clocks change in this night
    ],
)
def test_quiet_hours_end(at: str, begin: str | None, end: str | None, expected: str | None) -> None:
    zone = ZoneInfo("Europe/Berlin")
    found = end_of_quiet(datetime.fromisoformat(at).replace(tzinfo=zone), begin, end, zone)
    assert found == (datetime.fromisoformat(expected).replace(tzinfo=zone) if expected else None)


def test_every_rule_has_a_condition_and_texts_in_each_language() -> None:
    assert set(RULES) == set(CONDITIONS)
    english = wording.load_texts("en")
    for language in wording.known_languages():
        texts, page = wording.load_texts(language), Texts(language)
        assert set(texts["advice"]) == set(RULES)
        assert set(RULES) <= set(texts["title"])
        for rule in RULES.values():
            assert page(f"alert_rule.{rule.name}")
            assert rule.unit == "" or page(f"alert_unit.{rule.unit.lower()}")
        for group in ("title", "advice", "notice"):
            assert texts[group].keys() == english[group].keys()
            for name, text in texts[group].items():
                assert set(re.findall(r"\{(\w+)\}", text)) == set(re.findall(r"\{(\w+)\}", english[group][name])), name


def test_a_value_that_is_missing_does_not_lose_the_alert() -> None:
    assert wording.title("gap", "", {"source": "{work}", "n": 1}) == "“{work}”: a message is missing without an explanation"
    assert wording.title("gap", "", {"n": 2}) == "“{source}”: 2 messages are missing without an explanation"
    assert wording.title("of another version", "", {}) == "of another version"


def test_addresses() -> None:
    settings = Settings.model_validate({"smtp_url": "smtp://u:p%40ss@mail.example.org?from=archiver@example.org"})
    mail = parse_address("mailto:ann@example.org", settings)
    assert isinstance(mail, MailAddress)
    assert (mail.server.port, mail.server.password, mail.recipients) == (587, "p@ss", ("ann@example.org",))
    own = parse_address("smtps://h?from=a@b.c&to=d@e.f,g@h.i", settings)
    assert isinstance(own, MailAddress)
    assert (own.server.is_tls, own.recipients) == (True, ("d@e.f", "g@h.i"))
    hook = parse_address("https://hooks.example.org/x?y=1#s3cret", settings)
    assert hook == WebhookAddress("https://hooks.example.org/x?y=1", "s3cret")
    assert "s3cret" not in repr(hook) + hook.shown
    assert isinstance(parse_address("ntfys://ntfy.example.org/topic", settings), AppriseAddress)


@pytest.mark.parametrize(
    "address",
    ["", "x", "mailto:", "mailto:a b", "mailto:ann", "smtp://host?to=a@b.c", "smtp://?from=a@b.c&to=a@b.c", "https://",
     "https://host:99999/", "smtps://u:PASSWORD@h?from=a@b.c", "nosuchservice://PASSWORD@host", "mailto:a@b.c\nBcc:d@e.f"],
)  # fmt: skip
def test_a_wrong_address_gets_an_error_without_its_secret(address: str) -> None:
    with pytest.raises(UsageError) as error:
        parse_address(address, Settings.model_validate({"smtp_url": "smtp://h?from=a@b.c"}))
    assert "PASSWORD" not in str(error.value)


def test_configured_channels_have_ids_that_survive_a_restart() -> None:
    settings = Settings.model_validate({"alert_urls": "https://a.example/x#1  https://b.example/y"})
    first, second = configured_channels(settings), configured_channels(settings)
    assert [one.id for one in first] == [one.id for one in second]
    assert len({one.id for one in first}) == 2
    with pytest.raises(ConfigError, match=r"ALERT_URLS .*entry 2"):
        configured_channels(Settings.model_validate({"alert_urls": "https://a.example/x mailto:x"}))


def test_wishes() -> None:
    wishes = ChannelWishes(AlertSeverity.WARNING, muted=("gap",))
    assert not wishes.accepts("gap", AlertSeverity.CRITICAL)
    assert not wishes.accepts("disk_low", AlertSeverity.INFO)
    assert wishes.accepts("disk_low", AlertSeverity.CRITICAL)
    for wrong in ({"quiet_from": "22:00"}, {"quiet_from": "22:00", "quiet_until": "7"}, {"zone": "Nowhere"}, {"muted": ("x",)}):
        with pytest.raises(UsageError):
            ChannelWishes(**wrong).check()


def test_the_summary_is_due_on_mondays_at_seven() -> None:
    assert due_since(NOW) == datetime(2026, 11, 16, 7, tzinfo=UTC)
    assert due_since(datetime(2026, 11, 16, 6, 59, tzinfo=UTC)) == datetime(2026, 11, 9, 7, tzinfo=UTC)
    figures = WeeklyFigures(1200, 5_000_000, 3, 99_000, 2, 1, None, (("disk_full", "", {"gigabytes": "0.2", "folder": "/d"}),))
    text = compose_summary(figures, "en")
    assert "1,200 new messages (5.0 MB)" in text
    assert "2 messages are unexplained" in text
    assert text.endswith("- Archiving has stopped: only 0.2 GB are free on the disk of /d")
