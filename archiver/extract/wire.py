"""The protocol between a process and its child: a length, a JSON object of that length, then binary pieces whose sizes it
lists.

JSON, and nothing that creates objects: a response may have been forged by the sender of the mail.
"""

from __future__ import annotations

import json
import struct
from typing import Any, BinaryIO

import orjson

LENGTH = struct.Struct(">I")
HEADER_BYTES = 512 << 20
PIECES_BYTES = 512 << 20


def encode(header: dict[str, Any]) -> bytes:
    try:
        data = orjson.dumps(header)
    except TypeError:  # lone surrogates
        data = json.dumps(header, default=str).encode("ascii")
    return LENGTH.pack(len(data)) + data


def decode(data: bytes) -> dict[str, Any]:
    try:
        header = orjson.loads(data)
    except orjson.JSONDecodeError:
        header = json.loads(data)
    if not isinstance(header, dict):
        raise ValueError("not a JSON object")
    return header


def read(stream: BinaryIO) -> tuple[dict[str, Any], list[bytes]] | None:
    """For the child. None if the parent has closed the pipe."""
    prefix = stream.read(LENGTH.size)
    if len(prefix) < LENGTH.size:
        return None
    header = decode(stream.read(LENGTH.unpack(prefix)[0]))
    pieces = [stream.read(size) for size in header["sizes"]]
    return (header, pieces) if [len(piece) for piece in pieces] == header["sizes"] else None
