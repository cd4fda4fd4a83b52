"""Rotates the storage key: a new key encrypts from the next start on, the old ones stay for reading."""

from __future__ import annotations

from archiver.config import Settings
from archiver.errors import UsageError
from archiver.secrets import STORAGE_KEY_FILE, Keyring, SecretFolder, storage_keyring


def rotate_storage_key(settings: Settings) -> Keyring:
    """Adds a key at the front of the key file. Keys in the environment are changed by the administrator."""
    if settings.storage_encryption_key is not None:
        raise UsageError(
            "the keys are set in STORAGE_ENCRYPTION_KEY: put a new one, id:base64 of 32 random bytes, in front of the others"
        )
    folder = SecretFolder(settings.archiver_data)
    with folder.lock():
        rotated = storage_keyring(settings).with_new_active()
        folder.write(STORAGE_KEY_FILE, rotated.serialise())
    return rotated
