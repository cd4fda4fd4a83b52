"""Excel 2 to 2003 (BIFF): cells, headers, comments and text boxes, record by record.

Numbers are returned as stored. A reader that knows number formats is used first (`documents.read_xls`); this one is for what
that one does not read."""

from __future__ import annotations

import re
import struct
from collections.abc import Iterator
from dataclasses import dataclass, field

from archiver.extract.compound import CompoundFile, NotCompound
from archiver.extract.extraction import ExtractionRefused, ExtractionState

_BOF = {0x0009: 2, 0x0209: 3, 0x0409: 4}
_BOF_5, _EOF, _FILEPASS, _CODEPAGE, _BOUNDSHEET, _SST, _CONTINUE, _TXO = 0x0809, 0x0A, 0x2F, 0x42, 0x85, 0xFC, 0x3C, 0x1B6
_LABELS = frozenset({0x0004, 0x0204, 0x00D6})
_NUMBERS = frozenset({0x0003, 0x0203})
_FORMULAS = frozenset({0x0006, 0x0206, 0x0406})
_STRINGS = frozenset({0x0007, 0x0207})
_MARGINS = frozenset({0x14, 0x15})
_LABEL_SST, _RK, _MULTIPLE_RK, _NOTE, _INTEGER = 0xFD, 0x27E, 0xBD, 0x1C, 0x0002
_CODEPAGES = {1200: "utf-16-le", 32768: "mac_roman", 32769: "cp1252", 10000: "mac_roman", 936: "gb18030", 950: "big5hkscs"}
_CELLS = 2_000_000


# In headers and footers: fonts, sections, sizes, colours, and fields that are filled in when printing.
_MARGIN_CODE = re.compile(r"&(?:\"[^\"\n]{0,100}+\"|[LCRPNDTZFAGBIUESXYOH]|K[0-9A-F]{6}|\d{1,3})")


def without_codes(margin: str) -> str:
    return _MARGIN_CODE.sub(" ", margin).strip()


@dataclass(slots=True)
class Sheet:
    name: str = ""
    lines: list[str] = field(default_factory=list)
    texts: list[str] = field(default_factory=list)
    """The texts of cells, headers, comments and text boxes, without numbers."""
    _row: int = -1

    def put(self, row: int, value: str, *, is_text: bool) -> None:
        if row == self._row and self.lines:
            self.lines.append(f"\t{value}")
        else:
            self.lines.append(f"\n{value}" if self.lines else value)
        self._row = row
        if is_text:
            self.texts.append(value)

    @property
    def text(self) -> str:
        return "".join(self.lines)


def workbook_stream(data: bytes) -> bytes:
    try:
        stream = CompoundFile(data).stream("Workbook", "Book")
    except NotCompound:
        stream = data  # before version 5, a file is a plain sequence of records
    if stream is None:
        raise ExtractionRefused(ExtractionState.BROKEN, "workbook: no sheets in it")
    return stream


def read_sheets_of(data: bytes) -> list[Sheet]:
    reader = _Reader()
    for kind, content, more in _records(workbook_stream(data)):
        if reader.cells > _CELLS:
            break
        try:
            reader.record(kind, content, more)
        except (struct.error, IndexError):
            reader.damaged += 1
    if reader.damaged:
        raise ExtractionRefused(ExtractionState.BROKEN, f"workbook: {reader.damaged} damaged records")
    return [sheet for sheet in reader.sheets if sheet.lines]


def _records(stream: bytes) -> Iterator[tuple[int, bytes, list[bytes]]]:
    """Records, each joined with its continuation records."""
    at = 0
    waiting: tuple[int, bytes, list[bytes]] | None = None
    while at + 4 <= len(stream):
        kind, size = struct.unpack_from("<HH", stream, at)
        content = stream[at + 4 : at + 4 + size]
        at += 4 + size
        if kind == _CONTINUE and waiting is not None:
            waiting[2].append(content)
            continue
        if waiting is not None:
            yield waiting
        waiting = (kind, content, [])
    if waiting is not None:
        yield waiting


class _Reader:
    def __init__(self) -> None:
        self.version = 8
        self.codepage = "cp1252"
        self.names: list[str] = []
        self.shared: list[str] = []
        self.sheets = [Sheet()]
        self.cells = 0
        self.damaged = 0
        self._row = -1  # of a formula whose text follows
        self._begun = 0

    def record(self, kind: int, content: bytes, more: list[bytes]) -> None:
        if kind in _BOF or kind == _BOF_5:
            self._begin(kind, content)
        elif kind == _FILEPASS:
            raise ExtractionRefused(ExtractionState.ENCRYPTED, "needs a password")
        elif kind == _CODEPAGE:
            self.codepage = _codec(struct.unpack_from("<H", content)[0])
        elif kind == _BOUNDSHEET:
            self.names.append(self._string(content[6:], 1))
        elif kind == _SST:
            self.shared = list(_shared_strings([content, *more]))
        elif kind == _TXO:
            self._text_box(content, more)
        elif kind in _MARGINS and content:
            self._put(-2, without_codes(self._string(content, 2 if self.version == 8 else 1)), is_text=True)
        elif kind == _NOTE:
            self._note(content)
        else:
            self._cell(kind, content)

    def _begin(self, kind: int, content: bytes) -> None:
        self.version = _BOF.get(kind) or (8 if struct.unpack_from("<H", content)[0] >= 0x0600 else 5)
        what = struct.unpack_from("<H", content, 2)[0] if len(content) >= 4 else 0
        if what != 0x0005:  # not the part about the workbook as a whole
            name = self.names[self._begun] if self._begun < len(self.names) else ""
            self._begun += 1
            self.sheets.append(Sheet(name))

    def _cell(self, kind: int, content: bytes) -> None:
        if kind in _LABELS:
            start, width = (7, 1) if kind == 0x0004 else (6, 2)
            self._put(_row(content), self._string(content[start:], width), is_text=True)
        elif kind == _LABEL_SST:
            self._put(_row(content), self.shared[struct.unpack_from("<I", content, 6)[0]], is_text=True)
        elif kind in _STRINGS:
            self._put(self._row, self._string(content, 1 if kind == 0x0007 else 2), is_text=True)
        elif kind in _NUMBERS:
            self._number(_row(content), struct.unpack_from("<d", content, 7 if kind == 0x0003 else 6)[0])
        elif kind == _INTEGER and self.version == 2:
            self._number(_row(content), struct.unpack_from("<H", content, 7)[0])
        elif kind == _RK:
            self._number(_row(content), _rk(struct.unpack_from("<I", content, 6)[0]))
        elif kind == _MULTIPLE_RK:
            for at in range(4, len(content) - 7, 6):
                self._number(_row(content), _rk(struct.unpack_from("<I", content, at + 2)[0]))
        elif kind in _FORMULAS:
            start = 7 if self.version == 2 else 6
            self._row = _row(content)
            if content[start + 6 : start + 8] != b"\xff\xff":
                self._number(self._row, struct.unpack_from("<d", content, start)[0])

    def _note(self, content: bytes) -> None:
        """Up to version 5 the text of a comment; in later versions its author, and the text is in a text box."""
        if self.version < 8:
            size = struct.unpack_from("<H", content, 4)[0]
            self._put(-3, content[6 : 6 + min(size, 2048)].decode(self.codepage, "replace"), is_text=True)
        else:
            self._put(-3, self._string(content[8:], 2), is_text=True)

    def _text_box(self, content: bytes, more: list[bytes]) -> None:
        count, pieces = struct.unpack_from("<H", content, 10)[0], []
        for piece in more:
            if count <= 0:
                break
            text = _characters(piece[1:], is_wide=bool(piece[0] & 1))[:count] if piece else ""
            pieces.append(text)
            count -= len(text)
        self._put(-3, "".join(pieces).replace("\r", "\n"), is_text=True)

    def _string(self, content: bytes, width: int) -> str:
        """A string: its length, in version 8 a byte with the width of its characters, then the characters."""
        if not content:
            return ""
        count = content[0] if width == 1 else struct.unpack_from("<H", content)[0]
        if self.version < 8:
            return content[width : width + count].decode(self.codepage, "replace")
        flags = content[width]
        start = width + 1 + (2 if flags & 8 else 0) + (4 if flags & 4 else 0)
        return _characters(content[start:], is_wide=bool(flags & 1))[:count]

    def _number(self, row: int, value: float) -> None:
        self._put(row, str(int(value)) if value == value and abs(value) < 1e15 and value == int(value) else repr(value))

    def _put(self, row: int, value: str, *, is_text: bool = False) -> None:
        if value.strip():
            self.cells += 1
            self.sheets[-1].put(row, value, is_text=is_text)


def _shared_strings(blocks: list[bytes]) -> Iterator[str]:
    """A string may continue in the next block, which states the width of the remaining characters itself."""
    cursor = _Blocks(blocks)
    total = struct.unpack("<I", cursor.take(8)[4:8])[0]
    for _ in range(min(total, sum(map(len, blocks)))):
        if cursor.is_done:
            return
        count, flags = struct.unpack("<HB", cursor.take(3))
        runs = struct.unpack("<H", cursor.take(2))[0] if flags & 8 else 0
        extra = struct.unpack("<I", cursor.take(4))[0] if flags & 4 else 0
        yield cursor.text(count, is_wide=bool(flags & 1))
        cursor.skip(4 * runs + extra)


class _Blocks:
    def __init__(self, blocks: list[bytes]) -> None:
        self._blocks, self._number, self._at = blocks, 0, 0

    @property
    def is_done(self) -> bool:
        self._next()
        return self._number >= len(self._blocks)

    def _next(self) -> None:
        while self._number < len(self._blocks) and self._at >= len(self._blocks[self._number]):
            self._at -= len(self._blocks[self._number])
            self._number += 1

    def take(self, size: int) -> bytes:
        self._next()
        block = self._blocks[self._number] if self._number < len(self._blocks) else b""
        taken = block[self._at : self._at + size]
        self._at += size
        return taken

    def skip(self, size: int) -> None:
        self._at += size
        self._next()

    def text(self, count: int, *, is_wide: bool) -> str:
        pieces = []
        while count > 0 and self._number < len(self._blocks):
            block = self._blocks[self._number]
            if self._at >= len(block):
                self._number, self._at = self._number + 1, 1
                if self._number < len(self._blocks) and self._blocks[self._number]:
                    is_wide = bool(self._blocks[self._number][0] & 1)
                continue
            size = count * (2 if is_wide else 1)
            piece = _characters(block[self._at : self._at + size], is_wide=is_wide)
            self._at = min(len(block), self._at + size)
            pieces.append(piece)
            count -= max(1, len(piece))
        return "".join(pieces)


def _characters(content: bytes, *, is_wide: bool) -> str:
    return content.decode("utf-16-le" if is_wide else "latin-1", "replace")


def _row(content: bytes) -> int:
    row: int = struct.unpack_from("<H", content)[0]
    return row


def _rk(value: int) -> float:
    """MS-XLS, section 2.5.217: an integer or the upper half of a double, perhaps times a hundred."""
    number = float(struct.unpack("<i", struct.pack("<I", value))[0] >> 2)
    if not value & 2:
        number = struct.unpack("<d", struct.pack("<Q", (value & 0xFFFFFFFC) << 32))[0]
    return number / 100 if value & 1 else number


def _codec(number: int) -> str:
    codec = _CODEPAGES.get(number, f"cp{number}")
    try:
        b"".decode(codec)
    except LookupError:
        return "cp1252"
    return codec
