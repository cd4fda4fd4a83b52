"""An OAuth provider: a page that asks for consent, PKCE, refresh tokens, and codes for other devices."""

from __future__ import annotations

import base64
import hashlib
import json
import secrets
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qsl, urlencode, urlsplit

CLIENT_ID, CLIENT_SECRET = "archiver-client", "the secret of the client"


class OAuthProvider(ThreadingHTTPServer):
    daemon_threads = True

    def __init__(self, access_token: str) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.access_token = access_token
        self.url = f"http://127.0.0.1:{self.server_port}"
        self.codes: dict[str, dict[str, str]] = {}
        self.refresh_tokens: set[str] = set()
        self.entered = False
        """The code was entered on the other device."""
        self.asked: list[dict[str, str]] = []

    def settings(self, *, device: bool = False) -> dict[str, str]:
        """Of an IMAP source."""
        found = {
            "auth": "xoauth2",
            "oauth_client_id": CLIENT_ID,
            "oauth_auth_url": f"{self.url}/authorize",
            "oauth_token_url": f"{self.url}/token",
            "oauth_scope": "mail",
        }
        return {**found, "oauth_device_url": f"{self.url}/device"} if device else found

    def answer(self, form: dict[str, str]) -> tuple[int, dict[str, Any]]:
        self.asked.append(form)
        if form.get("client_id") != CLIENT_ID or form.get("client_secret") != CLIENT_SECRET:
            return 401, {"error": "invalid_client"}
        if form["grant_type"] == "authorization_code":
            begun = self.codes.pop(form["code"], None)
            digest = base64.urlsafe_b64encode(hashlib.sha256(form["code_verifier"].encode()).digest()).decode().rstrip("=")
            if begun is None or begun["code_challenge"] != digest or begun["redirect_uri"] != form["redirect_uri"]:
                return 400, {"error": "invalid_grant", "error_description": "the code is not valid"}
        elif form["grant_type"] == "refresh_token":
            if form["refresh_token"] not in self.refresh_tokens:
                return 400, {"error": "invalid_grant"}
        elif not self.entered:
            return 400, {"error": "authorization_pending"}
        refresh = secrets.token_urlsafe(8)
        self.refresh_tokens.add(refresh)
        return 200, {"access_token": self.access_token, "refresh_token": refresh, "expires_in": 3600}


class _Handler(BaseHTTPRequestHandler):
    server: OAuthProvider

    def do_GET(self) -> None:
        query = dict(parse_qsl(urlsplit(self.path).query))
        if "redirect_uri" not in query:
            return self._send(404, "text/plain", b"")
        code = secrets.token_urlsafe(8)
        self.server.codes[code] = query
        back, state = query["redirect_uri"], query["state"]
        allow = f"{back}?{urlencode({'code': code, 'state': state})}"
        deny = f"{back}?{urlencode({'error': 'access_denied', 'state': state})}"
        page = f'<!doctype html><title>Provider</title><a href="{allow}">Allow</a> <a href="{deny}">Deny</a>'
        return self._send(200, "text/html", page.replace("&", "&amp;").encode())

    def do_POST(self) -> None:
        form = dict(parse_qsl(self.rfile.read(int(self.headers["Content-Length"])).decode()))
        if self.path == "/device":
            found = {
                "device_code": "d",
                "user_code": "ABCD-1234",
                "verification_uri": f"{self.server.url}/enter",
                "interval": 1,
            }
            status, answer = 200, dict[str, Any](found)
        else:
            status, answer = self.server.answer(form)
        self._send(status, "application/json", json.dumps(answer).encode())

    def _send(self, status: int, kind: str, data: bytes) -> None:
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, *_: Any) -> None: ...


@contextmanager
def oauth_provider(access_token: str) -> Iterator[OAuthProvider]:
    with OAuthProvider(access_token) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield server
        server.shutdown()
        thread.join()
