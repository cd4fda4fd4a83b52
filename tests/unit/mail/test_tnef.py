"""winmail.dat, made by hand: properties, files, compressed RTF, and numbers that lie."""

import struct

import pytest

from archiver.mail.budget import DecodeBudget
from archiver.mail.defects import Defects
from archiver.mail.formats.rtf_compression import decompress_rtf
from archiver.mail.formats.tnef import Tnef, read_tnef
from tests.unit.growth.steps import count_lines

# The example of MS-OXRTFCP, section 3.1
COMPRESSED = bytes.fromhex(
    "2d0000002b0000004c5a4675f1c5c7a703000a00726370673132354232" + "0af3" + "2068656c0900206277" + "05b06c647d0a800fa0"
)
RTF = b"{\\rtf1\\ansi\\ansicpg1252\\pard hello world}\r\n"


def attribute(level: int, name: int, data: bytes) -> bytes:
    return struct.pack("<BHHI", level, name, 6, len(data)) + data + b"\0\0"


def stream(*attributes: bytes) -> bytes:
    return b"\x78\x9f\x3e\x22\x01\x00" + b"".join(attributes)


def variable(kind: int, name: int, *values: bytes) -> bytes:
    found = struct.pack("<HHI", kind, name, len(values))
    return found + b"".join(struct.pack("<I", len(value)) + value + bytes(-len(value) % 4) for value in values)


def mapi(*properties: bytes, count: int = -1) -> bytes:
    return struct.pack("<I", len(properties) if count < 0 else count) + b"".join(properties)


def read(content: bytes) -> Tnef | None:
    return read_tnef(content, DecodeBudget.of(len(content)), Defects())


def test_text_and_html_and_the_kinds_of_properties_between() -> None:
    properties = mapi(
        struct.pack("<HHHH", 2, 0x0E00, 7, 0),  # a short, filled up
        struct.pack("<HHIHHHH", 0x1002, 0x0E01, 3, 1, 2, 3, 0),  # three of them
        struct.pack("<HH16sII", 3, 0x8001, b"g" * 16, 0, 5) + struct.pack("<I", 9),  # named by a number
        struct.pack("<HH16sII", 0xB, 0x8002, b"g" * 16, 1, 6) + "abc".encode("utf-16-le") + b"\0\0" + struct.pack("<HH", 1, 0),
        struct.pack("<HHQ", 0x40, 0x0E06, 1),
        variable(0x101E, 0x0E07, b"one\0", b"three"),
        variable(0x1F, 0x1000, "Tee um fünf\0".encode("utf-16-le")),
        struct.pack("<HHI", 3, 0x3FDE, 1252),
        variable(0x102, 0x1013, "<p>fünf</p>".encode("cp1252")),
    )
    found = read(stream(attribute(1, 0x9003, properties)))
    assert found == Tnef("Tee um fünf", "<p>fünf</p>", ())


def test_files() -> None:
    found = read(
        stream(
            attribute(2, 0x9002, bytes(14)),
            attribute(2, 0x8010, b"PLAN~1.TXT\0"),
            attribute(2, 0x800F, b"the plan"),
            attribute(2, 0x9005, mapi(variable(0x1F, 0x3707, "the plan für uns.txt\0".encode("utf-16-le")))),
            attribute(2, 0x9002, bytes(14)),
            attribute(2, 0x9005, mapi(variable(0x1E, 0x3001, b"a picture\0"), variable(0xD, 0x3701, b"0123456789"))),
        )
    )
    assert found is not None
    assert [(file.name, file.content) for file in found.files] == [
        ("the plan für uns.txt", b"the plan"),
        ("a picture", b"0123456789"),
    ]


def test_compressed_rtf() -> None:
    assert decompress_rtf(COMPRESSED, 1 << 20) == RTF
    assert decompress_rtf(COMPRESSED, 10) == RTF[:10]
    assert decompress_rtf(struct.pack("<II4sI", 0, 5, b"MELA", 0) + b"{\\rtf", 1 << 20) == b"{\\rtf"
    assert decompress_rtf(b"no", 1 << 20) is None
    found = read(stream(attribute(1, 0x9003, mapi(variable(0x102, 0x1009, COMPRESSED)))))
    assert found is not None
    assert found.text.strip() == "hello world"


def test_a_reference_into_what_follows_itself() -> None:
    """Longer than what is there: it repeats (a run)."""
    literal_a = b"a" + bytes([207 >> 4, (207 & 15) << 4 | 8])  # one literal, then ten bytes from the first one on
    assert decompress_rtf(struct.pack("<II4sI", 0, 0, b"LZFu", 0) + b"\x02" + literal_a, 1 << 20) == b"a" * 11


@pytest.mark.parametrize(
    "content",
    [
        stream(attribute(1, 0x9003, mapi(count=0xFFFFFFFF))),  # so many properties
        stream(attribute(1, 0x9003, mapi(struct.pack("<HHI", 0x1003, 0x0E00, 0xFFFFFFFF)))),  # so many numbers
        stream(attribute(1, 0x9003, mapi(struct.pack("<HHI", 0x1E, 0x1000, 0xFFFFFFFF) + bytes(400)))),  # so many texts
        stream(attribute(1, 0x9003, mapi(struct.pack("<HHI", 0x1E, 0x1000, 1) + b"\xff\xff\xff\xff"))),  # a text so long
        stream(attribute(1, 0x9004, struct.pack("<I", 0xFFFFFFFF))),  # so many recipients
        stream(struct.pack("<BHHI", 1, 0x800C, 0, 0xFFFFFFFF) + b"text"),
        stream(*[attribute(2, 0x800F, b"")] * 100),
    ],
)
def test_numbers_that_lie(content: bytes) -> None:
    """Some of these kept a library busy for hours, or until memory was full."""
    assert count_lines(lambda: read(content)) < 3000


def test_cut_anywhere() -> None:
    whole = stream(
        attribute(1, 0x9007, struct.pack("<I", 1252)),
        attribute(1, 0x9003, mapi(variable(0x1E, 0x1000, b"some text\0"), variable(0x102, 0x1009, COMPRESSED))),
        attribute(2, 0x9002, bytes(14)),
        attribute(2, 0x9005, mapi(variable(0x1E, 0x3707, b"name\0"), variable(0x102, 0x3701, b"content"))),
    )
    for end in range(len(whole)):
        read(whole[:end])
