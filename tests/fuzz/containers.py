"""Containers of mail, whole or slightly wrong: S/MIME, TNEF, archives, uuencode, yEnc."""

import base64
import binascii
import gzip
import io
import struct
import tarfile
import zipfile
import zlib
from collections.abc import Callable
from typing import Any

from tests.fuzz.chance import Chance, one_in, pick

_DATA = bytes.fromhex("06092a864886f70d010701")
_SIGNED = bytes.fromhex("06092a864886f70d010702")
_COMPRESSED = bytes.fromhex("060b2a864886f70d0109100109")
_LIES = (0, 1, 2, 3, 4, 7, 255, 65535, 1 << 20, 0x7FFFFFFF, 0xFFFFFFFF)


def lying(chance: Chance, true: int) -> int:
    """A number that is right nearly always."""
    return pick(chance, _LIES) if one_in(chance, 12) else true


def smime(chance: Chance, content: bytes) -> bytes:
    is_compressed = chance.below(2) == 1
    inner = zlib.compress(content * pick(chance, (1, 1, 1, 50, 2000))) if is_compressed else content
    length = lying(chance, len(inner))
    octets = b"\x04\x84" + struct.pack(">I", length) + inner
    if one_in(chance, 4):  # in pieces
        octets = b"\x24\x80" + b"".join(b"\x04\x01" + inner[n : n + 1] for n in range(min(len(inner), 500))) + b"\0\0"
    return (_COMPRESSED if is_compressed else _SIGNED) + b"\xa0\x80\x30\x80" + _DATA + b"\xa0\x80" + octets


def tnef(chance: Chance, content: bytes) -> bytes:
    attributes = [_attribute(chance, content) for _ in range(chance.below(8))]
    return b"\x78\x9f\x3e\x22\x01\x00" + b"".join(attributes)


def _attribute(chance: Chance, content: bytes) -> bytes:
    name = pick(chance, (0x800C, 0x9003, 0x9005, 0x9002, 0x8010, 0x800F, 0x9007, 0x9004, 0x8000, 0x9006))
    data = _properties(chance, content) if name in (0x9003, 0x9005) else content[: pick(chance, (0, 4, 40, 4000))]
    level = 2 if name in (0x9002, 0x8010, 0x800F, 0x9005) else 1
    return struct.pack("<BHHI", lying(chance, level) & 255, name, chance.below(8), lying(chance, len(data))) + data + b"\0\0"


def _properties(chance: Chance, content: bytes) -> bytes:
    properties = [_property(chance, content) for _ in range(chance.below(6))]
    return struct.pack("<I", lying(chance, len(properties))) + b"".join(properties)


def _property(chance: Chance, content: bytes) -> bytes:
    kind = pick(chance, (0x1E, 0x1F, 0x102, 0xD, 3, 2, 0xB, 0x40, 0x48, 0, 0x101E, 0x1003, 0x1002, 0x33))
    name = pick(chance, (0x1000, 0x1009, 0x1013, 0x3FDE, 0x3701, 0x3704, 0x3707, 0x8001, 0x3001))
    head = struct.pack("<HH", kind, name) + (b"g" * 16 + struct.pack("<II", lying(chance, 0), 5) if name >= 0x8000 else b"")
    if kind & 0xFFF in (2, 3, 0xB, 0x40, 0x48):
        count = struct.pack("<I", lying(chance, 2)) if kind & 0x1000 else b""
        return head + count + bytes(pick(chance, (4, 8, 16)))
    value = compressed_rtf(chance, content) if name == 0x1009 else content[: pick(chance, (0, 5, 400))]
    return head + struct.pack("<II", lying(chance, 1), lying(chance, len(value))) + value + bytes(-len(value) % 4)


def compressed_rtf(chance: Chance, content: bytes) -> bytes:
    kind = pick(chance, (b"LZFu", b"LZFu", b"MELA", b"junk"))
    body = content[:200] if kind != b"LZFu" else bytes(chance.below(256) for _ in range(chance.below(200)))
    return struct.pack("<II4sI", lying(chance, len(body)), lying(chance, 1000), kind, 0) + body


def rtf(chance: Chance, content: bytes) -> bytes:
    words = (
        b"{",
        b"}",
        b"\\par ",
        b"\\u-10179?",
        b"\\uc9999999999 ",
        b"\\'e9",
        b"{\\*\\htmltag ",
        b"\\htmlrtf0 ",
        b"text ",
        b"\\",
    )
    return b"{\\rtf1\\ansi\\ansicpg1252 " + b"".join(pick(chance, words) for _ in range(chance.below(200))) + content[:50]


def uuencoded(chance: Chance, content: bytes) -> bytes:
    lines = [binascii.b2a_uu(content[n : n + 45]) for n in range(0, min(len(content), 4500), 45)]
    if one_in(chance, 4):
        lines = [line[: chance.below(len(line) + 1)] + b"\n" for line in lines]
    return b"begin 644 file.bin\n" + b"".join(lines) + pick(chance, (b"`\nend\n", b"end\n", b""))


def yencoded(chance: Chance, content: bytes) -> bytes:
    body = bytes((byte + 42) % 256 for byte in content[:2000]).replace(b"=", b"=}").replace(b"\n", b"=J").replace(b"\r", b"=M")
    return b"=ybegin line=128 size=1 name=a b.bin\n" + body + pick(chance, (b"\n=yend size=1\n", b"\n", b"="))


def zipped(chance: Chance, content: bytes) -> bytes:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as archive:
        for number in range(chance.below(4)):
            archive.writestr(pick(chance, ("a.txt", "../b", "c/d.eml", "")) + str(number), content * pick(chance, (1, 1, 100)))
    return out.getvalue()


def tarred(chance: Chance, content: bytes) -> bytes:
    out = io.BytesIO()
    mode: Any = pick(chance, ("w", "w:gz", "w:xz"))
    with tarfile.open(fileobj=out, mode=mode) as archive:
        entry = tarfile.TarInfo("a.txt")
        entry.size = len(content)
        archive.addfile(entry, io.BytesIO(content))
    return out.getvalue()


def gzipped(chance: Chance, content: bytes) -> bytes:
    return gzip.compress(content * pick(chance, (1, 1, 200)))


def base64_lines(chance: Chance, content: bytes) -> bytes:
    encoded = base64.encodebytes(content)
    if one_in(chance, 5):
        at = chance.below(len(encoded) + 1)
        encoded = encoded[:at] + pick(chance, (b"=", b"====\n", b"\0", b"A", b"-- \nregards, somebody\n")) + encoded[at:]
    return encoded


CONTAINERS: tuple[tuple[bytes, Callable[[Chance, bytes], bytes]], ...] = (
    (b"application/pkcs7-mime; name=smime.p7m", smime),
    (b"application/ms-tnef; name=winmail.dat", tnef),
    (b"application/octet-stream; name=winmail.dat", tnef),
    (b"application/rtf", rtf),
    (b"application/zip; name=a.zip", zipped),
    (b"application/x-tar; name=a.tar", tarred),
    (b"application/gzip; name=a.gz", gzipped),
    (b"text/plain; name=old.txt", uuencoded),
    (b"text/plain", yencoded),
)
