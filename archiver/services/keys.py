"""A new storage key: it writes from the next start on, the old ones go on reading."""

from __future__ import annotations

from archiver.config import Settings
from archiver.errors import UsageError
from archiver.secrets import STORAGE_KEY_FILE, Keyring, SecretFolder, storage_keyring


def rotate_storage_key(settings: Settings) -> Keyring:
    """Adds a key in front of the key file. With keys from the environment, the user has to do that."""
    if settings.storage_encryption_key is not None:
        raise UsageError(
            "the keys come from STORAGE_ENCRYPTION_KEY: put a new one, id:base64 of 32 random bytes, in front of those in there"
        )
    folder = SecretFolder(settings.archiver_data)
    with folder.alone():
        rotated = storage_keyring(settings).with_new_active()
        folder.write(STORAGE_KEY_FILE, rotated.serialise())
    return rotated
