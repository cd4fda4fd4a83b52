"""Delays after failed sign-ins, by account and by client address, or by known device.

They are the same whether or not the account exists.
"""

from __future__ import annotations

from dataclasses import dataclass
from ipaddress import IPv6Address, ip_address, ip_network

from sqlalchemy import Engine, text

from archiver.access.login.devices import account_digest
from archiver.errors import TooMany

# An attempt is counted before it is made, so that parallel attempts count too. One during a delay changes nothing.
_TAKE = text("""
    INSERT INTO sign_in_pauses AS p (key, failures) VALUES (:key, 1)
    ON CONFLICT (key) DO UPDATE SET
        failures = CASE WHEN p.last_failed_at < now() - interval '1 day' THEN 1 ELSE least(p.failures + 1, 1000) END,
        last_failed_at = now(),
        blocked_until = CASE WHEN p.last_failed_at < now() - interval '1 day' OR p.failures < :free THEN now()
                        ELSE now() + make_interval(secs => least(:longest, power(2, least(p.failures - :free, 20)))) END
    WHERE p.blocked_until <= clock_timestamp() RETURNING 1""")
_LEFT = text("SELECT ceil(extract(epoch FROM blocked_until - clock_timestamp())) FROM sign_in_pauses WHERE key = :key")
_FORGET = text("DELETE FROM sign_in_pauses WHERE key = :key")
_GIVE_BACK = text("UPDATE sign_in_pauses SET failures = greatest(failures - 1, 0) WHERE key = :key")
_DELETE_OLD = text("DELETE FROM sign_in_pauses WHERE last_failed_at < now() - interval '2 days'")


@dataclass(frozen=True, slots=True)
class _Limit:
    free: int
    longest_seconds: float


_ACCOUNT = _Limit(free=5, longest_seconds=60)
"""Short, because any client can cause a delay for an account."""
_ADDRESS = _Limit(free=20, longest_seconds=900)


class SignInThrottle:
    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    def take(self, account: str, client_address: str | None, device: str | None = None) -> None:
        """Call before an attempt. Raises TooMany during a delay. A known device has its own delays, whatever its address."""
        if device is not None:
            self._take(f"device:{device}", _ACCOUNT)
            return
        self._take(_address_key(client_address), _ADDRESS)
        self._take(_account_key(account), _ACCOUNT)

    def take_address(self, client_address: str | None) -> None:
        self._take(_address_key(client_address), _ADDRESS)

    def record_success(self, account: str, client_address: str | None, device: str | None = None) -> None:
        """Resets the account. The address gets only one attempt back: one valid account must not pay for guesses at others."""
        with self._engine.begin() as connection:
            if device is not None:
                connection.execute(_FORGET, {"key": f"device:{device}"})
                return
            connection.execute(_FORGET, {"key": _account_key(account)})
            connection.execute(_GIVE_BACK, {"key": _address_key(client_address)})
            connection.execute(_DELETE_OLD)

    def _take(self, key: str, limit: _Limit) -> None:
        values = {"key": key, "free": limit.free, "longest": limit.longest_seconds}
        with self._engine.begin() as connection:
            if connection.execute(_TAKE, values).first() is None:
                left = connection.execute(_LEFT, {"key": key}).scalar() or 1
                raise TooMany("too many failed attempts: wait before trying again", int(left))


def _account_key(account: str) -> str:
    return "account:" + account_digest(account)


def _address_key(client_address: str | None) -> str:
    """IPv6 by /64, which is what providers assign to one customer."""
    try:
        address = ip_address(client_address or "")
    except ValueError:
        return "address:unknown"
    if isinstance(address, IPv6Address) and address.ipv4_mapped is None:
        return f"address:{ip_network((address, 64), strict=False)}"
    return f"address:{address}"
