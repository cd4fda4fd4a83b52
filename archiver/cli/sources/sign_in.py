"""Signs in at a provider from the command line: in a browser on this machine, or by copy and paste from another one."""

from __future__ import annotations

import sys
import webbrowser
from collections.abc import Callable
from enum import StrEnum
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import Any
from urllib.parse import parse_qsl, urlsplit

import typer

from archiver.cli.terminal.output import messages
from archiver.errors import UsageError

_PASTE_PORT = 1
_TIMEOUT_SECONDS = 600.0
_THANKS = b"<!doctype html><title>Archiver</title><p>Thank you. You can close this page and go back to the command line.</p>"


class SignInMethod(StrEnum):
    BROWSER = "browser"
    PASTE = "paste"
    DEVICE = "device"


SignInStep = Callable[[Any], dict[str, str]]


def sign_in_with(method: SignInMethod) -> SignInStep:
    """The function that takes a connectors.sign_in.SignIn through the sign-in and returns the resulting secrets."""
    return {SignInMethod.BROWSER: _in_browser, SignInMethod.PASTE: _by_paste, SignInMethod.DEVICE: _on_device}[method]


def _in_browser(attempt: Any) -> dict[str, str]:
    """The provider redirects the browser to a port that only this machine can reach."""
    with _CallbackServer() as callback:
        address = attempt.start_in_browser(f"http://localhost:{callback.server_port}")
        messages.print(
            f"Sign in at this address (or use --by paste on a machine without a browser):\n\n{address}\n", markup=False
        )
        webbrowser.open(address)
        return dict(attempt.complete_in_browser(callback.wait()))


def _by_paste(attempt: Any) -> dict[str, str]:
    """Nothing listens on that port: the page fails to load, and its address contains the answer."""
    address = attempt.start_in_browser(f"http://localhost:{_PASTE_PORT}")
    messages.print(
        f"Open this address in any browser and sign in:\n\n{address}\n\nAfterwards the browser shows a page that can't be"
        " loaded. Copy its whole address, which begins with http://localhost, and paste it here.",
        markup=False,
    )
    pasted = typer.prompt("address", err=True, hide_input=True) if sys.stdin.isatty() else sys.stdin.readline()
    return dict(attempt.complete_in_browser(_query(pasted.strip())))


def _on_device(attempt: Any) -> dict[str, str]:
    if not hasattr(attempt, "start_on_device"):
        raise UsageError("this provider does not support --by device: use --by browser or --by paste")
    address, code = attempt.start_on_device()
    messages.print(f"Open {address} on any device, enter the code {code} and sign in.", markup=False)
    return dict(attempt.complete_on_device())


def _query(address: str) -> dict[str, str]:
    found = dict(parse_qsl(urlsplit(address).query))
    if not found:
        raise UsageError("that is not the address of the page: expected http://localhost… with `code=` in it")
    return found


class _CallbackServer(HTTPServer):
    """Waits for the provider's redirect, and ignores other requests of the browser (favicon.ico)."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.timeout = _TIMEOUT_SECONDS
        self.query: dict[str, str] = {}
        self.timed_out = False

    def wait(self) -> dict[str, str]:
        while not self.query and not self.timed_out:
            self.handle_request()
        if not self.query:
            raise UsageError(f"no sign-in within {_TIMEOUT_SECONDS / 60:.0f} minutes: run the command again")
        return self.query

    def handle_timeout(self) -> None:
        self.timed_out = True


class _Handler(BaseHTTPRequestHandler):
    server: _CallbackServer

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
