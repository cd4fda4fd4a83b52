"""Google's pure parts: bytes out of JSON in any pieces, what refusals mean, labels, and keys that are none."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from connectors.google import labels
from connectors.google.answers import read_refusal
from connectors.google.changes import fold
from connectors.google.raw import IN_MEMORY_BYTES, DamagedResponse, read_message
from connectors.google.settings import GmailSettings, WorkspaceSecrets, WorkspaceSettings
from connectors.selection import SourceSettings
from connectors.spool import Spool


@pytest.fixture(scope="module")
def spool() -> Iterator[Spool]:
    made = Spool("google")
    yield made
    made.close()


def _pieces(data: bytes, size: int) -> Iterator[bytes]:
    return (data[start : start + size] for start in range(0, len(data), size))


def _answer(message: bytes, **more: Any) -> bytes:
    return json.dumps({"id": "1", **more, "raw": base64.urlsafe_b64encode(message).decode(), "tail": 'a "raw": "x"'}).encode()


@given(message=st.binary(max_size=300), size=st.integers(1, 80), padding=st.sampled_from(["=", "\\u003d", ""]))
def test_bytes_come_out_of_json_in_any_pieces(message: bytes, size: int, padding: str) -> None:
    answer = _answer(message, snippet='she said "raw": "no"').replace(b"=", padding.encode())
    found = read_message(_pieces(answer, size), Spool("google"))
    assert found.data == message
    assert found.about["snippet"] == 'she said "raw": "no"'
    assert "raw" not in found.about


def test_what_is_large_goes_to_a_file_and_back_if_it_is_small_enough(spool: Spool) -> None:
    message = bytes(range(256)) * 8192
    found = read_message(_pieces(_answer(message), 65536), spool)
    assert len(message) > IN_MEMORY_BYTES
    assert found.path is not None
    again = found.in_memory_if_small()
    assert again.data == message
    assert not found.path.exists()


@pytest.mark.parametrize(
    "answer",
    [
        b"",
        b"{}",
        b"[]",
        b'{"id": "1"}',
        b'{"raw": "abc',
        b'{"raw": "ab$d"}',
        b'{"raw": "abcde"}',
        b'{"raw": "" "x"}',
        b"<html>",
    ],
)
def test_answers_that_hold_no_message(answer: bytes, spool: Spool) -> None:
    with pytest.raises(DamagedResponse):
        read_message(iter([answer]), spool)


def test_an_answer_that_says_too_much(spool: Spool) -> None:
    with pytest.raises(DamagedResponse, match="too much"):
        read_message((b"x" * 100_000 for _ in range(100)), spool)


# --- refusals


def _refusal(status: int, reason: str = "", said: str = "", **headers: str) -> Any:
    body = {"error": {"message": said, "errors": [{"reason": reason}]}}
    return read_refusal(status, {name.replace("_", "-"): value for name, value in headers.items()}, json.dumps(body).encode())


@pytest.mark.parametrize(
    ("status", "reason", "is_limit", "is_project"),
    [
        (403, "rateLimitExceeded", True, True),
        (403, "userRateLimitExceeded", True, False),
        (403, "dailyLimitExceeded", True, True),
        (403, "forbidden", False, True),
        (429, "rateLimitExceeded", True, False),
        (500, "backendError", False, False),
    ],
)
def test_which_quota_is_used_up(status: int, reason: str, is_limit: bool, is_project: bool) -> None:
    refusal = _refusal(status, reason)
    assert (refusal.is_rate_limit, refusal.is_about_project) == (is_limit, is_project)


def test_how_long_to_wait() -> None:
    assert _refusal(429, retry_after="17").retry_after_seconds == 17
    assert _refusal(429).retry_after_seconds is None
    date = "Mon, 16 Nov 2026 10:00:00 GMT"
    later = "Mon, 16 Nov 2026 10:00:30 GMT"
    assert _refusal(503, retry_after=later, date=date).retry_after_seconds == 30
    said = "User-rate limit exceeded.  Retry after 2026-11-16T10:01:00.000Z"
    assert _refusal(429, said=said, date=date).retry_after_seconds == 60, "by the server's clock"
    assert _refusal(403, "dailyLimitExceeded").retry_after_seconds == 3600


@pytest.mark.parametrize(
    "body", [b"", b"no", b"[]", b'{"error": 7}', b'{"error": {"errors": 3}}', b'{"error": {"errors": [1]}}']
)
def test_answers_of_any_shape(body: bytes) -> None:
    assert read_refusal(502, {}, body).said == "status 502"


# --- labels and history


def test_labels_and_flags() -> None:
    names = {"Label_1": "Projects/2026"}
    assert labels.label_names(["Label_1", "INBOX", "UNREAD", "CATEGORY_SOCIAL"], names) == (
        "Category/Social",
        "Inbox",
        "Projects/2026",
    )
    assert labels.flags(["UNREAD"]) == ()
    assert labels.flags(["DRAFT", "STARRED"]) == ("\\Draft", "\\Flagged", "\\Seen")
    assert labels.received_at({"internalDate": "0"}) == datetime(1970, 1, 1, tzinfo=UTC)
    assert labels.received_at({"internalDate": "x"}) is None
    assert labels.received_at({"internalDate": "9" * 30}) is None


@pytest.mark.parametrize(
    ("settings", "ids", "rule"),
    [
        ({}, ["INBOX"], None),
        ({}, ["SPAM"], "include_spam: no"),
        ({"include_spam": True}, ["SPAM"], None),
        ({"folders_in": "spam"}, ["SPAM"], None),
        ({"folders_in": "work*"}, ["INBOX"], "folders_in: work*"),
        ({"folders_in": "work*"}, ["INBOX", "Label_1"], None),
        ({"folders_out": "work"}, ["INBOX", "Label_1"], "folders_out: work"),
        ({"folders_in": "inbox", "folders_out": "work"}, ["INBOX", "Label_1"], "folders_out: work"),
    ],
)
def test_rules_by_label(settings: dict[str, Any], ids: list[str], rule: str | None) -> None:
    assert labels.labels_rule(SourceSettings.model_validate(settings), ids, {"Label_1": "Work"}) == rule


def test_what_happened_last_counts() -> None:
    def record(kind: str, key: str, ids: list[str] | None = None) -> dict[str, Any]:
        return {kind: [{"message": {"id": key} if ids is None else {"id": key, "labelIds": ids}}]}

    news = fold(
        [
            record("messagesAdded", "a", ["INBOX"]),
            record("labelsAdded", "a", ["INBOX", "STARRED"]),
            record("messagesAdded", "b", ["INBOX"]),
            record("messagesDeleted", "b"),
            record("labelsRemoved", "c"),
            {},
        ]
    )
    assert news.seen == {"a": ("INBOX", "STARRED"), "c": None}
    assert list(news.gone) == ["b"]


# --- settings


@pytest.mark.parametrize(
    "key", ["", "no", "[]", "{}", '{"type": "authorized_user"}', '{"type": "service_account", "client_email": "x"}']
)
def test_key_files_that_are_none_are_named_without_their_content(key: str) -> None:
    with pytest.raises(ValueError, match="key"):
        WorkspaceSecrets.model_validate({"key": key})


def test_a_private_key_that_can_t_be_read_is_not_shown() -> None:
    values = {"type": "service_account", "client_email": "a@b", "client_id": "1", "project_id": "p", "private_key": "SECRET"}
    with pytest.raises(ValueError, match="private_key in the key file can't be read") as raised:
        WorkspaceSecrets.model_validate({"key": json.dumps(values)})
    assert "SECRET" not in str(raised.value)


@pytest.mark.parametrize("url", ["http://gmail.example", "ftp://x", "gmail.googleapis.com", ""])
def test_tokens_never_travel_in_the_clear(url: str) -> None:
    with pytest.raises(ValueError, match="expected"):
        WorkspaceSettings.model_validate({"admin": "a@b.test", "gmail_url": url})


@pytest.mark.parametrize("address", ["", "alice", "@x", "x@", " a@b", "a@b@c"])
def test_addresses_that_are_none(address: str) -> None:
    with pytest.raises(ValueError, match=r"alice@example\.org"):
        GmailSettings.model_validate({"address": address, "client_id": "x"})
