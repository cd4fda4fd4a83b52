"""Keys and passwords: from the environment, or created at the first start in `ARCHIVER_DATA/secrets` (mode 0600)."""

from __future__ import annotations

import base64
import binascii
import contextlib
import fcntl
import os
import re
import secrets
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from pydantic import SecretStr

from archiver.config import Settings
from archiver.errors import ConfigError, WrongKey

_KEY_ID = re.compile(r"[A-Za-z0-9_-]{1,32}")
_SEAL_VERSION = b"\x01"
_NONCE_BYTES = 12
_KEY_BYTES = 32


@dataclass(frozen=True, slots=True)
class Keyring:
    """AES-256 keys by id, `id:base64[,id:base64…]`. The first one seals, all of them unseal."""

    keys: dict[str, bytes] = field(repr=False)

    @property
    def active(self) -> str:
        return next(iter(self.keys))

    @classmethod
    def parse(cls, text: str, variable: str) -> Keyring:
        """Errors never contain the value, which is secret."""
        keys: dict[str, bytes] = {}
        for number, entry in enumerate(text.split(","), start=1):
            key_id, _, encoded = entry.strip().partition(":")
            try:
                key = base64.b64decode(encoded, validate=True)
            except binascii.Error:
                key = b""
            if not _KEY_ID.fullmatch(key_id) or len(key) != _KEY_BYTES:
                raise ConfigError(f"{variable} (a secret, not shown): key {number} is not id:base64 of {_KEY_BYTES} bytes")
            if key_id in keys:
                raise ConfigError(f"{variable} (a secret, not shown): the id {key_id!r} is used twice")
            keys[key_id] = key
        return cls(keys)

    @classmethod
    def generate(cls) -> Keyring:
        return cls({f"k{secrets.token_hex(4)}": secrets.token_bytes(_KEY_BYTES)})

    def with_new_active(self) -> Keyring:
        """Adds a new active key; the old ones stay, to unseal what they sealed."""
        return Keyring({**Keyring.generate().keys, **self.keys})

    def serialise(self) -> str:
        return ",".join(f"{key_id}:{base64.b64encode(key).decode()}" for key_id, key in self.keys.items())

    def seal(self, plain: bytes, purpose: bytes) -> bytes:
        """AES-256-GCM. `purpose` binds the value to its place, so that it can't be moved to another row."""
        nonce = os.urandom(_NONCE_BYTES)
        key_id = self.active.encode()
        header = _SEAL_VERSION + bytes([len(key_id)]) + key_id
        return header + nonce + AESGCM(self.keys[self.active]).encrypt(nonce, plain, header + purpose)

    @staticmethod
    def sealed_with(sealed: bytes) -> str:
        """The id of the key that a sealed value needs."""
        return sealed[2 : 2 + sealed[1]].decode("ascii", "replace") if len(sealed) > 1 else ""

    def only_active(self) -> Keyring:
        return Keyring({self.active: self.keys[self.active]})

    def unseal(self, sealed: bytes, purpose: bytes) -> bytes:
        if sealed[:1] != _SEAL_VERSION or len(sealed) < 2:
            raise WrongKey("a sealed value has an unknown format: it may need a newer version of Archiver")
        end = 2 + sealed[1]
        header, key_id = sealed[:end], sealed[2:end].decode("ascii", "replace")
        if key_id not in self.keys:
            raise WrongKey(
                f"a value is sealed with the key {key_id!r}, which is not in the keyring ({', '.join(self.keys)}): add it"
            )
        nonce, cipher = sealed[end : end + _NONCE_BYTES], sealed[end + _NONCE_BYTES :]
        try:
            return AESGCM(self.keys[key_id]).decrypt(nonce, cipher, header + purpose)
        except InvalidTag:
            raise WrongKey(
                f"a value can't be unsealed with the key {key_id!r}: it was sealed with another key of that id, or was changed"
            ) from None


class SecretFolder:
    """`ARCHIVER_DATA/secrets`: one file per secret, readable by the owner only."""

    def __init__(self, data: Path) -> None:
        self.path = data / "secrets"

    def read(self, name: str) -> str | None:
        try:
            return (self.path / name).read_text().strip() or None
        except FileNotFoundError:
            return None

    def write(self, name: str, value: str) -> None:
        """Replaces the file atomically: a crash leaves the old or the new one."""
        self.path.mkdir(mode=0o700, parents=True, exist_ok=True)
        temporary = self.path / f".{name}.{os.getpid()}"
        descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        with os.fdopen(descriptor, "w") as file:
            file.write(value + "\n")
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(self.path / name)
        folder = os.open(self.path, os.O_RDONLY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)

    def read_or_create(self, name: str, value: str) -> str:
        """An existing value wins, even if two processes create it at the same time."""
        found = self.read(name)
        if found is None:
            temporary = f"{name}.{secrets.token_hex(8)}"
            self.write(temporary, value)
            with contextlib.suppress(FileExistsError):
                (self.path / name).hardlink_to(self.path / temporary)
            (self.path / temporary).unlink()
            found = self.read(name)
        assert found is not None
        return found

    @contextlib.contextmanager
    def lock(self) -> Iterator[None]:
        """For read-modify-write changes: one process at a time, others wait. The lock is released when the process ends."""
        self.path.mkdir(mode=0o700, parents=True, exist_ok=True)
        descriptor = os.open(self.path / ".lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX)
            yield
        finally:
            os.close(descriptor)

    def password(self, name: str) -> str:
        """A random password, created at the first call."""
        return self.read_or_create(name, secrets.token_urlsafe(32))


def storage_keyring(settings: Settings) -> Keyring:
    """The keys of the archive's packs: STORAGE_ENCRYPTION_KEY, else the key file of this data folder."""
    return _keyring(settings, settings.storage_encryption_key, "STORAGE_ENCRYPTION_KEY", STORAGE_KEY_FILE)


def credentials_keyring(settings: Settings) -> Keyring:
    """The keys that seal the sources' credentials: ENCRYPTION_KEY, else the key file of this data folder."""
    return _keyring(settings, settings.encryption_key, "ENCRYPTION_KEY", CREDENTIALS_KEY_FILE)


STORAGE_KEY_FILE = "storage-encryption.key"
CREDENTIALS_KEY_FILE = "encryption.key"


def _keyring(settings: Settings, configured: SecretStr | None, variable: str, file: str) -> Keyring:
    if configured is not None:
        return Keyring.parse(configured.get_secret_value(), variable)
    stored = SecretFolder(settings.archiver_data).read(file)
    if stored is None:
        raise WrongKey(f"there is no {settings.archiver_data / 'secrets' / file}: put it back, or set {variable}")
    return Keyring.parse(stored, f"{settings.archiver_data / 'secrets' / file}")


def create_missing_keys(settings: Settings) -> list[Path]:
    """Creates the key files of a new data folder. Returns the new ones, so that the administrator can be asked to copy them.

    Only for a folder without packs, which the caller checks: a key created later could not open them.
    """
    folder = SecretFolder(settings.archiver_data)
    configured = {STORAGE_KEY_FILE: settings.storage_encryption_key, CREDENTIALS_KEY_FILE: settings.encryption_key}
    created = []
    for file, key in configured.items():
        if key is None and folder.read(file) is None:
            folder.read_or_create(file, Keyring.generate().serialise())
            created.append(folder.path / file)
    return created
