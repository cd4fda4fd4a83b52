"""Detects what a file is by its content. Its name only counts if the content is ambiguous."""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import StrEnum

from connectors.files.postmark import is_postmark

HEAD_BYTES = 64 << 10


class FileKind(StrEnum):
    MBOX = "mbox"
    MESSAGE = "message"
    EMLX = "emlx"
    PST = "pst"
    MSG = "msg"
    OLM = "olm"
    BSMTP = "bsmtp"
    ZIP = "zip"
    TAR = "tar"
    GZIP = "gzip"
    BZIP2 = "bzip2"
    XZ = "xz"
    ZSTD = "zstd"
    EMPTY = "empty"
    OTHER = "other"


_HOLDS_MAIL = ("archive", "Outlook")
COMPRESSED = frozenset({FileKind.GZIP, FileKind.BZIP2, FileKind.XZ, FileKind.ZSTD})


@dataclass(frozen=True, slots=True)
class Detected:
    kind: FileKind
    what: str = ""
    """What it is if it is not mail."""
    is_broken: bool = False
    """By its name it is mail, or it may contain mail that we can't read: a failure, not something to skip silently."""
    start: int = 0
    """Offset of a single message: after empty lines, as in "Show original" of Gmail."""
    encoding: str = ""
    """The encoding of a single message that a program saved as UTF-16 text."""

    @property
    def reason(self) -> str:
        return self.what if any(word in self.what for word in _HOLDS_MAIL) else f"not mail: {self.what}"


_MAGIC: tuple[tuple[bytes, FileKind, str], ...] = (
    (b"\x1f\x8b", FileKind.GZIP, ""),
    (b"BZh", FileKind.BZIP2, ""),
    (b"\xfd7zXZ\0", FileKind.XZ, ""),
    (b"\x28\xb5\x2f\xfd", FileKind.ZSTD, ""),
    (b"PK\x03\x04", FileKind.ZIP, ""),
    (b"PK\x05\x06", FileKind.ZIP, ""),
    (b"!BDN", FileKind.PST, ""),
    (b"7z\xbc\xaf\x27\x1c", FileKind.OTHER, "a 7z archive, which is not read: unpack it first"),
    (b"Rar!", FileKind.OTHER, "a RAR archive, which is not read: unpack it first"),
    (b"\xff\xd8\xff", FileKind.OTHER, "a JPEG picture"),
    (b"\x89PNG", FileKind.OTHER, "a PNG picture"),
    (b"GIF8", FileKind.OTHER, "a GIF picture"),
    (b"%PDF", FileKind.OTHER, "a PDF document"),
    (b"SQLite format 3", FileKind.OTHER, "a database"),
    (b"\x7fELF", FileKind.OTHER, "a program"),
    (b"MZ", FileKind.OTHER, "a program"),
    (b"// <!-- <mdb:mork", FileKind.OTHER, "an index of Thunderbird"),
    (b"<?xml", FileKind.OTHER, "an XML file"),
    (b"<!DOCTYPE", FileKind.OTHER, "a web page"),
    (b"<html", FileKind.OTHER, "a web page"),
)
_COMPOUND = b"\xd0\xcf\x11\xe0"
_MSG_PROPERTIES = "__properties_version1.0".encode("utf-16-le")
_OLM = b"com.microsoft.__"
_FIELD = re.compile(rb"[!-9;-~]{1,100}[ \t]*:")
_WELL_KNOWN = re.compile(
    rb"(?:^|\n)(?:from|to|cc|subject|date|received|message-id|return-path|delivered-to|mime-version|content-type|sender|reply-to"
    rb"|x-[a-z0-9-]+|dkim-signature|path|newsgroups|envelope-to|apparently-to|resent-[a-z]+|arc-[a-z-]+)[ \t]*:",
    re.IGNORECASE,
)
_BSMTP = re.compile(rb"(?:(?:HELO|EHLO|LHLO|RSET|NOOP|TICK)\b[^\r\n]{0,500}\r?\n){0,5}+MAIL FROM:", re.IGNORECASE)
_BSMTP_DATA = re.compile(rb"\nDATA[ \t]*\r?\n", re.IGNORECASE)
_EMLX = re.compile(rb"\s*\d{1,12}\s*\r?\n")
_MAIL_SUFFIXES = (".mbox", ".mbx", ".eml", ".emlx", ".mht")
_MESSAGE_SUFFIXES = (".eml", ".mht")


def detect(head: bytes, name: str) -> Detected:
    """From the first HEAD_BYTES."""
    lower = name.lower()
    claims_mail = lower.endswith(_MAIL_SUFFIXES)
    if not head:
        return Detected(FileKind.EMPTY, "empty")
    if head.startswith(b"<?xml") and b"OPFMessage" in head:
        what = "a message of Outlook for Mac (.olm) without its archive: import the whole .olm file"
        return Detected(FileKind.OTHER, what, is_broken=True)
    if head.startswith(b"PK\x03\x04") and (lower.endswith(".olm") or _OLM in head):
        return Detected(FileKind.OLM)
    for magic, kind, what in _MAGIC:
        if head.startswith(magic) and not (magic in (b"BZh", b"MZ") and _looks_like_header(head)):
            is_broken = claims_mail or any(word in what for word in _HOLDS_MAIL)
            return Detected(kind, what, is_broken) if kind is FileKind.OTHER else Detected(kind)
    if head.startswith(_COMPOUND):
        is_msg = lower.endswith(".msg") or _MSG_PROPERTIES in head
        return Detected(FileKind.MSG) if is_msg else Detected(FileKind.OTHER, "an Office document")
    if head[257:262] == b"ustar":
        return Detected(FileKind.TAR)
    encoding = _utf_16(head)
    if encoding and _looks_like_header(head[: len(head) & ~1].decode(encoding, "replace").lstrip("\ufeff").encode()):
        return Detected(FileKind.MESSAGE, encoding=encoding)
    text = head.lstrip(b"\r\n").removeprefix(b"\xef\xbb\xbf")
    if is_postmark(text, lenient=True):
        return Detected(FileKind.MBOX)
    if _BSMTP.match(text) and _BSMTP_DATA.search(text):
        return Detected(FileKind.BSMTP)
    if (number := _EMLX.match(text)) and _looks_like_header(text[number.end() :]):
        return Detected(FileKind.EMLX)
    if _looks_like_header(text) or (text.startswith(b">From ") and _looks_like_header(_after_line(text))):
        return Detected(FileKind.MESSAGE, start=len(head) - len(head.lstrip(b"\r\n")))
    if not text.strip():
        return Detected(FileKind.EMPTY, "empty")
    if lower.endswith(_MESSAGE_SUFFIXES) and not _is_binary(head):
        return Detected(FileKind.MESSAGE)  # mail without any header, or with a broken one
    return Detected(FileKind.OTHER, "binary data" if _is_binary(head) else "a text that is no mail", claims_mail)


def _utf_16(head: bytes) -> str:
    """Detected by a byte order mark, or because every other byte of the ASCII part is zero."""
    if head.startswith((b"\xff\xfe", b"\xfe\xff")):
        return "utf-16"
    even, odd = head[0:64:2], head[1:64:2]
    if len(odd) < 8 or (0 in even) == (0 in odd):
        return ""
    return "utf-16-le" if not any(odd) else "utf-16-be" if not any(even) else ""


def _after_line(text: bytes) -> bytes:
    return text.partition(b"\n")[2]


def _looks_like_header(text: bytes) -> bool:
    """Begins with a field, and one of the fields before the first empty line is typical of mail."""
    if not _FIELD.match(text):
        return False
    ends = [end for end in (text.find(b"\n\n"), text.find(b"\n\r\n")) if end >= 0]
    return _WELL_KNOWN.search(text[: min(ends)] if ends else text) is not None


def _is_binary(head: bytes) -> bool:
    sample = head[:4096]
    odd = sum(sample.count(bytes([code])) for code in (*range(9), *range(14, 27), 28, 29, 30, 31, 127))
    return b"\0" in sample[:512] or odd * 20 > len(sample)
