"""What is derived from a pack's key."""

from __future__ import annotations

import hmac

from hypothesis import given
from hypothesis import strategies as st

from archiver.store.keys import Mac


@given(st.binary(max_size=64), st.binary(max_size=200))
def test_the_mac_is_hmac_sha256(key: bytes, data: bytes) -> None:
    assert Mac.of(key).digest(data) == hmac.digest(key, data, "sha256")


def test_a_mac_does_not_show_its_key() -> None:
    assert repr(Mac.of(b"secret")) == str(Mac.of(b"other")) == "Mac(…)"
