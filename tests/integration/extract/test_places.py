"""A word in every place where a format allows text, and all of them found; a second reader of our own agrees on packages."""

from __future__ import annotations

import io
import re
import zipfile
from collections.abc import Callable, Iterator, Sequence
from xml.etree import ElementTree

import pytest

from archiver.extract import ExtractionState
from archiver.extract.extractor import Extractor
from tests.support.office_files import legacy, odf, ooxml, packages

DOCUMENTS: dict[str, tuple[Callable[[], bytes], str, Sequence[str]]] = {
    "docx": (ooxml.docx, "docx", ooxml.DOCX_WORDS),
    "docx with other prefixes": (lambda: ooxml.docx("ns0"), "docx", ooxml.DOCX_WORDS),
    "xlsx": (ooxml.xlsx, "xlsx", ooxml.XLSX_WORDS),
    "pptx": (ooxml.pptx, "pptx", ooxml.PPTX_WORDS),
    "odt": (odf.odt, "odt", odf.ODT_WORDS),
    "ods": (odf.ods, "ods", odf.ODS_WORDS),
    "odp": (odf.odp, "odp", odf.ODP_WORDS),
    "rtf": (lambda: legacy.RTF, "rtf", legacy.RTF_WORDS),
    "doc": (legacy.doc, "doc", legacy.DOC_WORDS),
    "Word 95": (legacy.doc_95, "doc", ("wordbody", "wordlink", "Příliš")),
    "xls": (lambda: legacy.compound({"Workbook": legacy.biff8()}), "xls", legacy.XLS_WORDS),
    "xls in capitals": (lambda: legacy.compound({"WORKBOOK": legacy.biff8()}), "xls", legacy.XLS_WORDS),
    "xls with a Word file inside": (
        lambda: legacy.compound({"Workbook": legacy.biff8()}, {"WordDocument": b"\xec\xa5", "1Table": b""}),
        "xls",
        legacy.XLS_WORDS,
    ),
    "Excel 5": (lambda: legacy.compound({"Book": legacy.biff5()}), "xls", ("wordsheet", "Привет", "wordcomment", "wordheader")),
    "Excel 4": (legacy.biff4, "xls", ("wordcell", "4711")),
    "Excel 2": (legacy.biff2, "xls", ("wordcell",)),
    "ppt": (legacy.ppt, "ppt", legacy.PPT_WORDS),
}


@pytest.fixture(scope="module")
def extractor() -> Iterator[Extractor]:
    with Extractor(processes=1) as extractor:
        yield extractor


@pytest.mark.parametrize(("make", "kind", "words"), DOCUMENTS.values(), ids=DOCUMENTS.keys())
def test_every_place(extractor: Extractor, make: Callable[[], bytes], kind: str, words: Sequence[str]) -> None:
    found = extractor.extract(make(), name="attachment.dat")
    assert (found.state, found.reason, found.kind) == (ExtractionState.OK, "", kind)
    there = set(re.findall(r"\w+", found.text))
    assert [word for word in words if word not in there] == []
    assert "hidden" not in found.text


def _second_opinion(data: bytes) -> set[str]:
    """The words in the character data of all XML parts, by another parser that knows nothing of the formats."""
    words: set[str] = set()
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        for name in archive.namelist():
            if name.endswith(".xml"):
                for element in ElementTree.fromstring(archive.read(name)).iter():
                    words |= {word for text in (element.text, element.tail) for word in re.findall(r"word\w+", text or "")}
    return words


@pytest.mark.parametrize("kind", ["docx", "xlsx", "pptx", "odt", "ods", "odp"])
def test_a_second_reader_finds_no_other_words(extractor: Extractor, kind: str) -> None:
    data = DOCUMENTS[kind][0]()
    expected = _second_opinion(data) - {"wordsp", "wordin"}  # halves of words that run on
    assert len(expected) > 3
    assert expected - set(re.findall(r"\w+", extractor.extract(data).text)) == set()


def test_a_text_box_is_read_once(extractor: Extractor) -> None:
    assert extractor.extract(ooxml.docx()).text.count("wordbox") == 1


def test_a_part_that_is_not_read_is_named(extractor: Extractor) -> None:
    files = {
        "[Content_Types].xml": "<Types/>",
        "word/document.xml": f'<w:p xmlns:w="{ooxml.W}"><w:r><w:t>zebra</w:t></w:r></w:p>',
    }
    files["word/novel/chapter.xml"] = f'<w:p xmlns:w="{ooxml.W}"><w:r><w:t>unicorn</w:t></w:r></w:p>'
    found = extractor.extract(packages.zipped(files))
    assert (found.state, "zebra" in found.text) == (ExtractionState.OK, True)
    assert "word/novel/chapter.xml" in found.reason


def test_entities_are_refused(extractor: Extractor) -> None:
    bomb = (
        '<!DOCTYPE x [<!ENTITY a "zebra"><!ENTITY b "&a;&a;&a;">]>'
        + f'<w:p xmlns:w="{ooxml.W}"><w:r><w:t>&b;</w:t></w:r></w:p>'
    )
    found = extractor.extract(packages.zipped({"[Content_Types].xml": "<Types/>", "word/document.xml": bomb}))
    assert found.state is ExtractionState.BROKEN
    assert "entities" in found.reason


@pytest.mark.parametrize("cut", [600, 1500, 3000])
@pytest.mark.parametrize("kind", ["doc", "xls", "ppt"])
def test_a_compound_file_that_is_cut_off_is_not_ok(extractor: Extractor, kind: str, cut: int) -> None:
    found = extractor.extract(DOCUMENTS[kind][0]()[:cut], name=f"x.{kind}")
    assert found.state is not ExtractionState.OK or found.reason


TEXTS: dict[str, bytes] = {
    "Chinese in UTF-8": "斑馬在這裡，zebra。".encode(),
    "Chinese, long": ("斑馬在這裡" * 100 + "zebra").encode("gb18030"),
    "Russian in KOI8-R": ("Зебра в зоопарке " * 20 + "zebra").encode("koi8-r"),
    "wide, without a mark": "zebra in sixteen bits\r\n".encode("utf-16-le"),
    "wide, the other way": "zebra in sixteen bits\r\n".encode("utf-16-be"),
    "from DOS, with its end": b"zebra in a file\r\n" * 40 + b"\x1a",
    "typed over": b"z\x08zebra underlined\n" * 3 + b"and some more lines of the manual page\n" * 20,
    "with a few zeros": b"zebra\0" + b"a log that was cut off in a crash\n" * 40,
}


@pytest.mark.parametrize("data", TEXTS.values(), ids=TEXTS.keys())
def test_plain_text_is_text(extractor: Extractor, data: bytes) -> None:
    found = extractor.extract(data, name="notes.txt", declared_type="text/plain")
    assert (found.state, found.kind) == (ExtractionState.OK, "text")
    assert "zebra" in found.text
