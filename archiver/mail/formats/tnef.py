"""Reads TNEF (winmail.dat), the container that Outlook wraps mail in (MS-OXTNEF).

Our own reader, because counts and lengths in such files cannot be trusted: each step advances in the data by at least a
few bytes, whatever they say, and nothing is copied that is not wanted.
"""

import struct
from collections.abc import Iterator
from dataclasses import dataclass, field

from archiver.mail import charsets, limits
from archiver.mail.budget import DecodeBudget
from archiver.mail.defects import Defects
from archiver.mail.formats.rtf import rtf_to_text
from archiver.mail.formats.rtf_compression import decompress_rtf

_SIGNATURE = b"\x78\x9f\x3e\x22"
_ATTRIBUTE = struct.Struct("<BHHI")  # level, name, type, length; then the data and a checksum
_CHECKSUM_BYTES = 2
_ATTACHMENT_LEVEL = 2
_BODY, _MAPI, _CODEPAGE = 0x800C, 0x9003, 0x9007
_NEW_FILE, _TITLE, _DATA, _FILE_MAPI = 0x9002, 0x8010, 0x800F, 0x9005

_PLAIN_TEXT, _UNCOMPRESSED, _RTF, _HTML, _INTERNET_CODEPAGE = 0x1000, 0x3FD9, 0x1009, 0x1013, 0x3FDE
_DISPLAY_NAME, _OBJECT, _SHORT_NAME, _LONG_NAME = 0x3001, 0x3701, 0x3704, 0x3707
_WANTED = frozenset({_PLAIN_TEXT, _UNCOMPRESSED, _RTF, _HTML, _INTERNET_CODEPAGE})
_WANTED_OF_FILES = frozenset({_DISPLAY_NAME, _OBJECT, _SHORT_NAME, _LONG_NAME})
_MULTIPLE, _NAMED = 0x1000, 0x8000
_UNICODE = 0x1F
_FIXED = {1: 0, 2: 2, 0xB: 2, 3: 4, 4: 4, 0xA: 4, 5: 8, 6: 8, 7: 8, 0x14: 8, 0x40: 8, 0x48: 16}
_VARIABLE = frozenset({0, 0xD, 0x1E, _UNICODE, 0x102})
_EMBEDDED_MESSAGE = bytes.fromhex("0703020000000000c000000000000046")
_CODEPAGES = {20127: "ascii", 20866: "koi8-r", 28591: "iso-8859-1", 65001: "utf-8"}


@dataclass(frozen=True, slots=True)
class TnefFile:
    name: str
    content: bytes


@dataclass(frozen=True, slots=True)
class Tnef:
    text: str
    html: str
    files: tuple[TnefFile, ...]


@dataclass(slots=True)
class _Found:
    """The properties read so far, by number, as bytes or as text."""

    codepage: str = "cp1252"
    body: bytes = b""
    properties: dict[int, bytes | str] = field(default_factory=dict)
    files: list[dict[int, bytes | str]] = field(default_factory=list)


class _Cut(Exception):
    """The data is shorter than announced."""


def is_tnef(content: bytes) -> bool:
    return content.startswith(_SIGNATURE)


def read_tnef(content: bytes, budget: DecodeBudget, defects: Defects) -> Tnef | None:
    """The body and files of a TNEF stream, or None if it can't be read. Never raises."""
    if not is_tnef(content) or not budget.take(len(content), defects):
        return None
    found = _Found()
    for level, name, data in _attributes(content):
        try:
            _take(found, level, name, data)
        except _Cut:
            defects.add("tnef_cut")
    return _unwrap(found, budget, defects)


def _attributes(content: bytes) -> Iterator[tuple[int, int, memoryview]]:
    view, at = memoryview(content), len(_SIGNATURE) + 2
    while at + _ATTRIBUTE.size < len(view):
        level, name, _, length = _ATTRIBUTE.unpack_from(view, at)
        at += _ATTRIBUTE.size
        yield level, name, view[at : at + length]
        at += length + _CHECKSUM_BYTES


def _take(found: _Found, level: int, name: int, data: memoryview) -> None:
    if name == _NEW_FILE:
        if len(found.files) < limits.EMBEDDED_FILES:
            found.files.append({})
    elif level == _ATTACHMENT_LEVEL:
        if found.files:
            _take_of_file(found.files[-1], name, data, found.codepage)
    elif name == _BODY:
        found.body = bytes(data)
    elif name == _CODEPAGE and len(data) >= 4:
        found.codepage = _codepage(int.from_bytes(data[:4], "little"))
    elif name == _MAPI:
        found.properties.update(_properties(data, _WANTED, found.codepage))


def _take_of_file(file: dict[int, bytes | str], name: int, data: memoryview, codepage: str) -> None:
    if name == _TITLE:
        file.setdefault(_SHORT_NAME, charsets.decode(bytes(data), codepage, Defects()))
    elif name == _DATA:
        file[_OBJECT] = bytes(data)
    elif name == _FILE_MAPI:
        for number, value in _properties(data, _WANTED_OF_FILES, codepage):
            file[number] = value.removeprefix(_EMBEDDED_MESSAGE) if isinstance(value, bytes) else value


def _properties(data: memoryview, wanted: frozenset[int], codepage: str) -> Iterator[tuple[int, bytes | str]]:
    """The wanted properties. Counts are limited by the amount of data."""
    at = 4
    while at + 4 <= len(data):
        kind, name = struct.unpack_from("<HH", data, at)
        at = _after_name(data, at + 4) if name >= _NAMED else at + 4
        count, at = _number(data, at) if kind & _MULTIPLE or kind in _VARIABLE else (1, at)
        kind &= ~_MULTIPLE
        if kind in _FIXED:
            if name in wanted:
                yield name, bytes(data[at : at + _FIXED[kind]])
            at += _pad(_FIXED[kind] * count)
            continue
        if kind not in _VARIABLE:
            return
        for number in range(count):
            length, at = _number(data, at)
            if number == 0 and name in wanted:
                yield name, _value(kind, bytes(data[at : at + length]), codepage)
            at += _pad(length)


def _pad(length: int) -> int:
    return length + -length % 4


def _after_name(data: memoryview, at: int) -> int:
    """A named property has a GUID, and a number or a name."""
    is_text, at = _number(data, at + 16)
    if not is_text:
        return at + 4
    length, at = _number(data, at)
    return at + _pad(length)


def _number(data: memoryview, at: int) -> tuple[int, int]:
    if at + 4 > len(data):
        raise _Cut
    return int.from_bytes(data[at : at + 4], "little"), at + 4


def _value(kind: int, data: bytes, codepage: str) -> bytes | str:
    if kind == _UNICODE:
        return data.decode("utf-16-le", "replace").rstrip("\0")
    return charsets.decode(data.rstrip(b"\0"), codepage, Defects()) if kind == 0x1E else data


def _unwrap(found: _Found, budget: DecodeBudget, defects: Defects) -> Tnef | None:
    internet = found.properties.get(_INTERNET_CODEPAGE)
    codepage = _codepage(int.from_bytes(internet, "little")) if isinstance(internet, bytes) else ""
    html = _text(found.properties.get(_HTML, b""), codepage)
    plain = found.properties.get(_PLAIN_TEXT) or found.properties.get(_UNCOMPRESSED) or found.body
    text = _text(plain, codepage)
    if not text and not html:
        text = _rtf_text(found.properties.get(_RTF, b""), budget, defects)
    files = tuple(file for file in map(_file, found.files) if file.name or file.content)
    return Tnef(text, html, files) if text or html or files else None


def _rtf_text(compressed: bytes | str, budget: DecodeBudget, defects: Defects) -> str:
    if not isinstance(compressed, bytes) or not compressed:
        return ""
    rtf = decompress_rtf(compressed, min(budget.left, limits.RTF_BYTES))
    if rtf is None:
        rtf = compressed[: limits.RTF_BYTES]
    if len(rtf) >= limits.RTF_BYTES:
        defects.add("rtf_too_large")
    return rtf_to_text(rtf.decode("latin-1")) if budget.take(len(rtf), defects) else ""


def _file(file: dict[int, bytes | str]) -> TnefFile:
    name = file.get(_LONG_NAME) or file.get(_SHORT_NAME) or file.get(_DISPLAY_NAME) or ""
    content = file.get(_OBJECT, b"")
    return TnefFile(name.strip("\0") if isinstance(name, str) else "", content if isinstance(content, bytes) else b"")


def _text(value: bytes | str, codepage: str) -> str:
    if isinstance(value, bytes):
        value = value.rstrip(b"\0")
        value = charsets.decode(value, codepage, Defects()) if codepage and not _is_utf8(value) else _guess(value)
    return value.strip("\0")


def _guess(value: bytes) -> str:
    return value.decode("utf-8") if _is_utf8(value) else value.decode("cp1252", "replace")


def _is_utf8(value: bytes) -> bool:
    try:
        value.decode("utf-8")
    except UnicodeDecodeError:
        return False
    return True


def _codepage(number: int) -> str:
    name = _CODEPAGES.get(number) or f"cp{number}"
    return name if charsets.codec_for(name) else "cp1252"
