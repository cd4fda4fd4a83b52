"""Each type of attachment with known words to find, under a name that says nothing."""

import gzip
import io
import shutil
import tarfile
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path

import py7zr
import pytest

from archiver.extract import ExtractionState
from archiver.extract.extractor import Extractor


@pytest.fixture(scope="module")
def extractor() -> Iterator[Extractor]:
    with Extractor(processes=1) as extractor:
        yield extractor


def zipped(files: dict[str, str | bytes]) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in files.items():
            archive.writestr(name, content)
    return buffer.getvalue()


def pdf(*pages: str) -> bytes:
    """The smallest PDF with a line of text per page."""
    kids = " ".join(f"{3 + 2 * n} 0 R" for n in range(len(pages)))
    objects = [
        "<< /Type /Catalog /Pages 2 0 R >>",
        f"<< /Type /Pages /Kids [{kids}] /Count {len(pages)} >>",
    ]
    font = "<< /Type /Font /Subtype /Type1 /BaseFont /Helvetica >>"
    for number, text in enumerate(pages):
        objects.append(
            f"<< /Type /Page /Parent 2 0 R /MediaBox [0 0 300 300] /Contents {4 + 2 * number} 0 R"
            f" /Resources << /Font << /F1 {font} >> >> >>"
        )
        stream = f"BT /F1 12 Tf 20 200 Td ({text}) Tj ET"
        objects.append(f"<< /Length {len(stream)} >>\nstream\n{stream}\nendstream")
    out, offsets = b"%PDF-1.4\n", []
    for number, content in enumerate(objects, start=1):
        offsets.append(len(out))
        out += f"{number} 0 obj\n{content}\nendobj\n".encode()
    table = "".join(f"{offset:010} 00000 n \n" for offset in offsets)
    end = f"xref\n0 {len(objects) + 1}\n0000000000 65535 f \n{table}trailer << /Size {len(objects) + 1} /Root 1 0 R >>\n"
    return out + f"{end}startxref\n{len(out)}\n%%EOF".encode()


W = "http://schemas.openxmlformats.org/wordprocessingml/2006/main"
A = "http://schemas.openxmlformats.org/drawingml/2006/main"
P = "http://schemas.openxmlformats.org/presentationml/2006/main"
S = "http://schemas.openxmlformats.org/spreadsheetml/2006/main"
R = "http://schemas.openxmlformats.org/officeDocument/2006/relationships"
PACKAGE = "http://schemas.openxmlformats.org/package/2006"
OFFICE = "application/vnd.openxmlformats-officedocument"


def content_types(*overrides: tuple[str, str]) -> str:
    parts = "".join(f'<Override PartName="{part}" ContentType="{OFFICE}.{kind}+xml"/>' for part, kind in overrides)
    return (
        f'<Types xmlns="{PACKAGE}/content-types"><Default Extension="rels" ContentType="application/vnd.openxmlformats-package'
        f'.relationships+xml"/><Default Extension="xml" ContentType="application/xml"/>{parts}</Types>'
    )


def relations(*targets: tuple[str, str]) -> str:
    entries = "".join(
        f'<Relationship Id="rId{number}" Type="{R}/{kind}" Target="{target}"/>'
        for number, (kind, target) in enumerate(targets, start=1)
    )
    return f'<Relationships xmlns="{PACKAGE}/relationships">{entries}</Relationships>'


def docx(text: str) -> bytes:
    return zipped(
        {
            "[Content_Types].xml": content_types(("/word/document.xml", "wordprocessingml.document.main")),
            "_rels/.rels": relations(("officeDocument", "word/document.xml")),
            "word/document.xml": f'<w:document xmlns:w="{W}"><w:body><w:p><w:r><w:t>{text}</w:t></w:r></w:p></w:body>'
            "</w:document>",
        }
    )


def pptx(*slides: str) -> bytes:
    files: dict[str, str | bytes] = {
        "[Content_Types].xml": content_types(
            ("/ppt/presentation.xml", "presentationml.presentation.main"),
            *((f"/ppt/slides/slide{n}.xml", "presentationml.slide") for n in range(1, len(slides) + 1)),
        ),
        "_rels/.rels": relations(("officeDocument", "ppt/presentation.xml")),
        "ppt/_rels/presentation.xml.rels": relations(*(("slide", f"slides/slide{n}.xml") for n in range(1, len(slides) + 1))),
        "ppt/presentation.xml": f'<p:presentation xmlns:p="{P}" xmlns:r="{R}"><p:sldIdLst>'
        + "".join(f'<p:sldId id="{255 + n}" r:id="rId{n}"/>' for n in range(1, len(slides) + 1))
        + "</p:sldIdLst></p:presentation>",
    }
    for number, text in enumerate(slides, start=1):
        files[f"ppt/slides/slide{number}.xml"] = (
            f'<p:sld xmlns:p="{P}" xmlns:a="{A}"><p:cSld><p:spTree><p:sp><p:txBody><a:p><a:r><a:t>{text}</a:t></a:r></a:p>'
            "</p:txBody></p:sp></p:spTree></p:cSld></p:sld>"
        )
    return zipped(files)


def xlsx(*sheets: str) -> bytes:
    numbers = range(1, len(sheets) + 1)
    files: dict[str, str | bytes] = {
        "[Content_Types].xml": content_types(
            ("/xl/workbook.xml", "spreadsheetml.sheet.main"),
            *((f"/xl/worksheets/sheet{n}.xml", "spreadsheetml.worksheet") for n in numbers),
        ),
        "_rels/.rels": relations(("officeDocument", "xl/workbook.xml")),
        "xl/_rels/workbook.xml.rels": relations(*(("worksheet", f"worksheets/sheet{n}.xml") for n in numbers)),
        "xl/workbook.xml": f'<workbook xmlns="{S}" xmlns:r="{R}"><sheets>'
        + "".join(f'<sheet name="Sheet{n}" sheetId="{n}" r:id="rId{n}"/>' for n in numbers)
        + "</sheets></workbook>",
    }
    for number, text in enumerate(sheets, start=1):
        files[f"xl/worksheets/sheet{number}.xml"] = (
            f'<worksheet xmlns="{S}"><sheetData><row r="1"><c r="A1" t="inlineStr"><is><t>{text}</t></is></c>'
            '<c r="B1"><v>42</v></c></row></sheetData></worksheet>'
        )
    return zipped(files)


ODF = "urn:oasis:names:tc:opendocument:xmlns"
ODF_SPACES = (
    f'xmlns:office="{ODF}:office:1.0" xmlns:text="{ODF}:text:1.0" xmlns:table="{ODF}:table:1.0" xmlns:draw="{ODF}:drawing:1.0"'
)


def odf(kind: str, body: str, manifest: str = "") -> bytes:
    document = f"<office:document-content {ODF_SPACES}><office:body>{body}</office:body></office:document-content>"
    return zipped(
        {
            "mimetype": f"application/vnd.oasis.opendocument.{kind}",
            "content.xml": f'<?xml version="1.0"?>{document}',
            "META-INF/manifest.xml": f"<manifest>{manifest}</manifest>",
        }
    )


def tarred(name: str, content: bytes) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as archive:
        entry = tarfile.TarInfo(name)
        entry.size = len(content)
        archive.addfile(entry, io.BytesIO(content))
    return buffer.getvalue()


def seven_zipped(name: str, content: bytes) -> bytes:
    buffer = io.BytesIO()
    with py7zr.SevenZipFile(buffer, "w") as archive:
        archive.writestr(content, name)
    return buffer.getvalue()


MAIL = b"From: Zed <zed@example.org>\nSubject: Inside\nMIME-Version: 1.0\n\nzebra in a mail\n"
VCARD = "BEGIN:VCARD\r\nVERSION:3.0\r\nFN:Zebra Zimmer\r\nTEL;TYPE=cell:+49 30 1234\r\nEND:VCARD\r\n"
ICS = "BEGIN:VCALENDAR\r\nBEGIN:VEVENT\r\nSUMMARY:zebra meeting\r\nDTSTART:20200302T100000Z\r\nEND:VEVENT\r\nEND:VCALENDAR\r\n"
TYPES: dict[str, tuple[Callable[[], bytes], str]] = {
    "pdf": (lambda: pdf("first page", "zebra on page two"), "pdf"),
    "docx": (lambda: docx("zebra in Word"), "docx"),
    "xlsx": (lambda: xlsx("nothing", "zebra in Excel"), "xlsx"),
    "pptx": (lambda: pptx("opening", "zebra on a slide"), "pptx"),
    "odt": (lambda: odf("text", "<office:text><text:p>zebra in a text</text:p></office:text>"), "odt"),
    "ods": (
        lambda: odf(
            "spreadsheet",
            '<office:spreadsheet><table:table table:name="T"><table:table-row><table:table-cell office:value-type="string">'
            "<text:p>zebra in a cell</text:p></table:table-cell></table:table-row></table:table></office:spreadsheet>",
        ),
        "ods",
    ),
    "odp": (
        lambda: odf(
            "presentation",
            "<office:presentation><draw:page><text:p>one</text:p></draw:page>"
            "<draw:page><text:p>zebra on two</text:p></draw:page></office:presentation>",
        ),
        "odp",
    ),
    "rtf": (lambda: rb"{\rtf1\ansi{\fonttbl\f0 Arial;}\f0 zebra in \b RTF\b0\par}", "rtf"),
    "html": (lambda: b"<html><body><p>zebra in <b>HTML</b></p></body></html>", "html"),
    "csv": (lambda: b"animal,count\nzebra,3\n", "text"),
    "text": (lambda: "Zébra und zebra\n".encode("latin-1"), "text"),
    "utf-16": (lambda: "zebra in sixteen bits\n".encode("utf-16"), "text"),
    "xml": (lambda: b"<?xml version='1.0'?><a><b>zebra &amp; co</b></a>", "xml"),
    "mail": (lambda: MAIL, "mail"),
    "vcard": (lambda: VCARD.encode(), "vcard"),
    "calendar": (lambda: ICS.encode(), "calendar"),
    "zip": (lambda: zipped({"deep/a.docx": docx("zebra in a zip")}), "zip"),
    "tar": (lambda: tarred("a.pdf", pdf("zebra in a tar")), "tar"),
    "tar.gz": (lambda: gzip.compress(tarred("a.txt", b"zebra in a tgz")), "gzip"),
    "7z": (lambda: seven_zipped("a.txt", b"zebra in a 7z"), "7z"),
    "zip in mail": (lambda: mail_with(zipped({"a.txt": "zebra in a zip in a mail"})), "mail"),
}


def mail_with(content: bytes) -> bytes:
    import base64

    return (
        b"From: a@example.org\nSubject: x\nMIME-Version: 1.0\nContent-Type: application/zip; name=a.zip\n"
        b"Content-Transfer-Encoding: base64\n\n" + base64.encodebytes(content)
    )


@pytest.mark.parametrize(("make", "kind"), TYPES.values(), ids=TYPES.keys())
def test_known_words_are_found(extractor: Extractor, make: Callable[[], bytes], kind: str) -> None:
    extraction = extractor.extract(make(), name="attachment.dat", declared_type="application/octet-stream")
    assert (extraction.state, extraction.kind) == (ExtractionState.OK, kind)
    assert "zebra" in extraction.text.lower()


@pytest.mark.parametrize(
    ("file", "words"),
    [
        ("testComment.doc", "Here is some text"),
        ("testEXCEL_5.xls", "Sample Excel Worksheet"),
        ("testPPT_comment.ppt", "subtitle"),
        ("test-documents.7z", "Sample Excel Worksheet"),
        ("testPDF_bookmarks.pdf", "France"),
    ],
)
def test_old_binary_formats(extractor: Extractor, shared_corpus: Path, file: str, words: str) -> None:
    extraction = extractor.extract(shared_corpus / "public/attachments/tika" / file, name="x")
    assert extraction.state is ExtractionState.OK
    assert words in extraction.text


def test_outlook_messages(extractor: Extractor, shared_corpus: Path) -> None:
    extraction = extractor.extract(shared_corpus / "public/msg/msgreader/EmailWithAttachments.msg")
    assert extraction.kind == "msg"
    assert "This is the subject" in extraction.text


@pytest.mark.parametrize("kind", ["pdf", "xlsx", "pptx", "odp"])
def test_page_numbers_are_kept(extractor: Extractor, kind: str) -> None:
    extraction = extractor.extract(TYPES[kind][0]())
    assert [page.number for page in extraction.pages if "zebra" in page.text] == [2]


def test_files_in_an_archive_are_named(extractor: Extractor) -> None:
    pages = extractor.extract(TYPES["zip"][0]()).pages
    assert [page.file for page in pages if "zebra" in page.text] == ["deep/a.docx"]


def test_the_name_is_not_believed(extractor: Extractor) -> None:
    extraction = extractor.extract(pdf("zebra"), name="picture.png", declared_type="image/png")
    assert (extraction.kind, extraction.text) == ("pdf", "zebra")


ENCRYPTED = {
    "testWORD_protected_passtika.doc", "testWORD_protected_passtika.docx", "protectedFile.xlsx", "testODTEncrypted.odt",
    "test7Z_protected_passTika.7z",
}  # fmt: skip


@pytest.mark.parametrize("file", sorted(ENCRYPTED))
def test_what_needs_a_password_says_so(extractor: Extractor, shared_corpus: Path, file: str) -> None:
    assert extractor.extract(shared_corpus / "public/attachments/tika" / file).state is ExtractionState.ENCRYPTED


def test_an_encrypted_pdf(extractor: Extractor) -> None:
    key = "<" + "00" * 32 + ">"
    encrypt = f"/Encrypt << /Filter /Standard /V 1 /R 2 /P -4 /O {key} /U {key} >> /ID [{key} {key}] "
    assert extractor.extract(pdf("zebra").replace(b"/Root", encrypt.encode() + b"/Root")).state is ExtractionState.ENCRYPTED


@pytest.mark.parametrize(
    ("data", "state"),
    [
        (b"", ExtractionState.EMPTY),
        (b"   \n\n", ExtractionState.EMPTY),
        (b"\x89PNG\r\n\x1a\n" + b"\0" * 100, ExtractionState.EMPTY),
        (b"\x7fELF" + b"\0" * 100, ExtractionState.UNSUPPORTED),
        (b"Rar!\x1a\x07\0" + b"\0" * 100, ExtractionState.UNSUPPORTED),
        (bytes(range(256)) * 20, ExtractionState.UNSUPPORTED),
        (b"PK\x03\x04" + b"\0" * 500, ExtractionState.BROKEN),
        (b"%PDF-1.4 and nothing else", ExtractionState.BROKEN),
        (gzip.compress(b"x" * 5000)[:30], ExtractionState.BROKEN),
        (docx("zebra")[:200], ExtractionState.BROKEN),
    ],
    ids=["nothing", "blank", "picture", "program", "rar", "noise", "zip", "pdf", "gzip", "docx"],
)
def test_each_other_state_has_a_reason(extractor: Extractor, data: bytes, state: ExtractionState) -> None:
    extraction = extractor.extract(data)
    assert extraction.state is state
    assert extraction.reason


def test_the_corpus_of_attachments(extractor: Extractor, shared_corpus: Path) -> None:
    """Whatever it is, an answer comes and the child lives on."""
    for path in sorted((shared_corpus / "public/attachments").rglob("*")):
        if path.is_file():
            extraction = extractor.extract(path, name=path.name)
            assert extraction.state is ExtractionState.OK or extraction.reason, path
            assert "crashed" not in extraction.reason, path


@pytest.mark.skipif(shutil.which("tesseract") is None, reason="tesseract is not installed")
def test_pictures_and_scans_by_ocr(shared_corpus: Path) -> None:
    with Extractor(processes=1, ocr_languages="eng") as extractor:
        for file in ("testOCR.png", "testOCR.pdf"):
            extraction = extractor.extract(shared_corpus / "public/attachments/tika" / file)
            assert extraction.state is ExtractionState.OK
            assert "words" in extraction.text or "Happy" in extraction.text
