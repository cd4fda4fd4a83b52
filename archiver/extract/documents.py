"""One reader per kind of document: bytes in, pages out. They run in the child process and may raise whatever they like."""

import re
import zipfile
from collections.abc import Callable, Iterator
from io import BytesIO
from typing import Any

import kreuzberg
import pypdfium2
from python_calamine import CalamineError, CalamineWorkbook, PasswordError

from archiver.extract import limits
from archiver.extract.extraction import Page, Refused, State
from archiver.extract.slides import read_impress, read_powerpoint
from archiver.mail import charsets
from archiver.mail.calendar import read_calendar
from archiver.mail.defects import Defects
from archiver.mail.html_text import html_to_text

Reader = Callable[[bytes], Iterator[Page]]

_MIME_TYPES = {
    "docx": "application/vnd.openxmlformats-officedocument.wordprocessingml.document",
    "doc": "application/msword",
    "ppt": "application/vnd.ms-powerpoint",
    "odt": "application/vnd.oasis.opendocument.text",
    "rtf": "application/rtf",
    "epub": "application/epub+zip",
    "msg": "application/vnd.ms-outlook",
}
_XML_TAG = re.compile(r"<[^<>]*>")
_FIB_ENCRYPTED = 0x0100  # MS-DOC, section 2.5.2: fEncrypted in the flags at offset 0x0A of the WordDocument stream


def open_pdf(data: bytes) -> pypdfium2.PdfDocument:
    try:
        return pypdfium2.PdfDocument(data)
    except pypdfium2.PdfiumError as error:
        if "password" in str(error).lower():
            raise Refused(State.ENCRYPTED, "needs a password") from error
        raise Refused(State.BROKEN, f"pdf: {error}") from error


def read_pdf(data: bytes) -> Iterator[Page]:
    with open_pdf(data) as document:
        for number in range(len(document)):
            page = document[number]
            text = page.get_textpage().get_text_bounded()
            page.close()
            yield Page(number + 1, text.replace("\r\n", "\n"))


def read_workbook(data: bytes) -> Iterator[Page]:
    try:
        workbook = CalamineWorkbook.from_filelike(BytesIO(data))
        for number, name in enumerate(workbook.sheet_names, start=1):
            rows = workbook.get_sheet_by_name(name).iter_rows()
            lines = ("\t".join(_cell(cell) for cell in row).rstrip("\t") for row in rows)
            yield Page(number, "\n".join([name, *filter(None, lines)]))
    except PasswordError as error:
        raise Refused(State.ENCRYPTED, "needs a password") from error
    except CalamineError as error:
        state = State.ENCRYPTED if "password" in str(error).lower() else State.BROKEN
        raise Refused(state, f"workbook: {error}") from error


def _cell(value: object) -> str:
    return str(int(value)) if isinstance(value, float) and value.is_integer() else str(value)


def read_office(kind: str) -> Reader:
    def read(data: bytes) -> Iterator[Page]:
        _check_encryption(data, kind)
        options: dict[str, Any] = {
            "disable_ocr": True
        }  # its type stub has not heard of this one; without it, it reads pictures
        config = kreuzberg.ExtractionConfig(use_cache=False, **options)
        try:
            result = kreuzberg.extract_bytes_sync(data, _MIME_TYPES[kind], config)
        except kreuzberg.KreuzbergError as error:
            raise Refused(State.BROKEN, f"{kind}: {error}") from error
        yield Page(0, result.content)

    return read


def _check_encryption(data: bytes, kind: str) -> None:
    if kind == "doc":
        # The stream starts with its magic 0xA5EC on a sector border.
        for start in range(512, min(len(data), 1 << 20), 512):
            if data[start : start + 2] == b"\xec\xa5":
                if int.from_bytes(data[start + 10 : start + 12], "little") & _FIB_ENCRYPTED:
                    raise Refused(State.ENCRYPTED, "needs a password")
                return
    elif kind == "ppt" and "EncryptedSummary".encode("utf-16-le") in data:
        raise Refused(State.ENCRYPTED, "needs a password")
    elif kind in ("docx", "odt", "epub"):
        _check_zip(data)


def _check_zip(data: bytes) -> zipfile.ZipFile:
    try:
        archive = zipfile.ZipFile(BytesIO(data))
    except (zipfile.BadZipFile, ValueError) as error:
        raise Refused(State.BROKEN, f"zip: {error}") from error
    if sum(entry.file_size for entry in archive.infolist()) > limits.DOCUMENT_BYTES:
        raise Refused(State.TOO_LARGE, "unpacks to more than the limit")
    if "META-INF/manifest.xml" in archive.namelist() and b"encryption-data" in archive.read("META-INF/manifest.xml"):
        raise Refused(State.ENCRYPTED, "needs a password")
    return archive


def read_slides(data: bytes) -> Iterator[Page]:
    with _check_zip(data) as archive:
        yield from read_powerpoint(archive)


def read_odp(data: bytes) -> Iterator[Page]:
    """OpenDocument presentations, which kreuzberg does not know."""
    with _check_zip(data) as archive:
        yield from read_impress(archive)


def read_sheets(data: bytes) -> Iterator[Page]:
    _check_zip(data).close()
    return read_workbook(data)


def read_html(data: bytes) -> Iterator[Page]:
    defects = Defects()
    meta = re.search(rb"(?i)charset\s*=\s*[\"']?([a-z0-9_-]{2,30})", data[:4096])
    text = charsets.decode(data, meta[1].decode() if meta else "", defects)
    yield Page(0, html_to_text(text, defects).text)


def read_text(data: bytes) -> Iterator[Page]:
    yield Page(0, charsets.decode(data[: 4 * limits.TEXT_CHARS], "", Defects()).replace("\r\n", "\n"))


def read_xml(data: bytes) -> Iterator[Page]:
    yield Page(0, _without_tags(charsets.decode(data[: 4 * limits.TEXT_CHARS], "", Defects())))


def _without_tags(xml: str) -> str:
    text = _XML_TAG.sub(" ", xml)
    for entity, character in (("&lt;", "<"), ("&gt;", ">"), ("&quot;", '"'), ("&apos;", "'"), ("&amp;", "&")):
        text = text.replace(entity, character)
    return "\n".join(line for line in (" ".join(line.split()) for line in text.split("\n")) if line)


def read_ics(data: bytes) -> Iterator[Page]:
    text = charsets.decode(data, "utf-8", Defects())
    events = read_calendar(text)
    yield Page(0, "\n\n".join(event.as_text() for event in events) if events else text)


def read_vcard(data: bytes) -> Iterator[Page]:
    lines = re.sub(r"\r?\n[ \t]", "", charsets.decode(data, "", Defects())).splitlines()
    values = []
    for line in lines:
        name, colon, value = line.partition(":")
        property_name = name.partition(";")[0].upper().rpartition(".")[2]
        if colon and property_name not in (
            "BEGIN",
            "END",
            "VERSION",
            "PRODID",
            "REV",
            "UID",
            "PHOTO",
            "LOGO",
            "SOUND",
            "KEY",
            "N",
        ):
            values.append(" ".join(value.replace("\\n", " ").replace("\\,", ",").replace(";", " ").split()))
    yield Page(0, "\n".join(filter(None, values)))


READERS: dict[str, Reader] = {
    "pdf": read_pdf,
    "xls": read_workbook,
    "xlsx": read_sheets,
    "ods": read_sheets,
    "odp": read_odp,
    "pptx": read_slides,
    "html": read_html,
    "text": read_text,
    "csv": read_text,
    "xml": read_xml,
    "calendar": read_ics,
    "vcard": read_vcard,
    **{kind: read_office(kind) for kind in _MIME_TYPES},
}
