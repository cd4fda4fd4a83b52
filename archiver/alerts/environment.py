"""What the rules look at outside the database: disk, certificate, key files, worker processes."""

from __future__ import annotations

import shutil
import socket
import ssl
from datetime import datetime
from urllib.parse import urlsplit

from sqlalchemy import Connection

from archiver.access import audit
from archiver.access.principal import Principal
from archiver.config import Settings
from archiver.maintenance.checks import outcomes
from archiver.maintenance.status import workers_alive
from archiver.secrets import Keyring, credentials_keyring, storage_keyring

_CONNECT_SECONDS = 5


def free_bytes(settings: Settings) -> int:
    place = settings.archiver_data
    while not place.exists():
        place = place.parent
    return shutil.disk_usage(place).free


def certificate_end(settings: Settings) -> datetime | None:
    """When the certificate behind ARCHIVER_URL ends; None without https, or if it can't be read from here.

    A certificate that is no longer valid can't be read with verification on, so its end is read without it: nothing else is
    sent or believed.
    """
    url = urlsplit(settings.archiver_url.get_secret_value()) if settings.archiver_url else None
    if url is None or url.scheme != "https" or url.hostname is None:
        return None
    try:
        with socket.create_connection((url.hostname, url.port or 443), _CONNECT_SECONDS) as plain:
            return _peer_end(plain, url.hostname)
    except (OSError, ValueError):
        return None


def _peer_end(plain: socket.socket, host: str) -> datetime | None:
    from cryptography import x509

    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    with context.wrap_socket(plain, server_hostname=host) as secure:
        certificate = secure.getpeercert(binary_form=True)
    return x509.load_der_x509_certificate(certificate).not_valid_after_utc if certificate else None


def uncopied_keys(connection: Connection, settings: Settings) -> list[str]:
    """The ids of the active keys in the data folder whose copy has not been confirmed. Keys from variables are elsewhere."""
    outcome = outcomes.load(connection, outcomes.KEYS_COPIED)
    confirmed = set(outcome.details.get("keys", [])) if outcome else set()
    return [key_id for key_id in _active_keys(settings) if key_id not in confirmed]


def _active_keys(settings: Settings) -> list[str]:
    rings: list[Keyring] = []
    if settings.storage_encryption_key is None:
        rings.append(storage_keyring(settings))
    if settings.encryption_key is None:
        rings.append(credentials_keyring(settings))
    return [ring.active for ring in rings]


def confirm_keys(connection: Connection, settings: Settings, principal: Principal) -> list[str]:
    """Records that a copy of the active keys is stored elsewhere. Returns their ids."""
    keys = _active_keys(settings)
    outcomes.record(connection, outcomes.KEYS_COPIED, succeeded=True, keys=keys)
    audit.record(connection, principal, "keys.copy_confirmed", "key", ", ".join(keys))
    return keys


def queues_without_worker(settings: Settings) -> list[str]:
    if settings.redis_url is None:
        return []
    return [queue for queue, names in workers_alive(settings.redis_url.get_secret_value()).items() if not names]
