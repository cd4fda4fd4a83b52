"""One reader per kind of document: bytes in, pages out. They run in the child process and may raise anything."""

import re
import zipfile
from collections.abc import Callable, Iterator, Sequence
from io import BytesIO
from typing import Any

import kreuzberg
import pypdfium2
from python_calamine import CalamineError, CalamineWorkbook, PasswordError

from archiver.extract import limits
from archiver.extract.extraction import ExtractionRefused, ExtractionState, TextPage
from archiver.extract.kinds import wide_codec
from archiver.extract.office import read_beside_sheets, read_opendocument, read_word
from archiver.extract.old_sheets import read_sheets_of
from archiver.extract.old_slides import read_old_slides
from archiver.extract.old_word import read_old_word
from archiver.extract.slides import read_powerpoint
from archiver.mail import charsets
from archiver.mail.defects import Defects
from archiver.mail.formats.calendar import read_calendar
from archiver.mail.formats.rtf import rtf_to_text
from archiver.mail.text.html_text import html_to_text

Reader = Callable[[bytes], Iterator[TextPage]]

_MIME_TYPES = {
    "epub": "application/epub+zip",
    "msg": "application/vnd.ms-outlook",
}
_LIKELY_SHARE = 0.8  # of the words of cells: headers, comments and text boxes are the rest
_XML_TAG = re.compile(r"<[^<>]*>")


def open_pdf(data: bytes) -> pypdfium2.PdfDocument:
    try:
        return pypdfium2.PdfDocument(data)
    except pypdfium2.PdfiumError as error:
        if "password" in str(error).lower():
            raise ExtractionRefused(ExtractionState.ENCRYPTED, "needs a password") from error
        raise ExtractionRefused(ExtractionState.BROKEN, f"pdf: {error}") from error


def read_pdf(data: bytes) -> Iterator[TextPage]:
    with open_pdf(data) as document:
        for number in range(len(document)):
            page = document[number]
            text = page.get_textpage().get_text_bounded()
            page.close()
            yield TextPage(number + 1, text.replace("\r\n", "\n"))


def pages_with_pictures(data: bytes, numbers: Sequence[int]) -> Iterator[int]:
    """The pages of these, counted from 1, that contain an image: a scan, or just an illustration."""
    with open_pdf(data) as document:
        for number in numbers:
            page = document[number - 1]
            if next(page.get_objects(filter=[pypdfium2.raw.FPDF_PAGEOBJ_IMAGE], max_depth=3), None) is not None:
                yield number
            page.close()


def read_workbook(data: bytes) -> Iterator[TextPage]:
    try:
        workbook = CalamineWorkbook.from_filelike(BytesIO(data))
        for number, name in enumerate(workbook.sheet_names, start=1):
            rows = workbook.get_sheet_by_name(name).iter_rows()
            lines = ("\t".join(_cell(cell) for cell in row).rstrip("\t") for row in rows)
            yield TextPage(number, "\n".join([name, *filter(None, lines)]))
    except PasswordError as error:
        raise ExtractionRefused(ExtractionState.ENCRYPTED, "needs a password") from error
    except CalamineError as error:
        state = ExtractionState.ENCRYPTED if "password" in str(error).lower() else ExtractionState.BROKEN
        raise ExtractionRefused(state, f"workbook: {error}") from error


def read_xls(data: bytes) -> Iterator[TextPage]:
    """Cells as displayed, followed by what the cell reader does not support (see old_sheets), or everything by our own reader
    if that reads more."""
    pages, failed = _pages_or_reason(read_workbook, data)
    try:
        sheets = read_sheets_of(data)
    except ExtractionRefused as refused:
        if failed is not None:
            raise (refused if refused.state is ExtractionState.ENCRYPTED else failed) from refused
        sheets = []
    known = {line.strip() for page in pages for cell in page.text.split("\t") for line in cell.split("\n")}
    words = sum(len(sheet.text.split()) for sheet in sheets)
    if failed is None and sum(len(page.text.split()) for page in pages) >= words * _LIKELY_SHARE:
        yield from pages
        texts = [text for sheet in sheets for text in (sheet.name, *sheet.texts)]
        rest = dict.fromkeys(text for text in texts if not known.issuperset(line.strip() for line in text.split("\n")))
        yield TextPage(0, "\n".join(rest))
    else:
        yield from (TextPage(number, f"{sheet.name}\n{sheet.text}") for number, sheet in enumerate(sheets, start=1))


def _pages_or_reason(read: Reader, data: bytes) -> tuple[list[TextPage], ExtractionRefused | None]:
    try:
        return list(read(data)), None
    except ExtractionRefused as refused:
        return [], refused


def read_ppt(data: bytes) -> Iterator[TextPage]:
    if "EncryptedSummary".encode("utf-16-le") in data:
        raise ExtractionRefused(ExtractionState.ENCRYPTED, "needs a password")
    return read_old_slides(data)


def _cell(value: object) -> str:
    return str(int(value)) if isinstance(value, float) and value.is_integer() else str(value)


def read_office(kind: str) -> Reader:
    def read(data: bytes) -> Iterator[TextPage]:
        if kind == "epub":
            _check_zip(data)
        options: dict[str, Any] = {"disable_ocr": True}  # missing in its type stub; without this option, it would read images
        config = kreuzberg.ExtractionConfig(use_cache=False, **options)
        try:
            result = kreuzberg.extract_bytes_sync(data, _MIME_TYPES[kind], config)
        except kreuzberg.KreuzbergError as error:
            raise ExtractionRefused(ExtractionState.BROKEN, f"{kind}: {error}") from error
        yield TextPage(0, result.content)

    return read


def _check_zip(data: bytes) -> zipfile.ZipFile:
    try:
        archive = zipfile.ZipFile(BytesIO(data))
    except (zipfile.BadZipFile, ValueError) as error:
        raise ExtractionRefused(ExtractionState.BROKEN, f"zip: {error}") from error
    if sum(entry.file_size for entry in archive.infolist()) > limits.DOCUMENT_BYTES:
        raise ExtractionRefused(ExtractionState.TOO_LARGE, "unpacks to more than the limit")
    if "META-INF/manifest.xml" in archive.namelist() and b"encryption-data" in archive.read("META-INF/manifest.xml"):
        raise ExtractionRefused(ExtractionState.ENCRYPTED, "needs a password")
    return archive


def read_slides(data: bytes) -> Iterator[TextPage]:
    with _check_zip(data) as archive:
        yield from read_powerpoint(archive)


def read_docx(data: bytes) -> Iterator[TextPage]:
    with _check_zip(data) as archive:
        yield from read_word(archive)


def read_odf(page_element: str) -> Reader:
    def read(data: bytes) -> Iterator[TextPage]:
        with _check_zip(data) as archive:
            yield from read_opendocument(archive, page_element)

    return read


def read_sheets(data: bytes) -> Iterator[TextPage]:
    with _check_zip(data) as archive:
        yield from read_workbook(data)
        yield from read_beside_sheets(archive)


def read_rtf(data: bytes) -> Iterator[TextPage]:
    yield TextPage(0, rtf_to_text(data.decode("latin-1")))


def read_html(data: bytes) -> Iterator[TextPage]:
    defects = Defects()
    meta = re.search(rb"(?i)charset\s*=\s*[\"']?([a-z0-9_-]{2,30})", data[:4096])
    text = charsets.decode(data, meta[1].decode() if meta else "", defects)
    yield TextPage(0, html_to_text(text, defects).text)


def read_text(data: bytes) -> Iterator[TextPage]:
    data = data[: 4 * limits.TEXT_CHARS]
    codec = wide_codec(data)
    text = data.decode(codec, "replace") if codec else charsets.decode(data, "", Defects())
    yield TextPage(0, text.replace("\r\n", "\n"))


def read_xml(data: bytes) -> Iterator[TextPage]:
    yield TextPage(0, _without_tags(charsets.decode(data[: 4 * limits.TEXT_CHARS], "", Defects())))


def _without_tags(xml: str) -> str:
    text = _XML_TAG.sub(" ", xml)
    for entity, character in (("&lt;", "<"), ("&gt;", ">"), ("&quot;", '"'), ("&apos;", "'"), ("&amp;", "&")):
        text = text.replace(entity, character)
    return "\n".join(line for line in (" ".join(line.split()) for line in text.split("\n")) if line)


def read_ics(data: bytes) -> Iterator[TextPage]:
    text = charsets.decode(data, "utf-8", Defects())
    events = read_calendar(text)
    yield TextPage(0, "\n\n".join(event.as_text() for event in events) if events else text)


def read_vcard(data: bytes) -> Iterator[TextPage]:
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
    yield TextPage(0, "\n".join(filter(None, values)))


READERS: dict[str, Reader] = {
    "pdf": read_pdf,
    "doc": read_old_word,
    "ppt": read_ppt,
    "xls": read_xls,
    "xlsx": read_sheets,
    "docx": read_docx,
    "odt": read_odf(""),
    "ods": read_odf("table"),
    "odp": read_odf("page"),
    "rtf": read_rtf,
    "pptx": read_slides,
    "html": read_html,
    "text": read_text,
    "csv": read_text,
    "xml": read_xml,
    "calendar": read_ics,
    "vcard": read_vcard,
    **{kind: read_office(kind) for kind in _MIME_TYPES},
}
