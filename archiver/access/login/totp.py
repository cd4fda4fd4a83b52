"""The second factor: time-based codes (RFC 6238) and recovery codes, each valid for one sign-in."""

from __future__ import annotations

import base64
import hashlib
import hmac
import secrets
import time
from urllib.parse import quote
from uuid import UUID

from sqlalchemy import Connection, text

from archiver.access import audit, users
from archiver.access.principal import Principal
from archiver.db.sql import query_optional
from archiver.errors import Conflict, UsageError
from archiver.secrets import Keyring

_STEP_SECONDS = 30
_DIGITS = 6
_RECOVERY_CODES = 10

_USE_STEP = text("""
    UPDATE users SET totp_last_step = :step
    WHERE id = :id AND (totp_last_step IS NULL OR totp_last_step < :step) RETURNING 1""")
_USE_RECOVERY = text("""
    UPDATE users SET recovery_code_hashes = array_remove(recovery_code_hashes, :hash)
    WHERE id = :id AND :hash = ANY(recovery_code_hashes) RETURNING 1""")
_LOCK_UNCONFIRMED = "SELECT totp_secret FROM users WHERE id = :id AND totp_confirmed_at IS NULL FOR UPDATE"


def code_at(secret: bytes, step: int) -> str:
    digest = hmac.digest(secret, step.to_bytes(8), "sha1")
    offset = digest[-1] & 0xF
    number = int.from_bytes(digest[offset : offset + 4]) & 0x7FFFFFFF
    return f"{number % 10**_DIGITS:0{_DIGITS}}"


def current_step(now: float | None = None) -> int:
    return int(time.time() if now is None else now) // _STEP_SECONDS


def begin(connection: Connection, keyring: Keyring, principal: Principal) -> dict[str, str]:
    """Returns a new secret, to be shown once. It takes effect when it is confirmed with a code."""
    assert principal.user_id is not None
    secret = secrets.token_bytes(20)
    done = connection.execute(
        text("UPDATE users SET totp_secret = :sealed WHERE id = :id AND totp_confirmed_at IS NULL RETURNING email"),
        {"sealed": keyring.seal(secret, purpose(principal.user_id)), "id": principal.user_id},
    ).first()
    if done is None:
        raise Conflict("the second factor is already on: turn it off first")
    shown = base64.b32encode(secret).decode()
    return {"secret": shown, "uri": f"otpauth://totp/Archiver:{quote(done.email)}?secret={shown}&issuer=Archiver"}


def confirm(connection: Connection, keyring: Keyring, principal: Principal, code: str) -> list[str]:
    """Turns it on and ends all other login sessions, which began without it. Returns the recovery codes, to be shown once."""
    assert principal.user_id is not None
    sealed = query_optional(connection, _LOCK_UNCONFIRMED, bytes, id=principal.user_id)
    if sealed is None:
        raise Conflict("there is no second factor to confirm: set it up first")
    if not _matches(connection, keyring, principal.user_id, sealed, code):
        raise UsageError("that code is not valid: check that your device's clock is correct")
    codes = ["-".join(base64.b32encode(secrets.token_bytes(10)).decode().lower()[at : at + 4] for at in range(0, 16, 4))
             for _ in range(_RECOVERY_CODES)]  # fmt: skip
    connection.execute(
        text("UPDATE users SET totp_confirmed_at = now(), recovery_code_hashes = :hashes WHERE id = :id"),
        {"id": principal.user_id, "hashes": [_recovery_hash(code) for code in codes]},
    )
    users.end_sessions(connection, principal.user_id, principal.session_id)
    audit.record(connection, principal, "user.totp_enabled", "user", principal.user_id)
    return codes


def disable(connection: Connection, principal: Principal, user_id: UUID) -> None:
    connection.execute(
        text(
            "UPDATE users SET totp_secret = NULL, totp_confirmed_at = NULL, totp_last_step = NULL, recovery_code_hashes = '{}'"
            " WHERE id = :id"
        ),
        {"id": user_id},
    )
    audit.record(connection, principal, "user.totp_disabled", "user", user_id)


def check(connection: Connection, keyring: Keyring, user_id: UUID, sealed: bytes, code: str) -> bool:
    """A current code, or a recovery code. Each works once; its use is recorded in the caller's transaction."""
    code = code.strip().replace(" ", "")
    if is_time_code(code):
        return _matches(connection, keyring, user_id, sealed, code)
    return connection.execute(_USE_RECOVERY, {"id": user_id, "hash": _recovery_hash(code)}).first() is not None


def _matches(connection: Connection, keyring: Keyring, user_id: UUID, sealed: bytes, code: str) -> bool:
    """The current code, or that of the 30 seconds before or after."""
    secret, now = keyring.unseal(sealed, purpose(user_id)), current_step()
    entered = code.encode("utf-8", "replace")
    matching = [step for step in (now - 1, now, now + 1) if hmac.compare_digest(code_at(secret, step).encode(), entered)]
    return any(connection.execute(_USE_STEP, {"id": user_id, "step": step}).first() for step in matching)


def is_time_code(code: str) -> bool:
    """A time-based code, not a recovery code."""
    return len(code) == _DIGITS and code.isascii() and code.isdigit()


def purpose(user_id: UUID) -> bytes:
    return b"totp:" + user_id.bytes


def _recovery_hash(code: str) -> str:
    return hashlib.sha256(code.lower().replace("-", "").encode("utf-8", "replace")).hexdigest()
