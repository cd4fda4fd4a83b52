"""Passwords: argon2id, with the same work for an account that does not exist."""

from __future__ import annotations

import threading

from argon2 import PasswordHasher
from argon2.exceptions import InvalidHashError, VerificationError

from archiver.errors import UsageError

SHORTEST, LONGEST = 10, 1024
_CONCURRENT = threading.BoundedSemaphore(4)
"""Each hash takes 19 MiB: many sign-ins at once must not exhaust the memory."""

_hasher = PasswordHasher(time_cost=2, memory_cost=19 << 10, parallelism=1)  # as OWASP recommends
_DUMMY_HASH = _hasher.hash("no account has this password")


def check_new(password: str, email: str) -> None:
    if not SHORTEST <= len(password) <= LONGEST:
        raise UsageError(f"a password must have {SHORTEST} to {LONGEST} characters")
    if len(set(password)) < 5 or password.lower() in (email.lower(), email.lower().partition("@")[0]):
        raise UsageError("this password is too easy to guess: choose another one")


def hash_password(password: str) -> str:
    with _CONCURRENT:
        return _hasher.hash(password)


def verify(password_hash: str | None, password: str) -> bool:
    """Takes the same time without a hash, so that timing does not reveal whether an account exists."""
    with _CONCURRENT:
        try:
            _hasher.verify(password_hash or _DUMMY_HASH, password[: LONGEST + 1])
        except (VerificationError, InvalidHashError):
            return False
    return password_hash is not None


def needs_rehash(password_hash: str) -> bool:
    return _hasher.check_needs_rehash(password_hash)
