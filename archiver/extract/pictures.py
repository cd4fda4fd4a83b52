"""Renders pages of a PDF as images, for a preview that runs nothing of the file."""

import struct
import zlib
from collections.abc import Iterator

import pypdfium2

from archiver.extract import limits
from archiver.extract.documents import open_pdf

_SIGNATURE = b"\x89PNG\r\n\x1a\n"
_COLOUR_TYPES = {1: 0, 3: 2, 4: 6}
_COMPRESSION = 3


def draw_page(data: bytes, number: int, width: int = limits.PICTURE_WIDTH) -> tuple[int, bytes]:
    """The number of pages, and one page, counted from 1, as PNG. Page 0 returns just the number."""
    with open_pdf(data) as document:
        picture = b"".join(_png(document[number - 1], width)) if 0 < number <= len(document) else b""
        return len(document), picture


def _png(page: pypdfium2.PdfPage, picture_width: int) -> Iterator[bytes]:
    """Written without a library (PNG, third edition, section 5): the bitmap already has its colours in the right order."""
    width, height = page.get_size()
    scale = picture_width / max(width, 1)
    scale = min(scale, (limits.PICTURE_PIXELS / max(width * height, 1)) ** 0.5)
    bitmap = page.render(scale=scale, rev_byteorder=True)
    line, pixels = bitmap.width * bitmap.n_channels, memoryview(bitmap.buffer).cast("B")
    rows = b"".join(b"\0" + pixels[row * bitmap.stride : row * bitmap.stride + line] for row in range(bitmap.height))
    yield _SIGNATURE
    yield _chunk(b"IHDR", struct.pack(">IIBBBBB", bitmap.width, bitmap.height, 8, _COLOUR_TYPES[bitmap.n_channels], 0, 0, 0))
    yield _chunk(b"IDAT", zlib.compress(rows, _COMPRESSION))
    yield _chunk(b"IEND", b"")


def _chunk(kind: bytes, content: bytes) -> bytes:
    return struct.pack(">I", len(content)) + kind + content + struct.pack(">I", zlib.crc32(kind + content))
