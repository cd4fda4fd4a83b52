"""PowerPoint 97 to 2003 (MS-PPT): all text atoms of slides, masters, notes and comments."""

from __future__ import annotations

import struct
from collections.abc import Iterator

from archiver.extract.compound import CompoundFile, NotCompound
from archiver.extract.extraction import ExtractionRefused, ExtractionState, TextPage

_CONTAINER = 0xF
_TAG_DATA = 5003  # contains records as well, such as comments
_CHARACTERS, _BYTES, _STRING = 4000, 4008, 4026
_TAG_NAME = "___PPT"


def read_old_slides(data: bytes) -> Iterator[TextPage]:
    try:
        stream = CompoundFile(data).stream("PowerPoint Document")
    except NotCompound as error:
        raise ExtractionRefused(ExtractionState.BROKEN, "ppt: damaged compound file") from error
    if stream is None:
        raise ExtractionRefused(ExtractionState.BROKEN, "ppt: no presentation in it")
    lines = dict.fromkeys(line for text in _texts(stream) for line in text.replace("\x0b", "\n").splitlines() if line.strip())
    yield TextPage(0, "\n".join(line for line in lines if not line.startswith(_TAG_NAME)))


def _texts(stream: bytes) -> Iterator[str]:
    """Containers are entered, not skipped: their records follow them in the stream."""
    at = 0
    while at + 8 <= len(stream):
        version, kind, size = struct.unpack_from("<HHI", stream, at)
        at += 8
        if version & _CONTAINER == _CONTAINER or kind == _TAG_DATA:
            continue
        content = stream[at : at + size]
        at += size
        if kind in (_CHARACTERS, _STRING):
            yield content.decode("utf-16-le", "replace").replace("\r", "\n")
        elif kind == _BYTES:
            yield content.decode("latin-1").replace("\r", "\n")
