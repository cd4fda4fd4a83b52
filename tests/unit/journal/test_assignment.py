"""Which mailboxes a journalled mail belongs to, and what each may know."""

from __future__ import annotations

from datetime import UTC, datetime

from archiver.journal.assignment import UNASSIGNED, OwnDomains, assign
from archiver.journal.envelope import JournalEnvelope
from archiver.mail.formats.journal_reports import read_journal_report
from archiver.mail.routing import MailRoute, read_route
from tests.support.journal_reports import ORIGINAL, report

OWN = OwnDomains.of(["example.org"], ["journal@example.org", "@archive.example"])


def _envelope(sender: str = "", *recipients: str) -> JournalEnvelope:
    return JournalEnvelope(datetime.now(UTC), "127.0.0.1", sender, recipients or ("journal@archive.example",))


def test_the_sender_sees_all_recipients_and_each_recipient_only_themselves() -> None:
    found = {one.mailbox: one.recipients for one in assign(OWN, _envelope(), None, read_journal_report(report()))}
    everybody = ("bcc:carol@example.org", "cc:outside@elsewhere.example", "list:staff@example.org", "to:bob@example.org")
    assert found == {
        "alice@example.org": everybody,
        "bob@example.org": ("list:staff@example.org", "to:bob@example.org"),
        "carol@example.org": ("bcc:carol@example.org",),
    }


def test_a_plain_copy_goes_by_its_header_and_envelope() -> None:
    envelope = _envelope("alice@example.org", "journal@example.org", "dan@example.org")
    found = {one.mailbox: one.recipients for one in assign(OWN, envelope, read_route(ORIGINAL), None)}
    assert found == {
        "alice@example.org": ("recipient:dan@example.org",),
        "dan@example.org": ("recipient:dan@example.org",),
        "staff@example.org": (),
    }


def test_a_routing_copy_of_google_names_the_recipient_in_its_header() -> None:
    raw = b"From: x@elsewhere.example\r\nTo: list@elsewhere.example\r\nX-Gm-Original-To: Erin@example.org\r\n\r\n"
    (one,) = assign(OWN, _envelope("x@elsewhere.example"), read_route(raw), None)
    assert (one.mailbox, one.recipients) == ("erin@example.org", ("recipient:erin@example.org",))


def test_the_rest_is_unassigned() -> None:
    stranger = MailRoute(("x@elsewhere.example",), ("y@sub.example.org",), (), False)
    assert [one.mailbox for one in assign(OWN, _envelope("x@elsewhere.example"), stranger, None)] == [UNASSIGNED]
    assert [one.mailbox for one in assign(OWN, _envelope(), None, None)] == [UNASSIGNED]
    assert [one.mailbox for one in assign(OwnDomains.of([], []), _envelope(), None, read_journal_report(report()))] == [
        UNASSIGNED
    ]
