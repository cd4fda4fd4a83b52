"""RTF and the binary formats of old Office versions with a word in every place for text, written by hand."""
# ruff: noqa: E501 - markup is easier to read in one line

from __future__ import annotations

import struct
from collections.abc import Mapping

RTF = (
    rb"{\rtf1\ansi\ansicpg1252\deff0{\fonttbl{\f0\fswiss\fcharset0 Arial;}{\f1\fnil\fcharset204{\*\fname Arial;}Arial CYR;}"
    rb"{\f2\fnil\fcharset128 MS Gothic;}{\f3\fnil\fcharset238 Arial CE;}}{\stylesheet{\s0 hiddenstyle;}}"
    rb"{\info{\title wordtitle}{\author hiddenauthor}{\keywords wordkeyword}}{\header wordheader\par}{\footer wordfooter\par}"
    rb"\f0 wordbody caf\'e9\par\f1 \'cf\'f0\'e8\'e2\'e5\'f2\par\f2 \'93\'fa\'96\'7b\'8c\'ea\par\f3 \'f8e\'e8\par"
    rb"\f0{\f1 \'cc\'ee\'f1\'ea\'e2\'e0} \'fcber wordgroup\par\uc1\u26085?\u26412?\par "
    rb"wordnoted{\footnote wordfootnote}{\*\atnid x}{\*\annotation wordcomment}\par"
    rb"{\field{\*\fldinst{HYPERLINK hiddenurl}}{\fldrslt{wordlink}}}\par\trowd wordcell\cell wordsecond\cell\row"
    rb"{\shp{\*\shpinst{\sp{\sn hiddenname}{\sv hiddenvalue}}{\shptxt wordbox\par}}}"
    rb"{\object{\*\objdata 0102}{\result wordobject}}{\*\generator hiddenprogram;}\par}"
)
RTF_WORDS = (
    "wordtitle", "wordkeyword", "wordheader", "wordfooter", "wordbody", "café", "Привет", "日本語", "řeč", "Москва", "über", "wordgroup",
    "日本", "wordnoted", "wordfootnote", "wordcomment", "wordlink", "wordcell", "wordsecond", "wordbox", "wordobject",
)  # fmt: skip


# compound files (MS-CFB)

_SECTOR, _FREE, _END, _FAT = 512, 0xFFFFFFFF, 0xFFFFFFFE, 0xFFFFFFFD


def compound(streams: Mapping[str, bytes], inside: Mapping[str, bytes] | None = None) -> bytes:
    """Streams of the root, and those of a storage inside it. All are padded to 4,096 bytes, so that no small sectors are needed."""
    entries: list[tuple[str, int, bytes]] = [("Root Entry", 5, b"")]
    entries += [(name, 2, content.ljust(4096, b"\0")) for name, content in streams.items()]
    storage = len(entries)
    if inside:
        entries.append(("MBD0001", 1, b""))
        entries += [(name, 2, content.ljust(4096, b"\0")) for name, content in inside.items()]
    sectors: list[bytes] = []
    fat: list[int] = []

    def add(content: bytes) -> int:
        first = len(sectors)
        count = -(-len(content) // _SECTOR)
        for number in range(count):
            sectors.append(content[number * _SECTOR : (number + 1) * _SECTOR].ljust(_SECTOR, b"\0"))
            fat.append(first + number + 1 if number + 1 < count else _END)
        return first

    table = b""
    for number, (name, kind, content) in enumerate(entries):
        start = add(content) if content else _END
        in_root = 0 < number <= (storage if inside else len(entries) - 1)
        last = (storage if inside else len(entries) - 1) if in_root else len(entries) - 1
        right = number + 1 if number and number < last else _FREE
        child = 1 if number == 0 else storage + 1 if inside and number == storage else _FREE
        encoded = name.encode("utf-16-le") + b"\0\0"
        table += struct.pack("<64sHBBIII16xI16xIQ", encoded, len(encoded), kind, 1, _FREE, right, child, 0, start, len(content))
    directory = add(table)
    count = -(-(len(fat) + 1) // (_SECTOR // 4 - 1))
    first_fat = len(sectors)
    fat += [_FAT] * count
    packed = b"".join(struct.pack("<I", entry) for entry in fat).ljust(count * _SECTOR, b"\xff")
    header = struct.pack("<8s16xHHHHH6xIIIIIIIII", b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1", 0x3E, 3, 0xFFFE, 9, 6, 0, count, directory, 0,
                         4096, _END, 0, _END, 0)  # fmt: skip
    places = [*range(first_fat, first_fat + count), *[_FREE] * (109 - count)]
    return header + struct.pack("<109I", *places) + b"".join(sectors) + packed


_STORIES = ("wordbody \x13 HYPERLINK hidden \x14wordlink\x15\rwordcell\x07wordsecond\x07\r", "wordfootnote\r", "wordheader\r", "",
            "wordcomment\r", "wordendnote\r", "wordbox\r", "wordheaderbox\r")  # fmt: skip
DOC_WORDS = ("wordbody", "wordlink", "wordcell", "wordsecond", "wordfootnote", "wordheader", "wordcomment", "wordendnote", "wordbox",
             "wordheaderbox", "Привет")  # fmt: skip


def doc() -> bytes:
    """Word 97: the first half of the text in eight bits, then a piece in sixteen."""
    texts = [*_STORIES[:-1], f"{_STORIES[-1]}Привет\r"]
    whole = "".join(texts)
    cut = whole.index("Привет")
    narrow, wide = whole[:cut].encode("cp1252"), whole[cut:].encode("utf-16-le")
    start = 0x400
    places = struct.pack("<III", 0, cut, len(whole))
    places += struct.pack("<HIH", 0, (start * 2) | 0x40000000, 0) + struct.pack("<HIH", 0, start + len(narrow), 0)
    clx = b"\x01\x02\x00ab\x02" + struct.pack("<I", len(places)) + places
    head = bytearray(start)
    struct.pack_into("<HHHHHH", head, 0, 0xA5EC, 193, 0, 0x409, 0, 0x0200)
    struct.pack_into("<8I", head, 0x4C, *map(len, texts))
    struct.pack_into("<II", head, 0x01A2, 0, len(clx))
    return compound({"WordDocument": bytes(head) + narrow + wide, "1Table": clx})


def doc_95() -> bytes:
    text = "wordbody wordlink\rPříliš\r".encode("cp1250")
    head = bytearray(0x300)
    struct.pack_into("<HHHHHH", head, 0, 0xA5DC, 104, 0, 0x405, 0, 0)
    struct.pack_into("<II", head, 0x18, 0x300, 0x300 + len(text))
    return compound({"WordDocument": bytes(head) + text})


def _record(kind: int, content: bytes = b"") -> bytes:
    return struct.pack("<HH", kind, len(content)) + content


def _wide(text: str, width: str = "H") -> bytes:
    return struct.pack(f"<{width}B", len(text), 1) + text.encode("utf-16-le")


def biff8() -> bytes:
    strings = ("wordshared", "wordlong" * 3, "Привет")
    first = struct.pack("<II", 3, 3) + _wide(strings[0]) + struct.pack("<HB", len(strings[1]), 0) + strings[1][:10].encode()
    rest = b"\x01" + strings[1][10:].encode("utf-16-le") + _wide(strings[2])  # runs on, wider than it began
    globals_ = _record(0x809, struct.pack("<HHHH", 0x0600, 0x0005, 0, 0)) + _record(0x42, struct.pack("<H", 1200))
    globals_ += _record(0x85, struct.pack("<IH", 0, 0) + _wide("wordsheet", "B")) + _record(0xFC, first) + _record(0x3C, rest)
    cells = b"".join(_record(0xFD, struct.pack("<HHHI", row, 0, 0, row)) for row in range(3))
    cells += _record(0x203, struct.pack("<HHHd", 3, 0, 0, 47.5)) + _record(
        0x27E, struct.pack("<HHHI", 3, 1, 0, (4711 << 2) | 2)
    )
    cells += _record(0x06, struct.pack("<HHH", 4, 0, 0) + b"\0\0\0\0\0\0\xff\xff" + bytes(8)) + _record(
        0x207, _wide("wordformula")
    )
    cells += _record(0x14, _wide("&Cwordheader")) + _record(0x15, _wide("wordfooter"))
    cells += (
        _record(0x1B6, bytes(10) + struct.pack("<HHI", len("wordbox"), 0, 0))
        + _record(0x3C, b"\0wordbox")
        + _record(0x3C, bytes(16))
    )
    return globals_ + _record(0x0A) + _record(0x809, struct.pack("<HHHH", 0x0600, 0x0010, 0, 0)) + cells + _record(0x0A)


XLS_WORDS = (
    "wordsheet",
    "wordshared",
    "wordlongwordlongwordlong",
    "Привет",
    "wordformula",
    "wordheader",
    "wordfooter",
    "wordbox",
    "4711",
)


def biff5() -> bytes:
    globals_ = _record(0x809, struct.pack("<HHHH", 0x0500, 0x0005, 0, 0)) + _record(0x42, struct.pack("<H", 1251))
    globals_ += _record(0x85, struct.pack("<IHB", 0, 0, 9) + b"wordsheet") + _record(0x0A)
    cells = _record(0x204, struct.pack("<HHHH", 0, 0, 0, 6) + "Привет".encode("cp1251"))
    cells += _record(0x1C, struct.pack("<HHH", 0, 0, 11) + b"wordcomment") + _record(0x14, b"\x0awordheader")
    return globals_ + _record(0x809, struct.pack("<HHHH", 0x0500, 0x0010, 0, 0)) + cells + _record(0x0A)


def biff4() -> bytes:
    cells = _record(0x204, struct.pack("<HHHH", 0, 0, 0, 8) + b"wordcell") + _record(
        0x203, struct.pack("<HHHd", 1, 0, 0, 4711.0)
    )
    return _record(0x409, struct.pack("<HHH", 0, 0x10, 0)) + cells + _record(0x0A)


def biff2() -> bytes:
    return (
        _record(0x09, struct.pack("<HH", 2, 0x10))
        + _record(0x04, struct.pack("<HH3sB", 0, 0, b"", 8) + b"wordcell")
        + _record(0x0A)
    )


def ppt() -> bytes:
    def atom(kind: int, content: bytes) -> bytes:
        return struct.pack("<HHI", 0, kind, len(content)) + content

    def container(kind: int, content: bytes) -> bytes:
        return struct.pack("<HHI", 0xF, kind, len(content)) + content

    slide = container(
        1006, container(1036, atom(4000, "wordbody Привет\rwordline".encode("utf-16-le")) + atom(4008, b"wordnarrow"))
    )
    comment = container(12000, atom(4026, "Ann".encode("utf-16-le")) + atom(4026, "wordcomment".encode("utf-16-le")))
    tags = container(5000, container(5002, atom(4026, "___PPT10".encode("utf-16-le")) + atom(5003, comment)))
    notes = container(1008, atom(4008, b"wordnotes"))
    return compound({"PowerPoint Document": slide + tags + notes, "Current User": b"x"})


PPT_WORDS = ("wordbody", "Привет", "wordline", "wordnarrow", "wordcomment", "wordnotes")
