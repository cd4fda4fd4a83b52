"""Signing in at a provider from the command line: in a browser on this machine, or on another one by copy and paste."""

from __future__ import annotations

import sys
import webbrowser
from collections.abc import Callable
from enum import StrEnum
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import Any
from urllib.parse import parse_qsl, urlsplit

import typer

from archiver.cli.output import messages
from archiver.errors import UsageError

_PASTE_PORT = 1
_TIMEOUT_SECONDS = 600.0
_THANKS = b"<!doctype html><title>Archiver</title><p>Thank you. You can close this page and go back to the command line.</p>"


class How(StrEnum):
    BROWSER = "browser"
    PASTE = "paste"
    DEVICE = "device"


Ask = Callable[[Any], dict[str, str]]


def asker(how: How) -> Ask:
    """What lets somebody sign in (connectors.sign_in.SignIn) and gives the secrets that came of it."""
    return {How.BROWSER: _in_browser, How.PASTE: _by_paste, How.DEVICE: _on_device}[how]


def _in_browser(attempt: Any) -> dict[str, str]:
    """The browser comes back to a port of ours that only this machine can reach."""
    with _Answer() as answer:
        address = attempt.in_browser(f"http://localhost:{answer.server_port}")
        messages.print(f"Sign in here (or use --by paste on a machine without a browser):\n\n{address}\n", markup=False)
        webbrowser.open(address)
        return dict(attempt.answered(answer.wait()))


def _by_paste(attempt: Any) -> dict[str, str]:
    """Nothing listens at that port: the page does not load, and its address is the answer."""
    address = attempt.in_browser(f"http://localhost:{_PASTE_PORT}")
    messages.print(
        f"Open this address in any browser and sign in:\n\n{address}\n\nYou end at a page that can't be loaded. Copy its whole"
        " address (it begins with http://localhost) and paste it here.",
        markup=False,
    )
    given = typer.prompt("address", err=True, hide_input=True) if sys.stdin.isatty() else sys.stdin.readline()
    return dict(attempt.answered(_query(given.strip())))


def _on_device(attempt: Any) -> dict[str, str]:
    if not hasattr(attempt, "on_device"):
        raise UsageError("this provider takes no codes from other devices: use --by browser or --by paste")
    address, code = attempt.on_device()
    messages.print(f"Open {address} on any device, enter the code {code} and sign in.", markup=False)
    return dict(attempt.entered())


def _query(address: str) -> dict[str, str]:
    found = dict(parse_qsl(urlsplit(address).query))
    if not found:
        raise UsageError("this is not the address of the page: it begins with http://localhost and has `code=` in it")
    return found


class _Answer(HTTPServer):
    """Waits for the one request that brings an answer; a browser asks for other things, too."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.timeout = _TIMEOUT_SECONDS
        self.query: dict[str, str] = {}
        self.timed_out = False

    def wait(self) -> dict[str, str]:
        while not self.query and not self.timed_out:
            self.handle_request()
        if not self.query:
            raise UsageError(f"nobody signed in within {_TIMEOUT_SECONDS / 60:.0f} minutes")
        return self.query

    def handle_timeout(self) -> None:
        self.timed_out = True


class _Handler(BaseHTTPRequestHandler):
    server: _Answer

    def do_GET(self) -> None:
        found = dict(parse_qsl(urlsplit(self.path).query))
        if "code" in found or "error" in found:
            self.server.query = found
        self.send_response(200 if found else 404)
        self.send_header("Content-Type", "text/html; charset=utf-8")
        self.end_headers()
        self.wfile.write(_THANKS if found else b"")

    def log_message(self, format: str, *args: Any) -> None:
        return
