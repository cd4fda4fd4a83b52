"""docs/pack-format.md is enough to read a pack: a reader written from that page alone, on its example and on a real pack."""

import base64
import hashlib
import hmac
import json
import random
import re
import struct
from pathlib import Path
from typing import Any

import zstandard
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF
from google_crc32c import value as crc32c

from archiver.secrets import Keyring
from archiver.store.keys import PackKeys
from archiver.store.sealed_file import seal_pieces
from tests.support.store_world import PackWorld, mail

PAGE = Path(__file__).parents[3] / "docs" / "pack-format.md"


def derive(key: bytes, what: str, length: int) -> bytes:
    return HKDF(SHA256(), length, None, f"archiver pack v1 {what}".encode()).derive(key)


def read_frame(data: bytes, at: int, key: bytes) -> tuple[int, int, int, bytes, bytes, int]:
    """Kind, flags, dictionary, SHA-256, body as it is stored or compressed, and where the next frame begins."""
    magic, version, kind, codec, flags, fingerprint, dictionary, _, tag, salt, size, crc, own = struct.unpack_from(
        "<4sBBBB4sIQ16s16sQII", data, at
    )
    assert (magic, version) == (bytes.fromhex("f641461e"), 1)
    assert own == crc32c(data[at : at + 68])
    payload = data[at + 72 : at + 72 + size]
    assert crc == crc32c(payload)
    assert fingerprint == derive(key, "fingerprint", 4)
    cipher = AESGCM(hmac.digest(derive(key, "encryption", 32), salt, "sha256"))
    plain, chunks = b"", -(-size // (1048576 + 16))
    for number in range(chunks):
        nonce = salt[:7] + number.to_bytes(4, "big") + bytes([number == chunks - 1])
        chunk = payload[number * 1048592 : (number + 1) * 1048592]
        plain += cipher.decrypt(nonce, chunk, data[at : at + 56])
    sha256, body = plain[:32], plain[32:]
    assert tag == hmac.digest(derive(key, "content tag", 32), sha256, "sha256")[:16]
    return kind | codec << 8, flags, dictionary, sha256, body, at + 72 + size


def read_pack(data: bytes, key: bytes) -> dict[bytes, bytes]:
    """All messages, by their SHA-256."""
    assert data[:8] == b"ARCHPACK"
    assert crc32c(data[:76]) == struct.unpack_from("<I", data, 76)[0]
    at, messages = 80, []
    dictionaries: dict[Any, Any] = {}
    parts: dict[Any, Any] = {}
    while at < len(data) and data[at : at + 8] not in (b"ARCHSEAL", b"ARCHSEAK"):
        kind, flags, dictionary, sha256, body, at = read_frame(data, at, key)
        if kind >> 8:
            known = zstandard.ZstdCompressionDict(dictionaries[dictionary]) if dictionary else None
            body = zstandard.ZstdDecompressor(dict_data=known).decompressobj().decompress(body)
        match kind & 0xFF:
            case 1:
                messages.append((sha256, flags, body))
            case 2:
                parts[sha256.hex()] = body
            case 7:
                dictionaries[int.from_bytes(sha256[:4], "big")] = body
    return {sha256: follow(body, parts) if flags & 1 else body for sha256, flags, body in messages}


def follow(body: bytes, parts: dict[str, bytes]) -> bytes:
    (length,) = struct.unpack_from("<I", body)
    at, message = 4 + length, b""
    for step in json.loads(body[4:at]):
        match step:
            case ["literal", size]:
                message += body[at : at + size]
                at += size
            case ["part", sha256, _]:
                message += parts[sha256]
            case ["base64", sha256, _, line, eol]:
                text = base64.b64encode(parts[sha256])
                ending = {"lf": b"\n", "crlf": b"\r\n"}[eol]
                message += ending.join(text[start : start + line] for start in range(0, len(text), line)) if line else text
    return message


def test_the_example_of_the_page() -> None:
    block = re.search(r"## A worked example.*?```\n(.*?)```", PAGE.read_text(), re.DOTALL)
    assert block is not None
    data = bytes.fromhex(block[1])
    kind, _, _, sha256, body, end = read_frame(data, 0, bytes(range(32)))
    assert (kind, body, end) == (1, b"Subject: hi\r\n\r\nhello\r\n", len(data))
    assert sha256 == hashlib.sha256(body).digest()


def test_a_real_pack_with_dictionary_recipes_and_a_large_frame(tmp_path: Path) -> None:
    world = PackWorld(tmp_path)
    chance = random.Random(3)
    messages = [mail(number) for number in range(900)]
    messages += [mail(901, attachment=chance.randbytes(50_000)), mail(902, attachment=chance.randbytes(5 << 20), eol="\n")]
    for start in range(0, len(messages), 100):
        world.store(*messages[start : start + 100])
    (path,) = tmp_path.glob("*.pack")
    found = read_pack(path.read_bytes(), next(iter(world.keyring.keys.values())))
    assert found == {hashlib.sha256(message).digest(): message for message in messages}


def test_the_seal_of_a_real_pack(tmp_path: Path) -> None:
    world = PackWorld(tmp_path, limit_bytes=500)
    world.store(mail(1), mail(2))
    (path,) = tmp_path.glob("*.pack")
    data, key = path.read_bytes(), next(iter(world.keyring.keys.values()))
    magic, index, frames, digest, crc = struct.unpack("<8sQQ32sI", data[-60:])
    assert magic == b"ARCHSEAK"
    assert crc == crc32c(data[-60:-4])
    sealed = data[-60:-36] + hashlib.sha256(data[:-60]).digest()
    assert digest == hmac.digest(derive(key, "seal", 32), sealed, "sha256")
    kind, _, _, _, body, end = read_frame(data, index, key)
    assert (kind & 0xFF, end) == (10, len(data) - 60)
    assert (kind >> 8 and len(zstandard.ZstdDecompressor().decompressobj().decompress(body))) in (0, 33 * frames)


def test_a_sealed_dump() -> None:
    secret, content = bytes(range(32)), bytes(3_000_000)
    data = b"".join(seal_pieces(PackKeys(Keyring({"example": secret})).active, [content]))
    magic, version, zero, fingerprint, salt = struct.unpack_from("<8sHH4s16s", data)
    assert (magic, version, zero, fingerprint) == (b"ARCHDUMP", 1, 0, derive(secret, "fingerprint", 4))
    cipher = AESGCM(hmac.digest(derive(secret, "dump", 32), salt, "sha256"))
    chunks = [data[at : at + 1048592] for at in range(32, len(data), 1048592)]
    nonces = [salt[:7] + number.to_bytes(4, "big") + bytes([number == len(chunks) - 1]) for number in range(len(chunks))]
    assert b"".join(cipher.decrypt(*pair, data[:32]) for pair in zip(nonces, chunks, strict=True)) == content
