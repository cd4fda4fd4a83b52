"""An OpenID provider as a process of its own: discovery, PKCE, signed tokens; and every way in which one can be wrong.

It asks nobody for a password: whoever comes to `/authorize` is who `--claims` says.
"""

from __future__ import annotations

import base64
import hashlib
import json
import secrets
import sys
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, urlencode, urlsplit

from joserfc import jwt
from joserfc.jwk import RSAKey

KEY = RSAKey.generate_key(2048, {"kid": "one", "use": "sig", "alg": "RS256"})
OTHER = RSAKey.generate_key(2048, {"kid": "one", "use": "sig", "alg": "RS256"})
CODES: dict[str, dict[str, Any]] = {}
STATE: dict[str, Any] = {"claims": {}, "wrong": ""}


class Provider(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        parts = urlsplit(self.path)
        query = {name: values[0] for name, values in parse_qs(parts.query).items()}
        if parts.path == "/.well-known/openid-configuration":
            me = f"http://127.0.0.1:{self.server.server_port}"  # type: ignore[attr-defined]
            issuer = "http://127.0.0.1:1/other" if STATE["wrong"] == "discovery" else me
            names = {
                "authorization_endpoint": "authorize",
                "token_endpoint": "token",
                "jwks_uri": "jwks",
                "userinfo_endpoint": "me",
            }
            self.answer({"issuer": issuer, **{name: f"{me}/{path}" for name, path in names.items()}})
        elif parts.path == "/jwks":
            self.answer({"keys": [KEY.as_dict(private=False)]})
        elif parts.path == "/authorize":
            assert query["code_challenge_method"] == "S256"
            assert query["response_type"] == "code"
            code = secrets.token_urlsafe(16)
            CODES[code] = query
            self.send_response(302)
            self.send_header("Location", f"{query['redirect_uri']}?{urlencode({'code': code, 'state': query['state']})}")
            self.end_headers()
        elif parts.path == "/me":
            self.answer({"sub": STATE["claims"].get("sub"), "groups": STATE.get("userinfo_groups", [])})
        else:
            self.answer({}, 404)

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        if self.path == "/set":
            STATE.update(json.loads(body))
            return self.answer({})
        form = {name: values[0] for name, values in parse_qs(body.decode()).items()}
        asked = CODES.pop(form.get("code", ""), None)  # a code is good once
        challenge = (
            base64.urlsafe_b64encode(hashlib.sha256(form.get("code_verifier", "").encode()).digest()).decode().rstrip("=")
        )
        if asked is None or challenge != asked["code_challenge"] or form.get("client_secret") != "provider-secret":
            return self.answer({"error": "invalid_grant"}, 400)
        return self.answer({"access_token": "a", "token_type": "Bearer", "id_token": self.id_token(asked)})

    def id_token(self, asked: dict[str, Any]) -> str:
        wrong, now = STATE["wrong"], int(time.time())
        claims = {
            "iss": f"http://127.0.0.1:{self.server.server_port}",  # type: ignore[attr-defined]
            "aud": asked["client_id"],
            "exp": now + 300,
            "iat": now,
            "nonce": asked["nonce"],
            **STATE["claims"],
        }
        changes: dict[str, dict[str, Any]] = {
            "issuer": {"iss": "https://evil.example"},
            "audience": {"aud": "somebody-else"},
            "expired": {"exp": now - 3600},
            "future": {"iat": now + 3600},
            "nonce": {"nonce": "another"},
            "subject": {"sub": ""},
        }
        claims |= changes.get(wrong, {})
        if wrong == "unsigned":
            head = base64.urlsafe_b64encode(b'{"alg":"none"}').decode().rstrip("=")
            return f"{head}.{base64.urlsafe_b64encode(json.dumps(claims).encode()).decode().rstrip('=')}."
        return jwt.encode({"alg": "RS256", "kid": "one"}, claims, OTHER if wrong == "signature" else KEY)

    def answer(self, body: dict[str, Any], status: int = 200) -> None:
        data = json.dumps(body).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, *_: Any) -> None:
        pass


if __name__ == "__main__":
    server = ThreadingHTTPServer(("127.0.0.1", 0), Provider)
    sys.stdout.write(f"http://127.0.0.1:{server.server_port}\n")
    sys.stdout.flush()
    server.serve_forever()
