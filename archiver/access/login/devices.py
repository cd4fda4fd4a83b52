"""Known devices. Their delays are counted separately, so that other clients' failures can't lock them out.

A device holds a sealed cookie that names the account. It grants nothing: password and second factor are still required.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import secrets
import time

import orjson

from archiver.errors import WrongKey
from archiver.secrets import Keyring

DAYS = 365
_PURPOSE = b"known device"


def issue(keyring: Keyring, account: str) -> str:
    """The cookie for a device from which this account has just signed in."""
    known = {"account": account_digest(account), "device": secrets.token_hex(16), "until": time.time() + DAYS * 86400}
    return base64.urlsafe_b64encode(keyring.seal(orjson.dumps(known), _PURPOSE)).decode()


def known_device(keyring: Keyring, cookie: str | None, account: str | None = None) -> str | None:
    """The name of the device if it signed in before, to this account or, without `account`, to any."""
    if not cookie:
        return None
    try:
        known = orjson.loads(keyring.unseal(base64.urlsafe_b64decode(cookie.encode()), _PURPOSE))
    except (WrongKey, binascii.Error, ValueError, IndexError):
        return None
    is_this = account is None or known["account"] == account_digest(account)
    return str(known["device"]) if is_this and known["until"] > time.time() else None


def account_digest(account: str) -> str:
    return hashlib.sha256(account.strip().lower().encode("utf-8", "replace")).hexdigest()
