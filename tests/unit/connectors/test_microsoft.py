"""The pure parts of the Microsoft connector."""

from __future__ import annotations

import base64
import json

import pytest

from connectors.http import retry_after, without
from connectors.microsoft.cursor import MicrosoftCursor
from connectors.microsoft.error_messages import entra_error, granted_permissions, missing
from connectors.microsoft.folders import Node, Tree
from connectors.microsoft.metadata import MessageMetadata, read_entries
from connectors.microsoft.plan import resume_at
from connectors.microsoft.users import DISABLED, GUEST, NO_MAILBOX, read_person
from connectors.selection import FolderRole


@pytest.mark.parametrize(
    ("headers", "seconds"),
    [
        ({"retry-after": "17"}, 17.0),
        ({"retry-after": "0"}, 0.0),
        ({"retry-after": "Mon, 06 Jan 2025 10:00:30 GMT", "date": "Mon, 06 Jan 2025 10:00:00 GMT"}, 30.0),
        ({"retry-after": "Mon, 06 Jan 2025 10:00:30 GMT"}, 10.0),
        ({"retry-after": "soon", "date": "Mon, 06 Jan 2025 10:00:00 GMT"}, 10.0),
        ({"retry-after": "-5"}, 10.0),
        ({"retry-after": "\N{SUPERSCRIPT TWO}"}, 10.0),
        ({}, 10.0),
    ],
)
def test_pauses_count_from_the_servers_clock(headers: dict[str, str], seconds: float) -> None:
    assert retry_after(headers, 10.0) == seconds


def test_paths_and_roles_of_folders() -> None:
    tree = Tree(
        {
            "in": Node("Inbox", "root"),
            "sub": Node("A/B", "in"),
            "bin": Node("Papierkorb", "root"),
            "old": Node("Old", "bin"),
            "x": Node("X", "y"),
            "y": Node("Y", "x"),
            "h": Node("H", "root", is_hidden=True),
        },
        {"in": FolderRole.INBOX, "bin": FolderRole.TRASH},
    )
    assert [(folder.path, folder.role) for folder in tree.folders()] == [
        ("Inbox", FolderRole.INBOX),
        ("Inbox/A∕B", None),
        ("Papierkorb", FolderRole.TRASH),
        ("Papierkorb/Old", FolderRole.TRASH),
        ("X/Y", None),
        ("Y/X", None),
    ]
    assert tree.path("nowhere") is None


@pytest.mark.parametrize(
    ("more", "reason"),
    [
        ({}, None),
        ({"userType": "Guest"}, GUEST),
        ({"accountEnabled": False}, DISABLED),
        ({"mail": None}, NO_MAILBOX),
        ({"assignedPlans": []}, NO_MAILBOX),
        ({"assignedPlans": [{"service": "exchange", "capabilityStatus": "Deleted"}]}, NO_MAILBOX),
        ({"assignedPlans": [{"service": "exchange", "capabilityStatus": "Warning"}]}, None),
    ],
)
def test_who_has_a_mailbox(more: dict[str, object], reason: str | None) -> None:
    person = read_person({"id": "1", "mail": "A@x.example", "userPrincipalName": "a@x.example", **more})
    assert person is not None
    assert (person.address, person.left_out) == ("a@x.example", reason)
    assert read_person({"mail": "a@x.example"}) is None


def test_entries_that_are_told_twice_count_once_and_rubbish_does_not() -> None:
    page = {"value": [{"id": "a"}, {}, {"id": 5}, {"id": "b", "receivedDateTime": "never"}, {"id": "a", "@removed": {}}]}
    found = read_entries(page)
    assert [(entry.key, entry.is_removed, entry.received_at) for entry in found] == [("b", False, None), ("a", True, None)]


def test_a_page_that_has_changed_is_not_skipped_by_number() -> None:
    page = [MessageMetadata(key) for key in "abcd"]
    assert resume_at(page, MicrosoftCursor(done=2, last="b")) == 2
    assert resume_at(page[1:], MicrosoftCursor(done=2, last="b")) == 1
    assert resume_at(page[2:], MicrosoftCursor(done=2, last="b")) == 0
    assert resume_at(page, MicrosoftCursor()) == 0


def test_permissions_are_read_from_tokens_that_can_be_read() -> None:
    claims = base64.urlsafe_b64encode(json.dumps({"roles": ["Mail.ReadWrite"], "scp": "User.Read"}).encode()).decode()
    token = f"x.{claims.rstrip('=')}.y"
    assert granted_permissions(token) == {"Mail.ReadWrite", "User.Read"}
    assert missing(("Mail.Read", "User.Read.All"), token) == ["User.Read.All"]
    for opaque in ("", "opaque", "a.b.c", "a.W10.c", "a.bnVsbA.c"):
        assert granted_permissions(opaque) is None
        assert missing(("Mail.Read",), opaque) == []


def test_secrets_never_stand_in_an_error() -> None:
    said = entra_error({"error": "server_error", "error_description": "bad s3cret and eyJhbGci.eyJzdWIi.c2ln"}, ("s3cret",))
    assert str(said) == "Entra returned no token: bad … and …"
    assert without("plain", ("",)) == "plain"
    assert without("a token=eyJhbGci.eyJh-_.c. failed", ()) == "a token=… failed"
    assert without("Bearer:xeyJ0.1, eyJ alone", ()) == "Bearer:x…, eyJ alone"
