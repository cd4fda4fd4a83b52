"""Detects the type of a file by its content. Name and declared type matter only if the content is ambiguous."""

import re
import zipfile
from io import BytesIO

from archiver.extract.compound import CompoundFile, NotCompound

_MAGIC: tuple[tuple[int, bytes, str], ...] = (
    (0, b"\x89PNG\r\n\x1a\n", "image"),
    (0, b"\xff\xd8\xff", "image"),
    (0, b"GIF8", "image"),
    (0, b"II*\0", "image"),
    (0, b"MM\0*", "image"),
    (0, b"BM", "image"),
    (8, b"WEBP", "image"),
    (0, b"7z\xbc\xaf\x27\x1c", "7z"),
    (0, b"\x1f\x8b", "gzip"),
    (0, b"BZh", "bzip2"),
    (0, b"\xfd7zXZ\0", "xz"),
    (0, b"Rar!\x1a\x07", "rar"),
    (0, b"\x28\xb5\x2f\xfd", "zstd"),
    (0, b"MZ", "program"),
    (0, b"\x7fELF", "program"),
    (0, b"ID3", "audio"),
    (0, b"OggS", "audio"),
    (0, b"RIFF", "media"),
    (4, b"ftyp", "media"),
    (0, b"\x1aE\xdf\xa3", "media"),
    (0, b"wOF", "font"),
    (0, b"\xca\xfe\xba\xbe", "program"),
    (0, b"!BDN", "pst"),
)
_OLE = b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1"
# Before version 5, an Excel file is a plain sequence of records (BIFF), recognised by the first one.
_BIFF = (b"\x09\x00\x04\x00", b"\x09\x02\x06\x00", b"\x09\x04\x06\x00", b"\x09\x08\x08\x00", b"\x09\x08\x10\x00")
# Streams of an OLE file (MS-CFB).
_OLE_STREAMS: tuple[tuple[str, str], ...] = (
    ("EncryptedPackage", "encrypted"),
    ("__properties_version1.0", "msg"),
    ("WordDocument", "doc"),
    ("PowerPoint Document", "ppt"),
    ("Workbook", "xls"),
    ("Book", "xls"),
)
_ODF = {
    b"application/vnd.oasis.opendocument.text": "odt",
    b"application/vnd.oasis.opendocument.spreadsheet": "ods",
    b"application/vnd.oasis.opendocument.presentation": "odp",
    b"application/epub+zip": "epub",
}
_HTML = re.compile(rb"(?i)<(?:!doctype html|html|head|body|table|div|meta)\b")
_MAIL_FIELD = re.compile(
    rb"(?im)^(?:received|return-path|from|to|subject|date|message-id|mime-version|delivered-to|x-[a-z-]+|content-type):"
)
_CONTROLS = re.compile(rb"[\x00-\x08\x0e-\x1a\x1c-\x1f]")
_TEXT_NAMES = (
    ".txt",
    ".log",
    ".md",
    ".csv",
    ".tsv",
    ".ini",
    ".conf",
    ".cfg",
    ".sql",
    ".json",
    ".yaml",
    ".yml",
    ".diff",
    ".patch",
)
_CERTAIN_BYTES = 256
"""Any random data of this size contains a control character, so a file without one is text in some charset."""
_CONTROL_SHARE = 0.02  # allowed share in a text: backspaces, zeros, printer codes


def detect_kind(data: bytes, name: str = "", declared_type: str = "") -> str:
    """A short name: pdf, docx, …, text, html, image, zip, …, or `binary` for anything else."""
    if data.startswith(b"%PDF-"):
        return "pdf"
    if data.startswith(b"ustar", 257):
        return "tar"
    if data.startswith((b"PK\x03\x04", b"PK\x05\x06")):
        return _zip_kind(data)
    if data.startswith(_OLE):
        return _ole_kind(data)
    if data.startswith(_BIFF):
        return "xls"
    if data[:6].lower().lstrip().startswith(b"{\\rtf"):
        return "rtf"
    if b"%PDF-" in data[:1024]:  # readers accept garbage before it (ISO 32000, annex H)
        return "pdf"
    text = _text_kind(data, name, declared_type)
    if text:
        return text
    for offset, magic, kind in _MAGIC:
        if data.startswith(magic, offset):
            return kind
    return "binary"


def _zip_kind(data: bytes) -> str:
    try:
        with zipfile.ZipFile(BytesIO(data)) as archive:
            names = archive.namelist()[:2000]
            if "mimetype" in names and archive.getinfo("mimetype").file_size < 200:
                kind = _ODF.get(archive.read("mimetype").strip())
                if kind:
                    return kind
    except (zipfile.BadZipFile, OSError, ValueError, KeyError, RuntimeError, NotImplementedError):
        return "zip"
    if "[Content_Types].xml" in names:
        for folder, kind in (("word/", "docx"), ("xl/", "xlsx"), ("ppt/", "pptx")):
            if any(entry.startswith(folder) for entry in names):
                return kind
    return "zip"


def _ole_kind(data: bytes) -> str:
    """By the streams at the top level, because embedded documents have their own further down."""
    try:
        names = CompoundFile(data).names
    except NotCompound:
        names = {}
    for stream, kind in _OLE_STREAMS:
        if stream.casefold() in names:
            return kind
    for stream, kind in () if names else _OLE_STREAMS:
        if stream.encode("utf-16-le") in data:
            return kind
    return "ole"


def wide_codec(data: bytes) -> str:
    """The codec of UTF-16 without a byte order mark: in mostly Latin text, every other byte is zero. Empty for anything
    else."""
    head = data[:4096]
    if len(head) < 4 or head.startswith((b"\xff\xfe", b"\xfe\xff")):
        return ""
    even, odd = head[0::2].count(0) * 2 / len(head), head[1::2].count(0) * 2 / len(head)
    return "utf-16-le" if odd > 0.7 and even < 0.05 else "utf-16-be" if even > 0.7 and odd < 0.05 else ""


def _is_text(head: bytes, name: str, declared_type: str) -> bool:
    says_text = name.lower().endswith(_TEXT_NAMES) or declared_type.startswith("text/")
    sample = head[:8192]
    controls = len(_CONTROLS.findall(sample))
    if controls:
        return says_text and controls <= len(sample) * _CONTROL_SHARE
    if says_text or len(head) >= _CERTAIN_BYTES or head.isascii():
        return True
    try:
        head.decode()
    except UnicodeDecodeError as error:
        # Eight-bit text in some charset, or binary data that happens to have no control characters
        return error.start >= len(head) - 3 or len(re.findall(rb"[\x80-\xff]", head)) < len(head) * 0.9
    return True


def _text_kind(data: bytes, name: str, declared_type: str) -> str:
    if not data.strip():
        return "text" if data else ""
    head = data[:65536]
    codec = "utf-16" if head.startswith((b"\xff\xfe", b"\xfe\xff")) else wide_codec(head)
    if codec:
        head = head.decode(codec, "replace").encode()
    if (not codec or _CONTROLS.search(head)) and not _is_text(head, name, declared_type):
        return ""
    start = head[:4096].lstrip(b"\xef\xbb\xbf \t\r\n")
    if start[:15].upper() == b"BEGIN:VCALENDAR":
        return "calendar"
    if start[:11].upper() == b"BEGIN:VCARD":
        return "vcard"
    if _HTML.search(start[:1024]) and start.startswith(b"<"):
        return "html"
    if start.startswith(b"<?xml"):
        return "xml"
    if len(_MAIL_FIELD.findall(start)) >= 2 and re.match(rb"(?:From |[!-9;-~]+:)", start):
        return "mail"
    if name.lower().endswith((".csv", ".tsv")) or declared_type == "text/csv":
        return "csv"
    if name.lower().endswith((".htm", ".html")) and b"<" in start:
        return "html"
    return "text"
