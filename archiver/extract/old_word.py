"""Word 6 to 2003 (MS-DOC): the text of all stories, in the order of the piece table.

The document, footnotes, headers, comments, endnotes and text boxes follow each other in one run of characters.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Iterator

from archiver.extract.compound import CompoundFile, NotCompound
from archiver.extract.extraction import ExtractionRefused, ExtractionState, TextPage

_MAGICS = (0xA5EC, 0xA5DC)  # Word 8 and later; Word 6 and 95
_ENCRYPTED, _COMPLEX, _TABLE_1 = 0x0100, 0x0004, 0x0200
_WORD_97 = 193
_CLX_PIECES, _CLX_PROPERTIES = 2, 1
_COMPRESSED = 0x40000000
# Ends of cells, lines, pages and columns; then the marks of fields, images, notes and so on.
_CHARACTERS = {
    7: "\t",
    11: "\n",
    12: "\n",
    13: "\n",
    14: "\n",
    30: "-",
    31: "",
    160: "\xa0",
    1: "",
    2: "",
    3: "",
    4: "",
    5: "\n",
    8: "",
}
_FIELD = re.compile("\x13[^\x13\x14\x15]*+\x14|\x13[^\x13\x14\x15]*+\x15|[\x13\x14\x15]")
_CODEPAGES = {
    1041: "cp932",
    1042: "cp949",
    2052: "gb18030",
    1028: "big5",
    1049: "cp1251",
    1029: "cp1250",
    1045: "cp1250",
    1032: "cp1253",
}


def read_old_word(data: bytes) -> Iterator[TextPage]:
    try:
        file = CompoundFile(data)
    except NotCompound as error:
        raise ExtractionRefused(ExtractionState.BROKEN, "doc: damaged compound file") from error
    stream = file.stream("WordDocument")
    if stream is None or len(stream) < 0x60 or struct.unpack_from("<H", stream)[0] not in _MAGICS:
        raise ExtractionRefused(ExtractionState.BROKEN, "doc: no document in it")
    version, language, flags = struct.unpack_from("<H2xH2xH", stream, 2)
    if flags & _ENCRYPTED:
        raise ExtractionRefused(ExtractionState.ENCRYPTED, "needs a password")
    if version < _WORD_97:
        text, expected = _word_95(stream, flags, _CODEPAGES.get(language, "cp1252"))
    else:
        table = file.stream("1Table" if flags & _TABLE_1 else "0Table") or file.stream("1Table", "0Table") or b""
        text, expected = _word_97(stream, table)
    yield TextPage(0, _clean(text))
    if len(text) < expected * 0.95:
        raise ExtractionRefused(ExtractionState.OK, f"{len(text)} of {expected} characters could be read")


def _word_97(stream: bytes, table: bytes) -> tuple[str, int]:
    """Offsets are those of the FIB: ccp* from 0x4C on, fcClx at 0x01A2."""
    if len(stream) < 0x01AA:
        raise ExtractionRefused(ExtractionState.BROKEN, "doc: cut off")
    stories = struct.unpack_from("<8I", stream, 0x4C)
    expected = sum(count for count in stories if count < len(stream))
    start, size = struct.unpack_from("<II", stream, 0x01A2)
    pieces = _pieces(table[start : start + size])
    if not pieces:
        first = struct.unpack_from("<I", stream, 0x18)[0]
        return stream[first : first + expected].decode("cp1252", "replace"), expected
    return "".join(_piece(stream, *piece) for piece in pieces), expected


def _pieces(clx: bytes) -> list[tuple[int, int]]:
    """For each piece: the number of characters, and their offset (with the bit for one byte per character)."""
    at = 0
    while at + 3 <= len(clx) and clx[at] == _CLX_PROPERTIES:
        at += 3 + struct.unpack_from("<H", clx, at + 1)[0]
    if at + 5 > len(clx) or clx[at] != _CLX_PIECES:
        return []
    block = clx[at + 5 : at + 5 + struct.unpack_from("<I", clx, at + 1)[0]]
    count = (len(block) - 4) // 12
    if count < 1:
        return []
    ends = struct.unpack_from(f"<{count + 1}I", block)
    places = [struct.unpack_from("<I", block, 4 * (count + 1) + 8 * number + 2)[0] for number in range(count)]
    return [(max(0, ends[number + 1] - ends[number]), place) for number, place in enumerate(places)]


def _piece(stream: bytes, count: int, place: int) -> str:
    if place & _COMPRESSED:
        start = (place & ~_COMPRESSED) // 2
        return stream[start : start + count].decode("cp1252", "replace")
    return stream[place : place + 2 * count].decode("utf-16-le", "replace")


def _word_95(stream: bytes, flags: int, codepage: str) -> tuple[str, int]:
    """The same structure with other offsets: ccp* from 0x34 on, fcClx at 0x0160, and one byte per character."""
    first, last = struct.unpack_from("<II", stream, 0x18)
    if flags & _COMPLEX and len(stream) >= 0x0168:
        start, size = struct.unpack_from("<II", stream, 0x0160)
        pieces = _pieces(stream[start : start + size])
        if pieces:
            text = "".join(stream[place : place + count].decode(codepage, "replace") for count, place in pieces)
            return text, len(text)
    return stream[first:last].decode(codepage, "replace"), max(0, last - first)


def _clean(text: str) -> str:
    """Removes field instructions and keeps their results; nested instructions are removed in the next pass."""
    for _ in range(3):
        text = _FIELD.sub("", text)
    return text.translate(_CHARACTERS)
