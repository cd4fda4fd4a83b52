"""Passwords: argon2id, and the same work for an account that is not there."""

from __future__ import annotations

import threading

from argon2 import PasswordHasher
from argon2.exceptions import InvalidHashError, VerificationError

from archiver.errors import UsageError

SHORTEST, LONGEST = 10, 1024
_AT_ONCE = threading.BoundedSemaphore(4)
"""Each one takes its share of memory: a crowd at the door must not take all."""

_hasher = PasswordHasher(time_cost=2, memory_cost=19 << 10, parallelism=1)  # as OWASP recommends
_NOBODYS = _hasher.hash("nobody has this password")


def check_new(password: str, email: str) -> None:
    if not SHORTEST <= len(password) <= LONGEST:
        raise UsageError(f"a password has {SHORTEST} to {LONGEST} characters")
    if len(set(password)) < 5 or password.lower() in (email.lower(), email.lower().partition("@")[0]):
        raise UsageError("this password is too easy to guess")


def hash_password(password: str) -> str:
    with _AT_ONCE:
        return _hasher.hash(password)


def verify(password_hash: str | None, password: str) -> bool:
    """Takes as long when there is no hash to compare with."""
    with _AT_ONCE:
        try:
            _hasher.verify(password_hash or _NOBODYS, password[: LONGEST + 1])
        except (VerificationError, InvalidHashError):
            return False
    return password_hash is not None


def outdated(password_hash: str) -> bool:
    return _hasher.check_needs_rehash(password_hash)
