"""Keys by which messages find their thread."""

from datetime import timedelta

import pytest

from archiver.mail.header.headers import read_headers
from archiver.mail.threads import ThreadKeys, normalise_subject, thread_keys

SUBJECTS = {
    "Lunch": ("lunch", False),
    "Re: Lunch": ("lunch", True),
    "RE: re:  Lunch ": ("lunch", True),
    "AW: WG: Lunch": ("lunch", True),
    "Re[2]: Lunch": ("lunch", True),
    "[list] Re: [list] Lunch": ("lunch", True),
    "Fwd: Lunch": ("lunch", True),
    "[Fwd: Lunch]": ("lunch", True),
    "回复：Lunch": ("lunch", True),
    "Re:": ("", True),
    "Re: ?": ("", True),
    "": ("", False),
    "Re: [PATCH v2 3/7] mm: fix leak": ("[patch v2 3/7] mm: fix leak", True),
    "[PATCH] mm: fix leak": ("[patch] mm: fix leak", False),
    "[git pull] mm": ("[git pull] mm", False),
    "[Bug 1234] Crash": ("[bug 1234] crash", False),
    "[ticket #5] Crash": ("[ticket #5] crash", False),
    "[Gnome i18n list] Crash": ("[gnome i18n list] crash", False),
    "Re: [my-list] Crash": ("crash", True),
    "Regarding: Lunch": ("regarding: lunch", False),
}


@pytest.mark.parametrize(("subject", "expected"), SUBJECTS.items())
def test_subjects(subject: str, expected: tuple[str, bool]) -> None:
    assert normalise_subject(subject) == expected


def keys(**fields: str) -> ThreadKeys:
    return thread_keys(read_headers("".join(f"{name.replace('_', '-')}: {value}\n" for name, value in fields.items()).encode()))


def test_parents_come_nearest_first() -> None:
    found = keys(Message_ID="<d@x>", References="<a@x> <b@x> <c@x>", In_Reply_To="<c@x>")
    assert found.parents == ("c@x", "b@x", "a@x")
    assert found.ids == ("d@x", "c@x", "b@x", "a@x")


def test_a_message_is_not_its_own_parent() -> None:
    assert keys(Message_ID="<a@x>", References="<a@x> <b@x>").parents == ("b@x",)


FIRST = {"Message_ID": "<a@x>", "From": "ann@example.org", "To": "bob@example.org", "Subject": "Lunch"}
REPLY = {"Message_ID": "<b@x>", "From": "bob@example.org", "To": "ann@example.org", "Subject": "Re: Lunch"}


def test_a_reply_without_ids_needs_subject_people_and_time() -> None:
    first, reply = keys(**FIRST), keys(**REPLY)
    assert reply.may_answer(first, timedelta(days=29))
    assert not reply.may_answer(first, timedelta(days=31))
    assert not reply.may_answer(first, timedelta(days=-1)), "what comes later is no answer"
    assert not first.may_answer(reply, timedelta(days=1))
    assert not reply.may_answer(keys(**{**FIRST, "From": "eve@x", "To": "mallory@x"}), timedelta(days=1))
    assert not reply.may_answer(keys(**{**FIRST, "Subject": "Dinner"}), timedelta(days=1))
    assert not keys(**{**REPLY, "Subject": "Lunch"}).may_answer(first, timedelta(days=1))


def test_whoever_names_what_it_answers_to_is_not_joined_by_subject() -> None:
    first = keys(**FIRST)
    assert not keys(**REPLY, References="<last-week@x>").may_answer(first, timedelta(days=1))
    assert not keys(**REPLY, In_Reply_To="<last-week@x>").may_answer(first, timedelta(days=1))
    answered = keys(**{**FIRST, "In_Reply_To": "<elsewhere@x>"})
    assert keys(**REPLY).may_answer(answered, timedelta(days=1)), "what it answers to may itself name something"


def test_two_who_wrote_to_the_same_address_are_not_correspondents() -> None:
    bill, other = {**FIRST, "Subject": "Invoice"}, {**REPLY, "From": "eve@x", "To": "bob@example.org", "Subject": "Re: Invoice"}
    assert not keys(**other).may_answer(keys(**bill), timedelta(days=1))
