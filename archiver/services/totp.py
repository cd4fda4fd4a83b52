"""The second factor: time-based codes (RFC 6238) and recovery codes, each good for one sign-in."""

from __future__ import annotations

import base64
import hashlib
import hmac
import secrets
import time
from urllib.parse import quote
from uuid import UUID

from sqlalchemy import Connection, text

from archiver.errors import Conflict, UsageError
from archiver.secrets import Keyring
from archiver.services import audit, users
from archiver.services.principal import Principal

_STEP_SECONDS = 30
_DIGITS = 6
_RECOVERY_CODES = 10

_USE_STEP = text("""
    UPDATE users SET totp_last_step = :step
    WHERE id = :id AND (totp_last_step IS NULL OR totp_last_step < :step) RETURNING 1""")
_USE_RECOVERY = text("""
    UPDATE users SET recovery_code_hashes = array_remove(recovery_code_hashes, :hash)
    WHERE id = :id AND :hash = ANY(recovery_code_hashes) RETURNING 1""")


def code_at(secret: bytes, step: int) -> str:
    digest = hmac.digest(secret, step.to_bytes(8), "sha1")
    offset = digest[-1] & 0xF
    number = int.from_bytes(digest[offset : offset + 4]) & 0x7FFFFFFF
    return f"{number % 10**_DIGITS:0{_DIGITS}}"


def current_step(now: float | None = None) -> int:
    return int(time.time() if now is None else now) // _STEP_SECONDS


def begin(connection: Connection, keyring: Keyring, who: Principal) -> dict[str, str]:
    """A new secret, to be shown once. It counts when a code was given for it."""
    assert who.user_id is not None
    secret = secrets.token_bytes(20)
    done = connection.execute(
        text("UPDATE users SET totp_secret = :sealed WHERE id = :id AND totp_confirmed_at IS NULL RETURNING email"),
        {"sealed": keyring.seal(secret, purpose(who.user_id)), "id": who.user_id},
    ).first()
    if done is None:
        raise Conflict("the second factor is on already: turn it off first")
    shown = base64.b32encode(secret).decode()
    return {"secret": shown, "uri": f"otpauth://totp/Archiver:{quote(done.email)}?secret={shown}&issuer=Archiver"}


def confirm(connection: Connection, keyring: Keyring, who: Principal, code: str) -> list[str]:
    """Turns it on, and ends all other sessions, which began without it. The recovery codes are shown once."""
    assert who.user_id is not None
    row = connection.execute(
        text("SELECT totp_secret FROM users WHERE id = :id AND totp_confirmed_at IS NULL FOR UPDATE"), {"id": who.user_id}
    ).first()
    if row is None or row.totp_secret is None:
        raise Conflict("there is no second factor to confirm")
    if not _matches(connection, keyring, who.user_id, bytes(row.totp_secret), code):
        raise UsageError("this code is not right: is the clock of your device?")
    codes = ["-".join(base64.b32encode(secrets.token_bytes(10)).decode().lower()[at : at + 4] for at in range(0, 16, 4))
             for _ in range(_RECOVERY_CODES)]  # fmt: skip
    connection.execute(
        text("UPDATE users SET totp_confirmed_at = now(), recovery_code_hashes = :hashes WHERE id = :id"),
        {"id": who.user_id, "hashes": [_recovery_hash(one) for one in codes]},
    )
    users.end_sign_ins(connection, who.user_id, who.session_id)
    audit.record(connection, who, "user.totp_enabled", "user", who.user_id)
    return codes


def disable(connection: Connection, who: Principal, user_id: UUID) -> None:
    connection.execute(
        text(
            "UPDATE users SET totp_secret = NULL, totp_confirmed_at = NULL, totp_last_step = NULL, recovery_code_hashes = '{}'"
            " WHERE id = :id"
        ),
        {"id": user_id},
    )
    audit.record(connection, who, "user.totp_disabled", "user", user_id)


def check(connection: Connection, keyring: Keyring, user_id: UUID, sealed: bytes, code: str) -> bool:
    """A code of now, or a recovery code. What was used is used up, in the caller's transaction."""
    code = code.strip().replace(" ", "")
    if is_by_time(code):
        return _matches(connection, keyring, user_id, sealed, code)
    return connection.execute(_USE_RECOVERY, {"id": user_id, "hash": _recovery_hash(code)}).first() is not None


def _matches(connection: Connection, keyring: Keyring, user_id: UUID, sealed: bytes, code: str) -> bool:
    """The code of now, or of the 30 seconds before or after."""
    secret, now = keyring.unseal(sealed, purpose(user_id)), current_step()
    given = code.encode("utf-8", "replace")
    matching = [step for step in (now - 1, now, now + 1) if hmac.compare_digest(code_at(secret, step).encode(), given)]
    return any(connection.execute(_USE_STEP, {"id": user_id, "step": step}).first() for step in matching)


def is_by_time(code: str) -> bool:
    """A code of now, not one for recovery."""
    return len(code) == _DIGITS and code.isascii() and code.isdigit()


def purpose(user_id: UUID) -> bytes:
    return b"totp:" + user_id.bytes


def _recovery_hash(code: str) -> str:
    return hashlib.sha256(code.lower().replace("-", "").encode("utf-8", "replace")).hexdigest()
