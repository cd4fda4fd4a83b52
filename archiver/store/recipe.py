"""The recipe that reassembles a message from its own bytes and the parts that were cut out of it."""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import NamedTuple

import orjson

from archiver.store import base64_lines
from archiver.store.base64_lines import Lines
from archiver.store.content import FrameContent, MemoryContent, Raw, pieces
from archiver.store.parts import Cut, find_cuts

_LENGTH = struct.Struct("<I")


class Literal(NamedTuple):
    length: int


class PartRef(NamedTuple):
    """The part with this SHA-256, as it is stored, or encoded in base64 lines."""

    sha256: bytes
    length: int
    lines: Lines | None

    @property
    def message_length(self) -> int:
        """How many bytes of the message it stands for."""
        return self.length if self.lines is None else base64_lines.encoded_length(self.length, self.lines)


class Recipe(NamedTuple):
    steps: tuple[Literal | PartRef, ...]

    @property
    def part_hashes(self) -> list[bytes]:
        return [step.sha256 for step in self.steps if isinstance(step, PartRef)]

    @property
    def message_length(self) -> int:
        return sum(step.length if isinstance(step, Literal) else step.message_length for step in self.steps)

    def encode(self) -> bytes:
        body = orjson.dumps([_encode_step(step) for step in self.steps])
        return _LENGTH.pack(len(body)) + body

    @classmethod
    def decode(cls, data: bytes) -> tuple[Recipe, int]:
        """The recipe, and where the literal bytes begin."""
        end = _LENGTH.size + _LENGTH.unpack_from(data)[0]
        return cls(tuple([_decode_step(step) for step in orjson.loads(data[_LENGTH.size : end])])), end

    @staticmethod
    def head_length(data: bytes) -> int:
        return _LENGTH.size + int(_LENGTH.unpack_from(data)[0]) if len(data) >= _LENGTH.size else _LENGTH.size


def _encode_step(step: Literal | PartRef) -> list[object]:
    if isinstance(step, Literal):
        return ["literal", step.length]
    if step.lines is None:
        return ["part", step.sha256.hex(), step.length]
    return ["base64", step.sha256.hex(), step.length, step.lines.length, step.lines.eol]


def _decode_step(step: list[object]) -> Literal | PartRef:
    match step:
        case ["literal", int(length)]:
            return Literal(length)
        case ["part", str(sha256), int(length)]:
            return PartRef(bytes.fromhex(sha256), length, None)
        case ["base64", str(sha256), int(length), int(line), str(eol)]:
            return PartRef(bytes.fromhex(sha256), length, Lines(line, eol))
    raise ValueError(f"an unknown kind of recipe step: {step[:1]}")


@dataclass(frozen=True, slots=True)
class PartContent:
    """A part as it will be stored: a range of the message, decoded if that is reversible."""

    raw: Raw
    cut: Cut

    @property
    def size(self) -> int:
        return self.cut.size

    def pieces(self) -> Iterator[bytes]:
        if self.cut.lines is None:
            yield from pieces(self.raw, self.cut.start, self.cut.end)
            return
        for piece in base64_lines.decode(self.raw, self.cut.start, self.cut.end, self.cut.lines):
            assert piece is not None, "checked when the part was found"
            yield piece


@dataclass(frozen=True, slots=True)
class CutMessage:
    """A message in the form in which it is stored: its recipe with the literal bytes, and its parts."""

    raw: Raw
    head: bytes
    """The recipe, encoded."""
    size: int
    cuts: tuple[Cut, ...]
    parts: tuple[tuple[bytes, FrameContent], ...]
    """SHA-256 and content of each part, in order; the same part may occur twice."""

    def pieces(self) -> Iterator[bytes]:
        yield self.head
        at = 0
        for cut in self.cuts:
            yield from pieces(self.raw, at, cut.start)
            at = cut.end
        yield from pieces(self.raw, at, self.raw.size)


def cut_message(raw: Raw) -> CutMessage | None:
    """None for a message without large parts: it is stored whole."""
    cuts = find_cuts(raw)
    if not cuts:
        return None
    steps: list[Literal | PartRef] = []
    parts: list[tuple[bytes, FrameContent]] = []
    at = 0
    for cut in cuts:
        if cut.start > at:
            steps.append(Literal(cut.start - at))
        parts.append((cut.sha256, MemoryContent(cut.data) if cut.data is not None else PartContent(raw, cut)))
        steps.append(PartRef(cut.sha256, cut.size, cut.lines))
        at = cut.end
    if raw.size > at:
        steps.append(Literal(raw.size - at))
    head = Recipe(tuple(steps)).encode()
    literal = raw.size - sum(cut.end - cut.start for cut in cuts)
    return CutMessage(raw, head, len(head) + literal, tuple(cuts), tuple(parts))


def part_pieces(ref: PartRef, plain: Iterable[bytes]) -> Iterator[bytes]:
    """The range of the message that this part was cut from."""
    return iter(plain) if ref.lines is None else base64_lines.encode(plain, ref.lines)
