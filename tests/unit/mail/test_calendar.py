"""Calendar invitations: what their parameters may look like, and what must not cost time."""

import pytest

from archiver.mail.formats.calendar import read_calendar


def invitation(line: str) -> str:
    return f"BEGIN:VCALENDAR\nBEGIN:VEVENT\n{line}\nEND:VEVENT\nEND:VCALENDAR\n"


@pytest.mark.parametrize(
    ("line", "attendee"),
    [
        ("ATTENDEE;CN=Ada:mailto:ada@example.org", "Ada <ada@example.org>"),
        ('ATTENDEE;CN="Lovelace; Ada: Countess":mailto:ada@example.org', "Lovelace; Ada: Countess <ada@example.org>"),
        ('ATTENDEE;MEMBER="mailto:a@x","mailto:b@x";CN=Ada:mailto:ada@example.org', "Ada <ada@example.org>"),
        ('ATTENDEE;CN=Ada "the 1st:mailto:ada@example.org', 'Ada "the 1st <ada@example.org>'),
        ("ATTENDEE;X=a=b;CN=Ada:mailto:ada@example.org", "Ada <ada@example.org>"),
        ("ATTENDEE;CN=:mailto:ada@example.org", "ada@example.org"),
    ],
)
def test_parameters(line: str, attendee: str) -> None:
    assert read_calendar(invitation(line))[0].attendees == (attendee,)


def test_parameters_that_never_end_are_no_property() -> None:
    """471 bytes of these took longer than anybody has."""
    hostile = "ATTENDEE" + ';a="b"' * 40 + ";x"
    assert read_calendar(invitation(f"{hostile}\nSUMMARY:tea"))[0].summary == "tea"
