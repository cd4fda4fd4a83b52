"""Reads Office documents (OOXML and OpenDocument) part by part: everything that is visible in the document."""

from __future__ import annotations

import re
import zipfile
import zlib
from collections.abc import Iterable, Iterator

from archiver.extract import limits
from archiver.extract.extraction import ExtractionRefused, ExtractionState, TextPage
from archiver.extract.old_sheets import without_codes
from archiver.extract.xml_text import Attributes, Vocabulary, XmlText, xml_text

# ECMA-376: runs of text (w:t, a:t, m:t), deleted ones that are still shown, and what separates them.
_OOXML = Vocabulary(
    texts=frozenset({"t", "delText", "text", "v"}),
    breaks={"tab": "\t", "br": "\n", "cr": "\n", "noBreakHyphen": "-", "txbxContent": "\n"},
    ends={"p": "\n", "tc": "\t", "tr": "\n", "cm": "\n", "comment": "\n", "pt": "\n", "text": "\n", "threadedComment": "\n"},
    aside=frozenset({"delText"}),
    skipped=frozenset({"Fallback", "instrText", "fldData", "f", "numFmt", "formatCode"}),
    attributes=frozenset({"descr"}),
)
_PROPERTIES = Vocabulary(
    texts=frozenset({"title", "subject", "keywords", "keyword", "description"}),
    ends=dict.fromkeys(("title", "subject", "keywords", "keyword", "description"), "\n"),
)
_HEADER_FOOTER = Vocabulary(
    texts=frozenset({"oddHeader", "oddFooter", "evenHeader", "evenFooter", "firstHeader", "firstFooter"}),
    ends=dict.fromkeys(("oddHeader", "oddFooter", "evenHeader", "evenFooter", "firstHeader", "firstFooter"), "\n"),
)

_ODF = Vocabulary(
    breaks={
        "tab": "\t",
        "line-break": "\n",
        "s": " ",
        "note-citation": " ",
        **dict.fromkeys(("p", "h", "title", "desc", "creator"), "\n"),
    },
    ends={
        **dict.fromkeys(("p", "h", "title", "desc", "creator", "date", "table-row", "list-item"), "\n"),
        "table-cell": "\t",
    },
    skipped=frozenset({"forms", "scripts", "font-face-decls", "settings", "automatic-styles", "styles", "binary-data"}),
)

_WORD_PARTS = re.compile(
    r"word/(?:document|header|footer|footnotes|endnotes|comments|glossary/document|charts/chart|diagrams/data)\d*\.xml\Z"
)
_SHEET_PARTS = re.compile(
    r"xl/(?:comments|threadedComments/threadedComment|drawings/drawing|charts/chart|diagrams/data)\d*\.xml\Z"
)
_SHEETS = re.compile(r"xl/(?:work|chart)sheets/[^/]*\.xml\Z")
_UNREAD_TEXT = re.compile(rb"<(?:w|a|m):t[ >]")
_DAMAGED = (zipfile.BadZipFile, zlib.error, EOFError, RuntimeError, NotImplementedError)


def read_word(archive: zipfile.ZipFile) -> Iterator[TextPage]:
    """The document first, then headers, notes, comments, charts and diagrams, and its properties."""
    names = sorted(archive.namelist(), key=lambda name: ("/document" not in name or "glossary" in name, name))
    read = [name for name in names if _WORD_PARTS.match(name)]
    if not read:
        raise ExtractionRefused(ExtractionState.BROKEN, "docx: no document in it")
    yield from _parts(archive, read, _OOXML)
    yield from _parts(archive, ["docProps/core.xml"], _PROPERTIES)
    _check_unread(archive, (name for name in names if name.startswith("word/") and name not in read))


def read_beside_sheets(archive: zipfile.ZipFile) -> Iterator[TextPage]:
    """What a workbook contains besides its cells: comments, text boxes, charts, headers and footers."""
    names = sorted(archive.namelist())
    yield from _parts(archive, (name for name in names if _SHEET_PARTS.match(name)), _OOXML)
    for page in _parts(archive, (name for name in names if _SHEETS.match(name)), _HEADER_FOOTER):
        yield TextPage(0, without_codes(page.text))
    yield from _parts(archive, ["docProps/core.xml"], _PROPERTIES)


def drawing_text(archive: zipfile.ZipFile, name: str) -> str:
    """The text of a slide, or of its notes, comments, charts or diagrams."""
    return xml_text(read_part(archive, name), _OOXML)


def read_opendocument(archive: zipfile.ZipFile, page_element: str = "") -> Iterator[TextPage]:
    """Text, sheets or slides; `page_element` begins a page. Headers and footers are among the styles."""
    pages: list[str] = []

    def on_start(name: str, attributes: Attributes) -> None:
        if page_element and name == page_element:
            pages.append(reader.take())
            reader.add(f"{attributes.get('name', '')}\n" if page_element == "table" else "")

    reader = XmlText(_ODF, on_start)
    reader.read(read_part(archive, "content.xml"))
    before, *rest = [*pages, reader.take()]
    yield TextPage(0, before)
    yield from (TextPage(number, text) for number, text in enumerate(rest, start=1))
    yield from _parts(archive, ["styles.xml"], _ODF)
    yield from _parts(archive, ["meta.xml"], _PROPERTIES)


def _parts(archive: zipfile.ZipFile, names: Iterable[str], vocabulary: Vocabulary) -> Iterator[TextPage]:
    there = set(archive.namelist())
    for name in names:
        if name in there:
            yield TextPage(0, xml_text(read_part(archive, name), vocabulary))


def _check_unread(archive: zipfile.ZipFile, names: Iterable[str]) -> None:
    """Reports parts with text that no reader covers; otherwise the text would be missing silently."""
    unread = [name for name in names if name.endswith(".xml") and _UNREAD_TEXT.search(read_part(archive, name))]
    if unread:
        raise ExtractionRefused(ExtractionState.OK, f"{len(unread)} parts with text were not read: {', '.join(unread[:3])}")


def read_part(archive: zipfile.ZipFile, name: str) -> bytes:
    try:
        with archive.open(name) as part:
            return part.read(limits.DOCUMENT_BYTES)
    except KeyError as error:
        raise ExtractionRefused(ExtractionState.BROKEN, f"{name} is missing") from error
    except _DAMAGED as error:
        raise ExtractionRefused(ExtractionState.BROKEN, f"{name}: {error}") from error
