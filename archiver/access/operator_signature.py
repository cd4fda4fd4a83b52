"""Requests of automation that are signed with OPERATOR_HMAC_KEY instead of carrying a key. Pure.

The signature covers method, path, query, time stamp, nonce and the hash of the body. A request is accepted for five minutes,
and only once: a recorded request can neither be sent again nor be changed.
"""

from __future__ import annotations

import hashlib
import hmac
import re

from archiver.access.principal import Principal, Right
from archiver.db.states import UserRole
from archiver.errors import NotSignedIn

TIMESTAMP_HEADER = "X-Operator-Timestamp"
NONCE_HEADER = "X-Operator-Nonce"
SIGNATURE_HEADER = "X-Operator-Signature"
MAX_SKEW_SECONDS = 300
_NONCE = re.compile(r"[A-Za-z0-9_-]{16,128}")
_REFUSED = "the operator signature is not valid"

OPERATOR = Principal("operator", UserRole.ADMINISTRATOR, frozenset({Right.ADMIN, Right.VIEW}))
"""May run the archive, and read no mail."""


def sign_request(key: str, method: str, path: str, timestamp: str, nonce: str, body: bytes) -> str:
    """`path`: with its query, as it is sent."""
    message = "\n".join((method.upper(), path, timestamp, nonce, hashlib.sha256(body).hexdigest()))
    return hmac.new(key.encode(), message.encode(), hashlib.sha256).hexdigest()


def check_request(
    key: str, method: str, path: str, timestamp: str, nonce: str, signature: str, body: bytes, now: float
) -> None:
    """Raises NotSignedIn. That the nonce is new is for the caller to check, after this."""
    if not timestamp.isascii() or not timestamp.isdigit() or len(timestamp) > 12 or not _NONCE.fullmatch(nonce):
        raise NotSignedIn(_REFUSED)
    expected = sign_request(key, method, path, timestamp, nonce, body)
    if not hmac.compare_digest(expected.encode(), signature.removeprefix("sha256=").encode()):
        raise NotSignedIn(_REFUSED)
    if abs(now - int(timestamp)) > MAX_SKEW_SECONDS:
        raise NotSignedIn(f"the operator signature is too old, or a clock is wrong by more than {MAX_SKEW_SECONDS} s")
