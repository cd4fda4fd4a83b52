"""Counts with their nouns."""

import pytest

from archiver.quantity import quantity


@pytest.mark.parametrize(
    ("number", "noun", "expected"),
    [
        (0, "message", "0 messages"),
        (1, "message", "1 message"),
        (1234, "message", "1,234 messages"),
        (1, "copy", "1 copy"),
        (2, "copy", "2 copies"),
        (2, "key", "2 keys"),
        (3, "mailbox", "3 mailboxes"),
        (2, "dead letter", "2 dead letters"),
    ],
)
def test_a_noun_is_in_the_number_of_its_count(number: int, noun: str, expected: str) -> None:
    assert quantity(number, noun) == expected
