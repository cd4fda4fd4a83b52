"""Decompresses RTF (MS-OXRTFCP) from TNEF files."""

import struct

_HEADER = struct.Struct("<II4sI")  # compressed size, size, kind, checksum
_COMPRESSED, _PLAIN = b"LZFu", b"MELA"
_WINDOW = 4096
_START = (
    rb"{\rtf1\ansi\mac\deff0\deftab720{\fonttbl;}{\f0\fnil \froman \fswiss \fmodern \fscript \fdecor MS Sans SerifSymbolArial"
    rb"Times New RomanCourier{\colortbl\red0\green0\blue0"
    b"\r\n"
    rb"\par \pard\plain\f0\fs20\b\i\u\tab\tx"
)


def decompress_rtf(data: bytes, most: int) -> bytes | None:
    """The RTF, truncated at `most` bytes; None if `data` is not compressed RTF. Linear in the sizes of input and output."""
    if len(data) < _HEADER.size:
        return None
    kind = _HEADER.unpack_from(data)[2]
    if kind == _PLAIN:
        return data[_HEADER.size : _HEADER.size + most]
    return _decompress(data, most) if kind == _COMPRESSED else None


def _decompress(data: bytes, most: int) -> bytes:
    """The window is the end of the output, preceded by the dictionary: its position n is the n-th byte, modulo 4096."""
    out = bytearray(_START)
    wanted, at = len(_START) + most, _HEADER.size
    while at < len(data) and len(out) < wanted:
        control, at = data[at], at + 1
        for bit in range(8):
            if not control >> bit & 1:
                out += data[at : at + 1]
                at += 1
            elif at + 1 < len(data):
                offset, length = data[at] << 4 | data[at + 1] >> 4, (data[at + 1] & 15) + 2
                at += 2
                if offset == len(out) % _WINDOW:  # end marker
                    return bytes(out[len(_START) :])
                _copy(out, offset, length)
            if at >= len(data):
                break
    return bytes(out[len(_START) : wanted])


def _copy(out: bytearray, offset: int, length: int) -> None:
    back = (len(out) - offset) % _WINDOW or _WINDOW
    start = len(out) - back
    if start < 0:  # the part of the window that was never written
        out += bytes(length)
        return
    for place in range(start, start + length):
        out.append(out[place])
