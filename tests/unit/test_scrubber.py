"""What a support bundle keeps of an error message, and what it does not."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from archiver.maintenance.support.scrubber import Scrubber

SCRUBBER = Scrubber.of(["hunter2-hunter2", "p w"], ["Legal department", "mail.corp.example"], b"key")


@pytest.mark.parametrize(
    ("text", "kept", "gone"),
    [
        ("login failed for ann@corp.example: code 535", "login failed for", "ann"),
        ("can't open /home/ann/mail/inbox.mbox: no such file", "no such file", "inbox"),
        ("folder 'Divorce papers' vanished", "vanished", "Divorce"),
        ('header "Secret plan" is invalid', "is invalid", "plan"),
        ("GET https://graph.example/v1/users/ann?token=abc: 500", "GET", "graph"),
        ("connection to 10.1.2.3 refused", "refused", "10.1.2.3"),
        ("cannot resolve imap.corp.example", "cannot resolve", "corp"),
        ("cannot resolve imap.münchen.example", "cannot resolve", "nchen"),
        ("Ordner »Privat« fehlt", "fehlt", "Privat"),
        ("the server said “no such folder: Divorce", "the server said", "Divorce"),
        ("password hunter2-hunter2 was wrong", "was wrong", "hunter2"),
        ("the source LEGAL DEPARTMENT failed 3 times", "failed 3 times", "LEGAL"),
        ("bearer eyJhbGciOiJIUzI1NiIsInR5cCI6IkpXVCJ9", "bearer", "eyJ"),
    ],
)
def test_the_error_stays_and_names_go(text: str, kept: str, gone: str) -> None:
    found = SCRUBBER.text(text)
    assert kept in found
    assert gone not in found


def test_ids_numbers_and_our_own_words_stay() -> None:
    event = {
        "event": "batch_stored",
        "source": "0190aaaa-bbbb-7ccc-8ddd-eeeeffff0000",
        "messages": 200,
        "note": "ann@corp.example",
    }
    found = SCRUBBER.event(event)
    assert found["source"] == event["source"]
    assert (found["event"], found["messages"]) == ("batch_stored", 200)
    assert "ann" not in found["note"]


def test_a_traceback_keeps_its_places_and_its_type() -> None:
    trace = (
        "Traceback (most recent call last):\n"
        '  File "/home/ann/.venv/lib/site-packages/imapclient/client.py", line 12, in login\n'
        '    self.login("ann", "hunter2-hunter2")\n'
        "connectors.errors.AuthFailed: refused for 'ann@corp.example'"
    )
    found = SCRUBBER.traceback(trace)
    assert "site-packages/imapclient/client.py, line 12, in login" in found
    assert "connectors.errors.AuthFailed" in found
    assert "ann" not in found
    assert "hunter2" not in found


def test_the_same_name_has_the_same_mark_in_one_bundle_only() -> None:
    other = Scrubber.of([], [], b"another key")
    assert SCRUBBER.text("x ann@corp.example") == SCRUBBER.text("x ANN@corp.example")
    assert SCRUBBER.text("x ann@corp.example") != other.text("x ann@corp.example")


@given(
    before=st.text(max_size=50),
    secret=st.text(alphabet=st.characters(codec="utf-8"), min_size=6, max_size=40),
    after=st.text(max_size=50),
)
def test_no_secret_survives(before: str, secret: str, after: str) -> None:
    scrubber = Scrubber.of([secret], [], b"key")
    for found in (
        scrubber.text(before + secret + after),
        str(scrubber.event({"error": before + secret + after, "event": secret})),
    ):
        assert not scrubber.contains_secret(found) or secret in "<secret>"


def test_a_long_text_is_cut() -> None:
    assert len(SCRUBBER.text("word " * 10_000)) <= 4_000


def test_a_secret_at_the_cut_leaves_no_part_of_itself() -> None:
    assert "hunter" not in SCRUBBER.text("." * 3_990 + "hunter2-hunter2")
