"""Unpacks archives and compressed files into a folder: once, within limits, and never outside of it."""

from __future__ import annotations

import bz2
import hashlib
import lzma
import os
import shutil
import tarfile
import zipfile
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any, Protocol, cast

import zstandard

from connectors.files.detect import FileKind
from connectors.files.names import shown, stem

FILES_LIMIT = 2_000_000
RATIO_LIMIT = 200
HARMLESS_BYTES = 1 << 30
"""Up to here nothing is taken for a bomb."""
_PIECE_BYTES = 1 << 20
_BITE = 512
_CHECK_EVERY_BYTES = 16 << 20
_NAME_BYTES = 200
_PARTS_LIMIT = 40
_OFFICE = ("[Content_Types].xml", "mimetype", "META-INF/MANIFEST.MF")


class Readable(Protocol):
    def read(self, size: int = -1, /) -> bytes: ...


class UnpackingRefused(Exception):
    """What is in it is not unpacked, and why."""


class NotMail(UnpackingRefused):
    """It is an archive, and holds something else."""


@dataclass(slots=True)
class Unpacking:
    """One archive on its way into `target`."""

    source: Path
    target: Path
    alive: Callable[[int], None]
    """Called with the bytes unpacked so far, often; may raise to stop."""
    least_free_bytes: int
    """On the target's disk."""
    problems: list[tuple[str, str]] = field(default_factory=list)
    """Files inside that could not be unpacked, and why."""
    is_archive: bool = True
    """Not a single compressed file."""
    unpacked_bytes: int = 0
    _files: int = 0
    _limit: int = 0
    _check_at: int = 0
    _numbers: dict[tuple[str, ...], int] = field(default_factory=dict)
    """For names that were there before, the number to go on with: thousands of equal ones are not counted through each time."""

    def run(self, kind: FileKind) -> None:
        """Raises Refused, or OSError of the source's or the target's disk. What was unpacked before stays and counts."""
        self._limit = max(HARMLESS_BYTES, self.source.stat().st_size * RATIO_LIMIT)
        if kind is FileKind.ZIP:
            self._zip()
        elif kind is FileKind.TAR:
            with self.source.open("rb") as raw:
                self._tar(raw)
        else:
            self._compressed(kind)

    def _compressed(self, kind: FileKind) -> None:
        with self.source.open("rb") as raw:
            stream = Decompressed(kind, raw)
            head = _read_fully(stream, 512)
            self.is_archive = head[257:262] == b"ustar"
            if self.is_archive:
                self._tar(_Joined(head, stream))
            else:
                self._copy(_Joined(head, stream), self.target / _fit_name(stem_once(self.source.name)))
        if stream.error:
            said = f"truncated or damaged {kind} file: {_error_text(stream.error)}; what came before it is archived"
            self.problems = [*((name, reason) for name, reason in self.problems if name), ("", said)]

    def _zip(self) -> None:
        try:
            with zipfile.ZipFile(self.source) as archive:
                entries = archive.infolist()
                if any(entry.filename in _OFFICE for entry in entries[:3]):
                    raise NotMail("an Office document or a program")
                if len(entries) > FILES_LIMIT:
                    raise UnpackingRefused(_MANY)
                for entry in entries:
                    if not entry.is_dir():
                        self._zip_entry(archive, entry)
        except (zipfile.BadZipFile, NotImplementedError, ValueError, EOFError) as error:
            raise UnpackingRefused(f"a truncated or damaged zip file ({_error_text(error)})") from error

    def _zip_entry(self, archive: zipfile.ZipFile, entry: zipfile.ZipInfo) -> None:
        name = _zip_name(entry)
        if entry.flag_bits & 1:
            self.problems.append((shown(name), "it is encrypted with a password"))
            return
        if entry.external_attr >> 16 & 0o170000 == 0o120000:
            self.problems.append((shown(name), "a link, which is not followed"))
            return
        try:
            with archive.open(entry) as stream:
                self._copy(stream, self._place(name))
        except (*_BROKEN, NotImplementedError) as error:
            self.problems.append((shown(name), f"damaged in the archive: {_error_text(error)}"))

    def _tar(self, raw: Readable) -> None:
        try:
            with tarfile.open(fileobj=cast(IO[bytes], raw), mode="r|", errors="surrogateescape") as archive:
                for entry in archive:
                    if entry.isdir():
                        continue
                    stream = archive.extractfile(entry) if entry.isreg() else None
                    if stream is None:
                        self.problems.append((shown(entry.name), "a link or a device, which is not unpacked"))
                    else:
                        self._copy(stream, self._place(_decode_again(entry.name)))
                    cast(Any, archive).members = []  # it would remember them all
        except tarfile.TarError as error:
            self.problems.append(("", f"truncated or damaged tar file: {_error_text(error)}; what came before it is archived"))

    def _copy(self, stream: Readable, target: Path) -> None:
        """Whatever the archive says about sizes, only what comes out counts."""
        self._files += 1
        if self._files > FILES_LIMIT:
            raise UnpackingRefused(_MANY)
        target.parent.mkdir(parents=True, exist_ok=True)
        with target.open("xb") as file:
            while piece := stream.read(_PIECE_BYTES):
                self.unpacked_bytes += len(piece)
                if self.unpacked_bytes > self._limit:
                    raise UnpackingRefused(
                        f"it unpacks to more than {RATIO_LIMIT} times its size: it may be a decompression bomb"
                    )
                if self.unpacked_bytes >= self._check_at:
                    self._check_at = self.unpacked_bytes + _CHECK_EVERY_BYTES
                    self.alive(self.unpacked_bytes)
                    if shutil.disk_usage(self.target).free < self.least_free_bytes:
                        raise UnpackingRefused("not enough free disk space to unpack it")
                file.write(piece)

    def _place(self, name: str) -> Path:
        """Below the target, whatever the name says; of two files with one name the second gets another."""
        parts = [_fit_name(part) for part in name.replace("\\", "/").split("/") if part not in ("", ".", "..")]
        parts = parts[-_PARTS_LIMIT:] or ["file"]
        number = max(self._numbers.get(tuple(parts[:count]), 1) for count in range(1, len(parts) + 1))
        while blocked := self._blocked(target := self._number(parts, number)):
            number += 1
            self._numbers[tuple(parts[:blocked])] = number
        return target

    def _number(self, parts: list[str], number: int) -> Path:
        return self.target.joinpath(*parts if number == 1 else (f"{part}~{number}" for part in parts))

    def _blocked(self, target: Path) -> int:
        """0 if there is nothing in the way; else how many parts of the path lead to what is."""
        parents = [parent for parent in target.parents if parent.is_relative_to(self.target)]
        count = next((count for count, parent in enumerate(reversed(parents)) if parent.is_file()), 0)
        return count or (len(parents) if target.exists() else 0)


_MANY = f"it holds more than {FILES_LIMIT:,} files"
_BROKEN = (EOFError, zlib.error, lzma.LZMAError, zstandard.ZstdError, zipfile.BadZipFile, ValueError)


def _error_text(error: Exception) -> str:
    return str(error)[:200] or type(error).__name__


def stem_once(name: str) -> str:
    """`a.mbox.gz` as `a.mbox`, `a.tgz` as `a`."""
    bare = name.rpartition(".")[0]
    return bare if bare and stem(name) != name else name


class _Joined:
    """A stream whose beginning was read before."""

    def __init__(self, head: bytes, rest: Readable) -> None:
        self._head, self._rest = head, rest

    def read(self, size: int = -1) -> bytes:
        if self._head:
            size = len(self._head) if size < 0 else size
            piece, self._head = self._head[:size], self._head[size:]
            return piece
        return self._rest.read(size)


def _read_fully(stream: Readable, size: int) -> bytes:
    data = b""
    while len(data) < size and (piece := stream.read(size - len(data))):
        data += piece
    return data


class Decoder(Protocol):
    """What the decompressors of all libraries have in common."""

    @property
    def eof(self) -> bool: ...

    @property
    def unused_data(self) -> bytes: ...

    def decompress(self, data: bytes, max_length: int = ..., /) -> bytes: ...


class Decompressed:
    """A compressed file as a stream. One that is damaged or cut off ends there, and `error` says why."""

    def __init__(self, kind: FileKind, raw: IO[bytes]) -> None:
        self._kind, self._raw = kind, raw
        self.error: Exception | None = None
        self._pieces = self._decode()
        self._left = b""

    def read(self, size: int = -1) -> bytes:
        while not self._left:
            piece = next(self._pieces, None)
            if piece is None:
                return b""
            self._left = piece
        found, self._left = self._left[:size], self._left[size:] if size >= 0 else b""
        return found

    def _decode(self) -> Iterator[bytes]:
        pieces: list[bytes] = []
        size = 0
        try:
            for piece in self._bites():
                pieces.append(piece)
                size += len(piece)
                if size >= _PIECE_BYTES:
                    yield b"".join(pieces)
                    pieces, size = [], 0
        except _BROKEN as error:
            self.error = error
        if size:
            yield b"".join(pieces)

    def _bites(self) -> Iterator[bytes]:
        """A few bytes may decode to megabytes, so few are decoded at once. Members follow each other; zeros may pad them."""
        decoder, is_whole = _DECODERS[self._kind](), True
        while buffer := self._raw.read(64 << 10):
            for start in range(0, len(buffer), _BITE):
                bite = buffer[start : start + _BITE]
                while bite and not (is_whole and not bite.strip(b"\0")):
                    yield decoder.decompress(bite)
                    is_whole, bite = decoder.eof, decoder.unused_data if decoder.eof else b""
                    decoder = _DECODERS[self._kind]() if decoder.eof else decoder
        if not is_whole:
            raise EOFError("the compressed data ends too early")


_DECODERS: dict[FileKind, Callable[[], Decoder]] = {
    FileKind.GZIP: lambda: zlib.decompressobj(wbits=31),
    FileKind.BZIP2: bz2.BZ2Decompressor,
    FileKind.XZ: lambda: lzma.LZMADecompressor(memlimit=256 << 20),
    FileKind.ZSTD: lambda: cast(Decoder, zstandard.ZstdDecompressor(max_window_size=128 << 20).decompressobj()),
}


def _zip_name(entry: zipfile.ZipInfo) -> str:
    """UTF-8 if it says so; else `zipfile` took it for CP437, and it may be anything."""
    if entry.flag_bits & 0x800:
        return entry.filename
    try:
        raw = entry.filename.encode("cp437")
    except UnicodeEncodeError:
        return entry.filename
    return _decode_name(raw, "cp437")


def _decode_again(name: str) -> str:
    return _decode_name(os.fsencode(name), "cp1252") if any("\udc80" <= char <= "\udcff" for char in name) else name


def _decode_name(raw: bytes, western: str) -> str:
    """A name of unknown encoding: UTF-8 if it can be, Japanese or Chinese if most of it is beyond ASCII, else a western one."""
    is_eastern = sum(byte > 127 for byte in raw) * 3 > len(raw)
    for encoding in ("utf-8", "cp932", "gb18030") if is_eastern else ("utf-8",):
        try:
            text = raw.decode(encoding)
        except UnicodeDecodeError:
            continue
        if encoding != "cp932" or not any("\uff61" <= char <= "\uff9f" for char in text):  # half-width kana: Chinese, misread
            return text
    return raw.decode(western, "replace")


def _fit_name(part: str) -> str:
    """As a file system can hold it; a long name by its beginning and its hash."""
    raw = "".join(char if char.isprintable() else "_" for char in shown(part)).encode("utf-8", "replace")
    if len(raw) <= _NAME_BYTES:
        return raw.decode()
    return raw[: _NAME_BYTES - 20].decode("utf-8", "ignore") + "~" + hashlib.sha256(raw).hexdigest()[:16]
