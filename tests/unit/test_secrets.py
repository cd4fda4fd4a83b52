"""Keys: their form, their files, and what they refuse."""

import base64
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from archiver.config import load_settings
from archiver.errors import ConfigError, WrongKey
from archiver.secrets import Keyring, SecretFolder, create_missing_keys, credentials_keyring, storage_keyring

KEY = base64.b64encode(bytes(range(32))).decode()


def test_sealing_and_opening() -> None:
    ring = Keyring.generate()
    sealed = ring.seal(b"password", b"source-1")
    assert b"password" not in sealed
    assert ring.unseal(sealed, b"source-1") == b"password"
    assert ring.seal(b"password", b"source-1") != sealed


def test_a_sealed_value_is_bound_to_its_place() -> None:
    ring = Keyring.generate()
    with pytest.raises(WrongKey, match="can't be unsealed"):
        ring.unseal(ring.seal(b"password", b"source-1"), b"source-2")


def test_every_changed_byte_is_noticed() -> None:
    ring = Keyring.generate()
    sealed = ring.seal(b"password", b"p")
    for position in range(len(sealed)):
        changed = bytearray(sealed)
        changed[position] ^= 1
        with pytest.raises(WrongKey):
            ring.unseal(bytes(changed), b"p")


def test_after_rotation_the_old_key_still_opens() -> None:
    old = Keyring.generate()
    sealed = old.seal(b"x", b"p")
    new = old.with_new_active()
    assert new.active != old.active
    assert new.unseal(sealed, b"p") == b"x"
    with pytest.raises(WrongKey, match="not in the keyring"):
        old.unseal(new.seal(b"x", b"p"), b"p")


def test_written_and_read_again() -> None:
    ring = Keyring.generate().with_new_active()
    assert Keyring.parse(ring.serialise(), "X") == ring


@pytest.mark.parametrize("text", ["", "abc", f"a b:{KEY}", "k:AAAA", "k:not base64!", f"k:{KEY},k:{KEY}", f":{KEY}"])
def test_a_bad_key_is_refused_without_being_shown(text: str) -> None:
    with pytest.raises(ConfigError, match=r"ENCRYPTION_KEY \(a secret, not shown\)") as caught:
        Keyring.parse(text, "ENCRYPTION_KEY")
    assert KEY not in str(caught.value)


def test_keys_do_not_show_themselves() -> None:
    assert "\\x" not in repr(Keyring.parse(f"k:{KEY}", "X"))


def test_key_files_are_made_once_and_for_the_owner_only(tmp_path: Path) -> None:
    settings = load_settings({"ARCHIVER_DATA": str(tmp_path)}, Path("none"))
    made = create_missing_keys(settings)
    assert [path.name for path in made] == ["storage-encryption.key", "encryption.key"]
    assert {path.stat().st_mode & 0o777 for path in made} == {0o600}
    assert (tmp_path / "secrets").stat().st_mode & 0o777 == 0o700
    assert create_missing_keys(settings) == []
    assert storage_keyring(settings) != credentials_keyring(settings)


def test_a_given_key_needs_no_file(tmp_path: Path) -> None:
    settings = load_settings({"ARCHIVER_DATA": str(tmp_path), "STORAGE_ENCRYPTION_KEY": f"k:{KEY}"}, Path("none"))
    assert storage_keyring(settings).active == "k"
    with pytest.raises(WrongKey, match=r"there is no .*encryption\.key: put it back, or set ENCRYPTION_KEY"):
        credentials_keyring(settings)


def test_of_many_at_once_one_password_wins(tmp_path: Path) -> None:
    with ThreadPoolExecutor(16) as pool:
        passwords = set(pool.map(lambda _: SecretFolder(tmp_path).password("p"), range(64)))
    assert len(passwords) == 1
    assert [file.name for file in (tmp_path / "secrets").iterdir()] == ["p"]
