"""The pure parts of the IMAP connector: sets of UIDs, responses, names and roles of folders, keys, places."""

from __future__ import annotations

import io
import socket
from contextlib import suppress
from datetime import UTC, datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import SecretStr

import connectors
from connectors.errors import AuthFailed, Unavailable
from connectors.imap.accounts import accounts
from connectors.imap.cursor import ImapCursor, read_cursor, state_key
from connectors.imap.errors import Broken, refused_login, throttling
from connectors.imap.folders import Status, decode_name, encode_name
from connectors.imap.keys import id_key, parse_key, uid_key
from connectors.imap.parse import date, values
from connectors.imap.plan import chosen_ids
from connectors.imap.settings import ImapSecrets, ImapSettings
from connectors.imap.takeover import reader, take_over
from connectors.imap.uids import Uids
from connectors.imap.wire import quoted
from connectors.roles import roles
from connectors.selection import FolderRole


@given(st.sets(st.integers(1, 5000), max_size=800), st.integers(1, 1000), st.integers(0, 5000))
def test_sets_of_uids_hold_what_was_put_in(numbers: set[int], size: int, middle: int) -> None:
    uids = Uids.of(numbers)
    assert list(uids) == sorted(numbers)
    assert len(uids) == len(numbers)
    assert list(Uids.parse(uids.encoded())) == sorted(numbers)
    assert [uid for window in uids.windows(size) for uid in window] == sorted(numbers)
    assert all(len(Uids.of(window).encoded()) < 8000 for window in uids.windows(size))
    assert [*uids.up_to(middle), *uids.after(middle)] == sorted(numbers)


@pytest.mark.parametrize("text", [b"x", b"0", b"1:", b"1:x", b"4294967296", b"1:4294967295", b"*", b"-1", b"9" * 40])
def test_sets_that_are_none_are_refused(text: bytes) -> None:
    if text == b"1:":
        assert list(Uids.parse(text)) == [1]
        return
    with pytest.raises(Broken):
        Uids.parse(text)


@given(st.binary(max_size=200))
def test_any_line_is_read_or_refused(line: bytes) -> None:
    with suppress(Broken):
        values((line,))


def test_responses_become_values() -> None:
    assert values((b'LIST (\\Noselect \\X) "." "a \\"b\\" \\\\c" NIL',)) == [
        b"LIST",
        [b"\\Noselect", b"\\X"],
        b".",
        b'a "b" \\c',
        None,
    ]
    assert values(
        (
            b"(BODY[HEADER.FIELDS (DATE TO)] ",
            b"NIL",
            b' X "")',
        )
    ) == [[b"BODY[HEADER.FIELDS (DATE TO)]", b"NIL", b"X", b""]]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (b"17-Jul-1996 02:44:25 -0700", datetime(1996, 7, 17, 2, 44, 25, tzinfo=timezone(-timedelta(hours=7)))),
        (b" 1-jan-2020 00:00:60 +0000", datetime(2020, 1, 1, 0, 0, 59, tzinfo=UTC)),
        (b"31-Feb-2020 00:00:00 +0000", None),
        (b"01-Foo-2020 00:00:00 +0000", None),
        (b"yesterday", None),
        (None, None),
    ],
)
def test_dates(text: bytes | None, expected: datetime | None) -> None:
    assert date(text) == expected


@pytest.mark.parametrize("name", ["Entwürfe/ältere", "日本語", "a & b", "&", "plain", "emoji 🎉"])
def test_names_go_there_and_back(name: str) -> None:
    assert decode_name(encode_name(name, "."), b".") == name


def test_what_the_server_says_about_a_folder_goes_before_its_name() -> None:
    found = roles(
        {"INBOX": [], "Trash": [], "Gelöscht": ["\\Trash"], "Junk-E-Mail": [], "Junk-E-Mail/old": [], "Work/Trash": []}
    )
    assert found == {
        "INBOX": FolderRole.INBOX,
        "Gelöscht": FolderRole.TRASH,
        "Junk-E-Mail": FolderRole.SPAM,
        "Junk-E-Mail/old": FolderRole.SPAM,
    }


@pytest.mark.parametrize(
    ("name", "role"),
    [
        ("INBOX/Sent", FolderRole.SENT),
        ("Papierkorb", FolderRole.TRASH),
        ("Corbeille", FolderRole.TRASH),
        ("Корзина", FolderRole.TRASH),
        ("迷惑メール", FolderRole.SPAM),
        ("CORREO NO DESEADO", FolderRole.SPAM),
        ("Brouillons", FolderRole.DRAFTS),
        ("[Gmail]/Drafts", FolderRole.DRAFTS),
        ("Trashy novels", None),
        ("Projects/Drafts", None),
    ],
)
def test_roles_by_name(name: str, role: FolderRole | None) -> None:
    assert roles({name: []}).get(name) == role


def test_keys_are_taken_apart_again() -> None:
    by_uid, by_id = parse_key(uid_key("A␟B"[:1], 7, 12)), parse_key(id_key("INBOX", "X-GUID", "abc"))
    assert (by_uid and (by_uid.folder, by_uid.validity, by_uid.uid)) == ("A", 7, 12)
    assert (by_id and (by_id.folder, by_id.id)) == ("INBOX", "abc")
    assert len(uid_key("x" * 5000, 1, 2)) < 200
    assert parse_key("rubbish") is None


def test_keys_of_a_folder_stay_what_they_are_made_of() -> None:
    plain, dovecot = ImapCursor(validity=1), ImapCursor(validity=1, ids="X-GUID")
    assert chosen_ids(ImapCursor(), frozenset(), "Dovecot ready") == "X-GUID"
    assert chosen_ids(plain, frozenset({"OBJECTID"}), "") == ""
    assert chosen_ids(dovecot, frozenset({"OBJECTID"}), "Dovecot ready") == "X-GUID"
    assert chosen_ids(dovecot, frozenset({"OBJECTID"}), "something else") == "EMAILID"


def test_a_folder_stands_as_it_did_only_if_everything_is_the_same() -> None:
    place = ImapCursor(validity=1, uid=9, count=5, uid_next=10, modseq=3, rules="r", day=4)
    same = Status(5, 10, 1, 3)
    assert place.is_unchanged(same, "r", 4)
    assert not place.is_unchanged(None, "r", 4)
    for other in (Status(6, 10, 1, 3), Status(5, 11, 1, 3), Status(5, 10, 2, 3), Status(5, 10, 1, 4), Status(5, None, 1, None)):
        assert not place.is_unchanged(other, "r", 4)
    assert not place.is_unchanged(same, "other rules", 4)
    assert not place.is_unchanged(same, "r", 5)
    assert read_cursor({state_key("a", "f"): place.as_json()}, "a", "f") == place
    assert read_cursor({state_key("a", "f"): {**place.as_json(), "uid": "9"}}, "a", "f") == ImapCursor()


def test_no_line_break_gets_into_a_command() -> None:
    assert quoted('a"b\\c') == b'"a\\"b\\\\c"'
    with pytest.raises(ValueError):
        quoted("a\r\nDELETE INBOX")


class _Line(io.RawIOBase):
    """What a server has sent, in the pieces in which a socket gives it. To ask for more than that is to wait for ever."""

    def __init__(self) -> None:
        self.pieces: list[bytes] = []

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: memoryview) -> int:  # type: ignore[override]
        assert self.pieces, "it waits for more, and has not given what it has"
        piece = self.pieces.pop(0)
        self.pieces[:0] = filter(None, [piece[len(buffer) :]])
        taken = min(len(piece), len(buffer))
        buffer[:taken] = piece[:taken]
        return taken


@pytest.mark.parametrize("more", [b"", b"* CAPABILITY\r\n"], ids=["greeting alone", "greeting and more"])
@pytest.mark.parametrize("piece_bytes", [1_000, 16_408, 65_483, 262_144, 1 << 20])
def test_what_has_come_is_given_without_waiting_for_more(more: bytes, piece_bytes: int) -> None:
    """However the line cuts it into pieces."""
    for message_bytes in (300, 8_191, 262_140, 262_144, 700_000):
        line, message, end = _Line(), b"x" * message_bytes, b")\r\na0 OK done\r\n"
        file: Any = io.BufferedReader(line)
        line.pieces = [b"* OK hello\r\n" + more]
        assert file.readline() == b"* OK hello\r\n"  # by imaplib, and whatever comes with it lies in its buffer
        ours = reader(file)
        if more:
            assert ours.readline() == more
        for _ in range(2):
            line.pieces = [(message + end)[at : at + piece_bytes] for at in range(0, message_bytes + len(end), piece_bytes)]
            assert (ours.read(message_bytes), ours.readline() + ours.readline()) == (message, end)


@pytest.mark.parametrize("said", ["[OVERQUOTA] x", "[THROTTLED] x", "Too many simultaneous connections", "please slow down"])
def test_words_that_ask_for_a_pause(said: str) -> None:
    assert type(refused_login(said, "u")).__name__ == "Throttled"
    assert throttling("", "no such message") is None


def _settings(**more: object) -> ImapSettings:
    return ImapSettings.model_validate({"host": "mail.example.org", **more})


def test_lists_of_users(tmp_path: Path) -> None:
    file = tmp_path / "users.csv"
    file.write_text("﻿user,address,name\n# a remark\nalice,,\nbob,bob@other.example,Bob B.\n\nALICE,,\n", encoding="utf-8")
    found = accounts(_settings(users_file=str(file), domain="corp.example"), ImapSecrets(password=SecretStr("x")))
    assert [(account.user, account.address, account.display_name) for account in found.values()] == [
        ("alice", "alice@corp.example", None),
        ("bob", "bob@other.example", "Bob B."),
    ]


def test_lists_of_users_that_can_not_be_read(tmp_path: Path) -> None:
    with pytest.raises(Unavailable, match=r"nowhere\.csv"):
        accounts(_settings(users_file=str(tmp_path / "nowhere.csv")), ImapSecrets())
    (tmp_path / "binary.csv").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(Unavailable, match="UTF-8"):
        accounts(_settings(users_file=str(tmp_path / "binary.csv")), ImapSecrets())
    with pytest.raises(AuthFailed) as caught:
        accounts(_settings(users="a,b"), ImapSecrets(passwords=SecretStr("a;hunter2")))
    assert "hunter2" not in str(caught.value)


# --- what imapclient keeps to itself


class _Elsewhere:
    """A connection as another release of imapclient might keep it."""

    def __init__(self, **parts: Any) -> None:
        self._imap = type("Imap", (), parts)()


def test_a_release_of_imapclient_that_keeps_its_connection_elsewhere_is_noticed() -> None:
    ours, theirs = socket.socketpair()
    with ours, theirs, ours.makefile("rb") as file:
        assert take_over(_Elsewhere(sock=ours, file=file))[0] is ours
        with pytest.raises(TypeError, match="imapclient keeps its connection as socket and SocketIO"):
            take_over(_Elsewhere(sock=ours, file=file.raw))
        with pytest.raises(TypeError, match="NoneType"):
            take_over(_Elsewhere(sock=None, file=file))
        with pytest.raises(AttributeError, match="file"):
            take_over(_Elsewhere(sock=ours))


def test_its_private_parts_are_used_in_one_place() -> None:
    files = Path(connectors.__file__).parent.rglob("*.py")
    assert [path.name for path in files if "._imap" in path.read_text()] == ["takeover.py"]
