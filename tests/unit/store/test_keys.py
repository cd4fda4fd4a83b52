"""What is derived from a pack's key."""

from __future__ import annotations

import hmac
import threading
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from archiver.config import load_settings
from archiver.maintenance.keys import rotate_storage_key
from archiver.secrets import STORAGE_KEY_FILE, Keyring, SecretFolder, storage_keyring
from archiver.store.keys import Mac
from tests.support.waiting import DEADLINE_SECONDS


@given(st.binary(max_size=64), st.binary(max_size=200))
def test_the_mac_is_hmac_sha256(key: bytes, data: bytes) -> None:
    assert Mac.of(key).digest(data) == hmac.digest(key, data, "sha256")


def test_a_mac_does_not_show_its_key() -> None:
    assert repr(Mac.of(b"secret")) == str(Mac.of(b"other")) == "Mac(…)"


def test_keys_that_are_rotated_at_the_same_time_are_all_kept(tmp_path: Path) -> None:
    """A key that is lost here may have written packs by then."""
    settings = load_settings({"ARCHIVER_DATA": str(tmp_path)})
    first = Keyring.generate()
    SecretFolder(tmp_path).write(STORAGE_KEY_FILE, first.serialise())
    at_once, made = threading.Barrier(8), []

    def rotate() -> None:
        at_once.wait()
        made.append(rotate_storage_key(settings).active)

    threads = [threading.Thread(target=rotate) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(DEADLINE_SECONDS)
    assert set(storage_keyring(settings).keys) == {first.active, *made}
    assert len(made) == 8
