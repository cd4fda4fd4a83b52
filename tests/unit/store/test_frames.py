"""Frames and their encryption: what goes in comes out, and nothing else ever does."""

import hashlib
import os

import pytest
from hypothesis import given
from hypothesis import strategies as st

from archiver.errors import WrongKey
from archiver.secrets import Keyring
from archiver.store import stream
from archiver.store.errors import Damage, Spot, UnknownVersion
from archiver.store.frames import (
    HEADER_BYTES,
    Codec,
    FrameKind,
    decode_header,
    finish_header,
    new_front,
    new_salts,
    open_frame,
    seal_frame,
)
from archiver.store.keys import PackKeys

KEYS = PackKeys(Keyring.generate())
SPOT = Spot("test.pack", 0)


def frame(body: bytes = b"the body") -> bytes:
    sha256 = hashlib.sha256(body).digest()
    (salt,) = new_salts(1)
    front = new_front(KEYS.active, FrameKind.MESSAGE, Codec.STORED, 0, 0, len(body), sha256, salt)
    return seal_frame(KEYS.active, front, salt, sha256, body)


def read(data: bytes) -> tuple[bytes, bytes | memoryview]:
    header = decode_header(data[:HEADER_BYTES], SPOT)
    return open_frame(KEYS.find(header.fingerprint), header, data[HEADER_BYTES : header.frame_length], SPOT)


@given(st.binary(max_size=5000))
def test_a_frame_gives_back_what_went_in(body: bytes) -> None:
    assert read(frame(body)) == (hashlib.sha256(body).digest(), body)


def test_every_flipped_bit_of_a_frame_is_found() -> None:
    whole = frame()
    for place in range(len(whole)):
        for bit in (0x01, 0x80):
            broken = bytearray(whole)
            broken[place] ^= bit
            with pytest.raises((Damage, WrongKey, UnknownVersion)):
                read(bytes(broken))


def test_a_header_that_was_forged_with_its_checksum_does_not_open() -> None:
    whole = frame()
    front = bytearray(whole[:56])
    front[5] = FrameKind.PART
    header = decode_header(whole[:HEADER_BYTES], SPOT)
    forged = finish_header(bytes(front), header.payload_length, header.payload_crc) + whole[HEADER_BYTES:]
    with pytest.raises(Damage, match="can't be decrypted"):
        read(forged)


def test_an_unknown_version_is_refused_by_name() -> None:
    whole = frame()
    front = bytearray(whole[:56])
    front[4] = 9
    header = decode_header(whole[:HEADER_BYTES], SPOT)
    newer = finish_header(bytes(front), header.payload_length, header.payload_crc)
    with pytest.raises(UnknownVersion, match="frame of version 9; this program reads version 1"):
        decode_header(newer, SPOT)


def test_the_clear_header_does_not_tell_the_hash() -> None:
    sha256 = hashlib.sha256(b"the body").digest()
    assert sha256[:8] not in frame()
    assert KEYS.active.content_tag(sha256) in frame()


def test_two_frames_of_one_content_look_different() -> None:
    assert frame()[HEADER_BYTES:] != frame()[HEADER_BYTES:]


@pytest.mark.parametrize("length", [0, 1, (1 << 20) - 1, 1 << 20, (1 << 20) + 1, 3 << 20])
def test_streams_of_any_length(length: int) -> None:
    plain, key, prefix = os.urandom(length), os.urandom(32), os.urandom(7)
    sealed = stream.seal(key, prefix, b"header", plain)
    assert len(sealed) == stream.sealed_length(length)
    pieces = [plain[at : at + 70_001] for at in range(0, length, 70_001)]
    assert b"".join(stream.seal_chunks(key, prefix, b"header", pieces)) == sealed
    assert stream.open_sealed(key, prefix, b"header", sealed) == plain


def test_a_stream_that_was_cut_swapped_or_moved_does_not_open() -> None:
    size = stream.CHUNK_BYTES + stream.OVERHEAD_BYTES
    key, prefix = os.urandom(32), os.urandom(7)
    sealed = stream.seal(key, prefix, b"header", os.urandom(3 * stream.CHUNK_BYTES))
    cut = sealed[: 2 * size]
    swapped = sealed[size : 2 * size] + sealed[:size] + sealed[2 * size :]
    for broken in (cut, swapped):
        with pytest.raises(stream.Tampered):
            stream.open_sealed(key, prefix, b"header", broken)
    with pytest.raises(stream.Tampered):
        stream.open_sealed(key, prefix, b"another header", sealed)


def test_a_lost_key_and_a_wrong_key_are_told_apart() -> None:
    other = PackKeys(Keyring({"other": b"x" * 32}))
    with pytest.raises(WrongKey, match="not configured \\(only other\\)"):
        other.find(KEYS.active.fingerprint, KEYS.active.id)
    same_id = PackKeys(Keyring({KEYS.active.id: b"y" * 32}))
    with pytest.raises(WrongKey, match="the configured key of this id is another one"):
        same_id.find(KEYS.active.fingerprint, KEYS.active.id)
