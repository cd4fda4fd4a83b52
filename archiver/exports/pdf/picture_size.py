"""The size of a picture from its first bytes, without decoding it. None for what is not a picture of that type."""

from __future__ import annotations

import struct
from collections.abc import Callable

_FRAMES = frozenset(range(0xC0, 0xD0)) - {0xC4, 0xC8, 0xCC}
"""The JPEG markers that state the size."""

Size = tuple[int, int]


def picture_size(data: bytes, content_type: str) -> Size | None:
    read = _READERS.get(content_type)
    try:
        return read(data) if read is not None else None
    except struct.error:  # it ends too early
        return None


def _png(data: bytes) -> Size | None:
    return struct.unpack(">II", data[16:24]) if data.startswith(b"\x89PNG\r\n\x1a\n") else None


def _gif(data: bytes) -> Size | None:
    return struct.unpack("<HH", data[6:10]) if data.startswith((b"GIF87a", b"GIF89a")) else None


def _jpeg(data: bytes) -> Size | None:
    """Segments are skipped by their lengths until the one with the size."""
    at = 2 if data.startswith(b"\xff\xd8") else len(data)
    while at + 9 <= len(data) and data[at] == 0xFF:
        if data[at + 1] in _FRAMES:
            height, width = struct.unpack(">HH", data[at + 5 : at + 9])
            return width, height
        at += 2 + max(2, int(struct.unpack(">H", data[at + 2 : at + 4])[0]))
    return None


_READERS: dict[str, Callable[[bytes], Size | None]] = {"image/png": _png, "image/gif": _gif, "image/jpeg": _jpeg}
