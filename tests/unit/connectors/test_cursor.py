"""Cursors that are read from a stored state, whatever it contains."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

import pytest

from connectors.cursor import read_cursor
from connectors.errors import first_line
from connectors.microsoft.cursor import MicrosoftCursor, cursor_key
from connectors.microsoft.cursor import read_cursor as read_microsoft


@dataclass(frozen=True, slots=True)
class Position:
    uid: int = 0
    rules: str = ""
    is_full: bool = True


HERE = Position(7, "r", False)


def test_a_stored_cursor_is_read_back() -> None:
    assert read_cursor(Position, asdict(HERE)) == HERE
    assert read_cursor(Position, {**asdict(HERE), "of a later release": 1}) == HERE


@pytest.mark.parametrize(
    "stored",
    [
        None,
        "7",
        [],
        {},
        {"uid": 7},
        {**asdict(HERE), "uid": "7"},
        {**asdict(HERE), "uid": True},
        {**asdict(HERE), "rules": None},
    ],
)
def test_what_is_unusable_starts_over(stored: Any) -> None:
    assert read_cursor(Position, stored) == Position()


def test_fields_of_a_later_release_have_their_defaults_where_that_is_allowed() -> None:
    assert read_cursor(Position, {"uid": 7, "rules": "r"}, may_lack_fields=True) == Position(7, "r")
    assert read_cursor(Position, {"uid": "7", "rules": "r"}, may_lack_fields=True) == Position()


def test_the_stored_form_of_a_cursor_for_graph_stays() -> None:
    cursor = MicrosoftCursor("link", 3, "last", is_full=False, is_again=True, rules="r", path="Inbox")
    stored = {"link": "link", "done": 3, "last": "last", "full": False, "again": True, "rules": "r", "path": "Inbox"}
    assert cursor.as_json() == stored
    assert read_microsoft({cursor_key("a@b", "f"): stored}, "a@b", "f") == cursor
    assert read_microsoft({cursor_key("a@b", "f"): {**stored, "full": 1}}, "a@b", "f") == MicrosoftCursor()


@pytest.mark.parametrize(
    ("error", "line"),
    [
        (ValueError("no\nyes"), "no"),
        (ValueError(), "ValueError"),
        (ValueError(" \n "), "ValueError"),
        (FileNotFoundError(2, "No such file", "/secret/path"), "No such file"),
        (ValueError("x" * 1000), "x" * 300),
    ],
)
def test_the_first_line_of_an_error(error: Exception, line: str) -> None:
    assert first_line(error) == line
