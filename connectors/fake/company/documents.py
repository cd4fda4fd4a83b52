"""Generated attachments: PDF, DOCX, CSV, PNG and calendar entries, each small and valid."""

from __future__ import annotations

import io
import struct
import zipfile
import zlib
from collections.abc import Iterable, Sequence
from datetime import datetime, timedelta
from functools import lru_cache
from xml.sax.saxutils import escape

_ZIP_TIME = (2021, 1, 1, 8, 0, 0)


def pdf(lines: Sequence[str]) -> bytes:
    """Pages of plain text in Helvetica, fifty lines each."""
    pages = [lines[start : start + 50] for start in range(0, len(lines), 50)] or [[]]
    kids = " ".join(f"{4 + 2 * number} 0 R" for number in range(len(pages)))
    objects = [
        b"<< /Type /Catalog /Pages 2 0 R >>",
        f"<< /Type /Pages /Kids [{kids}] /Count {len(pages)} >>".encode(),
        b"<< /Type /Font /Subtype /Type1 /BaseFont /Helvetica /Encoding /WinAnsiEncoding >>",
    ]
    for number, page in enumerate(pages):
        text = "".join(f"({_pdf_text(line)}) Tj T*\n" for line in page)
        stream = f"BT /F1 11 Tf 14 TL 60 780 Td\n{text}ET".encode("cp1252", "replace")
        place = f"/Contents {5 + 2 * number} 0 R /Resources << /Font << /F1 3 0 R >> >>"
        objects.append(f"<< /Type /Page /Parent 2 0 R /MediaBox [0 0 595 842] {place} >>".encode())
        objects.append(b"<< /Length %d >>\nstream\n%s\nendstream" % (len(stream), stream))
    return _pdf_file(objects)


def _pdf_text(line: str) -> str:
    return line.replace("\\", "\\\\").replace("(", "\\(").replace(")", "\\)")


def _pdf_file(objects: Iterable[bytes]) -> bytes:
    out = bytearray(b"%PDF-1.4\n%\xe2\xe3\xcf\xd3\n")
    offsets = []
    for number, body in enumerate(objects, 1):
        offsets.append(len(out))
        out += b"%d 0 obj\n%s\nendobj\n" % (number, body)
    start = len(out)
    out += b"xref\n0 %d\n0000000000 65535 f \n" % (len(offsets) + 1)
    out += b"".join(b"%010d 00000 n \n" % offset for offset in offsets)
    out += b"trailer\n<< /Size %d /Root 1 0 R >>\nstartxref\n%d\n%%%%EOF\n" % (len(offsets) + 1, start)
    return bytes(out)


def docx(title: str, paragraphs: Iterable[str]) -> bytes:
    body = "".join(f"<w:p><w:r><w:t>{escape(text)}</w:t></w:r></w:p>" for text in (title, *paragraphs))
    head = '<?xml version="1.0" encoding="UTF-8" standalone="yes"?>\n'
    package = "http://schemas.openxmlformats.org/package/2006"
    office = "http://schemas.openxmlformats.org/officeDocument/2006/relationships/officeDocument"
    words = "http://schemas.openxmlformats.org/wordprocessingml/2006/main"
    kind = "application/vnd.openxmlformats-officedocument.wordprocessingml.document.main+xml"
    files = {
        "[Content_Types].xml": f'<Types xmlns="{package}/content-types"><Default Extension="rels" ContentType='
        '"application/vnd.openxmlformats-package.relationships+xml"/><Default Extension="xml" ContentType="application/xml"/>'
        f'<Override PartName="/word/document.xml" ContentType="{kind}"/></Types>',
        "_rels/.rels": f'<Relationships xmlns="{package}/relationships"><Relationship Id="rId1" Type="{office}" '
        'Target="word/document.xml"/></Relationships>',
        "word/document.xml": f'<w:document xmlns:w="{words}"><w:body>{body}</w:body></w:document>',
    }
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as archive:
        for name, text in files.items():
            info = zipfile.ZipInfo(name, _ZIP_TIME)
            info.compress_type = zipfile.ZIP_DEFLATED
            archive.writestr(info, head + text)
    return out.getvalue()


def csv(rows: Iterable[Sequence[object]]) -> bytes:
    """With a byte order mark, as spreadsheets expect."""
    return ("\ufeff" + "".join(";".join(map(str, row)) + "\r\n" for row in rows)).encode()


@lru_cache(maxsize=64)
def png(width: int, height: int, hue: int) -> bytes:
    """A lamp's glow on a plain wall: bright in the middle, darker to the edges."""
    rows = bytearray()
    for y in range(height):
        rows.append(0)
        for x in range(width):
            far = ((2 * x - width) / width) ** 2 + ((2 * y - height) / height) ** 2
            light = max(0, 255 - int(far * 110))
            rows += bytes((light, max(0, light - 30 - hue % 40), max(0, light - 60 - hue)))
    header = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    chunks = (_chunk(b"IHDR", header), _chunk(b"IDAT", zlib.compress(bytes(rows), 6)), _chunk(b"IEND", b""))
    return b"\x89PNG\r\n\x1a\n" + b"".join(chunks)


def _chunk(kind: bytes, data: bytes) -> bytes:
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))


def invitation(uid: str, summary: str, place: str, organiser: str, guests: Iterable[str], start: datetime) -> bytes:
    """RFC 5545, method REQUEST."""
    lines = [
        "BEGIN:VCALENDAR",
        "PRODID:-//Lantern Works//Calendar//EN",
        "VERSION:2.0",
        "METHOD:REQUEST",
        "BEGIN:VEVENT",
        f"UID:{uid}",
        f"DTSTAMP:{start - timedelta(days=7):%Y%m%dT%H%M%SZ}",
        f"DTSTART:{start:%Y%m%dT%H%M%SZ}",
        f"DTEND:{start + timedelta(hours=1):%Y%m%dT%H%M%SZ}",
        f"SUMMARY:{summary}",
        f"LOCATION:{place}",
        f"ORGANIZER:mailto:{organiser}",
        *(f"ATTENDEE;PARTSTAT=NEEDS-ACTION;RSVP=TRUE:mailto:{guest}" for guest in guests),
        "END:VEVENT",
        "END:VCALENDAR",
        "",
    ]
    return "\r\n".join(lines).encode()
