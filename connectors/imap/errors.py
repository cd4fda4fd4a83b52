"""Interprets error responses of servers."""

from __future__ import annotations

import re

from connectors.errors import AuthFailed, ConnectorError, Throttled, Unavailable

_CODE = re.compile(r"^\s*\[([A-Za-z0-9.-]+)")
_TOO_MUCH = re.compile(
    r"too many|throttl|rate.?limit|bandwidth|quota exceeded|exceeded (?:command|bandwidth)|try again (?:later|in)|slow down",
    re.IGNORECASE,
)
_PAUSE_SECONDS = {"OVERQUOTA": 900.0, "THROTTLED": 300.0, "LIMIT": 60.0, "INUSE": 60.0}
_DEFAULT_PAUSE_SECONDS = 60.0
_TEXT_CHARS = 300


class Dropped(Exception):
    """The connection is lost; work can continue on a new one."""

    def __init__(self, message: str, code: str = "", said: str = "") -> None:
        super().__init__(message)
        self.code, self.said = code, said


class Silent(Dropped):
    """The server sent nothing within the timeout."""


class Broken(Dropped):
    """The server violates the protocol, so the start of its next response is unknown."""


class CommandRefused(Exception):
    """The server responded NO or BAD to a command. The connection is still usable."""

    def __init__(self, status: str, text: str) -> None:
        super().__init__(one_line(text) or status)
        self.status, self.code, self.text = status, code_of(text), text


class FolderGone(Exception):
    """The folder was listed but no longer exists."""


class FolderClosed(Exception):
    """The server lists the folder but refuses to open it."""


def code_of(text: str) -> str:
    """The response code in brackets (RFC 5530), in upper case."""
    found = _CODE.match(text)
    return found[1].upper() if found else ""


def one_line(text: str) -> str:
    """A server's text, shortened for use in our own messages."""
    clean = "".join(char if char.isprintable() else " " for char in text)
    return " ".join(clean.split())[:_TEXT_CHARS]


def throttling(code: str, text: str) -> Throttled | None:
    """A Throttled if the server asks for a pause, by response code or in words."""
    if code in _PAUSE_SECONDS or _TOO_MUCH.search(text):
        seconds = _PAUSE_SECONDS.get(code, _DEFAULT_PAUSE_SECONDS)
        return Throttled(f"the server asks for a pause: {one_line(text)}", seconds)
    return None


def refused_login(text: str, user: str) -> ConnectorError:
    """A NO to a login means a wrong password, unless the text says otherwise."""
    code = code_of(text)
    if code in ("UNAVAILABLE", "SERVERBUG", "CONTACTADMIN"):
        return Unavailable(f"the server can't log in {user} right now: {one_line(text)}")
    if code not in ("AUTHENTICATIONFAILED", "AUTHORIZATIONFAILED"):
        pause = throttling(code, text)
        if pause is not None:
            return pause
    return AuthFailed(f"the server rejected the login of {user}: {one_line(text)}")
