"""Word, Excel and PowerPoint files with a word in every place where their format allows text, written by hand."""
# ruff: noqa: E501 - markup is easier to read in one line

from __future__ import annotations

import re
from collections.abc import Mapping

from tests.support.office_files.packages import zipped

W = "http://schemas.openxmlformats.org/wordprocessingml/2006/main"
A = "http://schemas.openxmlformats.org/drawingml/2006/main"
P = "http://schemas.openxmlformats.org/presentationml/2006/main"
S = "http://schemas.openxmlformats.org/spreadsheetml/2006/main"
C = "http://schemas.openxmlformats.org/drawingml/2006/chart"
R = "http://schemas.openxmlformats.org/officeDocument/2006/relationships"
MC = "http://schemas.openxmlformats.org/markup-compatibility/2006"
CORE = "http://schemas.openxmlformats.org/package/2006/metadata/core-properties"
DC = "http://purl.org/dc/elements/1.1/"
PACKAGE = "http://schemas.openxmlformats.org/package/2006"


def _rels(*targets: tuple[str, str]) -> str:
    entries = "".join(
        f'<Relationship Id="rId{n}" Type="{R}/{kind}" Target="{target}"/>' for n, (kind, target) in enumerate(targets, start=1)
    )
    return f'<Relationships xmlns="{PACKAGE}/relationships">{entries}</Relationships>'


_CORE = (
    f'<cp:coreProperties xmlns:cp="{CORE}" xmlns:dc="{DC}"><dc:title>wordtitle</dc:title><dc:subject>wordsubject</dc:subject>'
    "<cp:keywords>wordkeyword</cp:keywords><dc:description>worddescription</dc:description></cp:coreProperties>"
)
_CHART = (
    f'<c:chartSpace xmlns:c="{C}" xmlns:a="{A}"><c:chart><c:title><a:p><a:r><a:t>wordcharttitle</a:t></a:r></a:p></c:title>'
    "<c:cat><c:strRef><c:f>Sheet1!$A$1</c:f><c:strCache><c:pt><c:v>wordcategory</c:v></c:pt></c:strCache></c:strRef></c:cat>"
    "</c:chart></c:chartSpace>"
)


def _run(word: str) -> str:
    return f"<w:p><w:r><w:t>{word}</w:t></w:r></w:p>"


def docx(prefix: str = "w") -> bytes:
    box = f"<w:txbxContent>{_run('wordbox')}</w:txbxContent>"
    document = f"""<w:document xmlns:w="{W}" xmlns:mc="{MC}" xmlns:a="{A}"><w:body>
        <w:p><w:r><w:t>wordsp</w:t></w:r><w:r><w:t>lit</w:t></w:r><w:r><w:tab/><w:t>wordtab</w:t></w:r></w:p>
        <w:tbl><w:tr><w:tc>{_run("wordcell")}</w:tc><w:tc>{_run("wordsecond")}</w:tc></w:tr></w:tbl>
        <w:p><w:r><w:t>wordbefore</w:t></w:r><w:r><mc:AlternateContent><mc:Choice Requires="wps">{box}</mc:Choice>
        <mc:Fallback><w:pict>{box}</w:pict></mc:Fallback></mc:AlternateContent></w:r></w:p>
        <w:p><w:hyperlink><w:r><w:t>wordlink </w:t></w:r></w:hyperlink><w:ins><w:r><w:t>wordin</w:t></w:r></w:ins>
        <w:del><w:r><w:delText>worddeleted</w:delText></w:r></w:del><w:r><w:t>serted</w:t></w:r></w:p>
        <w:sdt><w:sdtContent>{_run("wordcontrol")}</w:sdtContent></w:sdt>
        <w:p><w:r><w:drawing><docPr xmlns="" descr="wordpicture"/></w:drawing></w:r></w:p>
        </w:body></w:document>"""
    parts: dict[str, str | bytes] = {
        "word/document.xml": document,
        **{
            f"word/{name}.xml": f'<w:x xmlns:w="{W}">{_run(word)}</w:x>'
            for name, word in {
                "header1": "wordheader",
                "footer2": "wordfooter",
                "footnotes": "wordfootnote",
                "endnotes": "wordendnote",
                "comments": "wordcomment",
            }.items()
        },
        "word/charts/chart1.xml": _CHART,
        "word/diagrams/data1.xml": f'<d xmlns:a="{A}"><a:p><a:r><a:t>worddiagram</a:t></a:r></a:p></d>',
        "docProps/core.xml": _CORE,
        "word/embeddings/Sheet1.xlsx": xlsx_cells("wordembedded"),
    }
    if prefix != "w":  # writers may choose the prefix
        parts = {
            name: re.sub(r"(?<=[</:])w(?=[:=])", prefix, part) if isinstance(part, str) else part
            for name, part in parts.items()
        }
    return zipped({"[Content_Types].xml": "<Types/>", "_rels/.rels": _rels(("officeDocument", "word/document.xml")), **parts})


DOCX_WORDS = (
    "wordsplit", "wordtab", "wordcell", "wordsecond", "wordbefore", "wordbox", "wordlink", "wordinserted", "worddeleted",
    "wordcontrol", "wordpicture", "wordheader", "wordfooter", "wordfootnote", "wordendnote", "wordcomment", "wordcharttitle",
    "wordcategory", "worddiagram", "wordtitle", "wordsubject", "wordkeyword", "worddescription", "wordembedded",
)  # fmt: skip


def _content_types(*overrides: tuple[str, str]) -> str:
    office = "application/vnd.openxmlformats-officedocument"
    parts = "".join(f'<Override PartName="{part}" ContentType="{office}.{kind}+xml"/>' for part, kind in overrides)
    return (
        f'<Types xmlns="{PACKAGE}/content-types"><Default Extension="rels" ContentType="application/vnd.openxmlformats-package'
        f'.relationships+xml"/><Default Extension="xml" ContentType="application/xml"/>{parts}</Types>'
    )


def xlsx_cells(word: str, extra: Mapping[str, str | bytes] | None = None, margins: str = "") -> bytes:
    return zipped(
        {
            "[Content_Types].xml": _content_types(
                ("/xl/workbook.xml", "spreadsheetml.sheet.main"), ("/xl/worksheets/sheet1.xml", "spreadsheetml.worksheet")
            ),
            "_rels/.rels": _rels(("officeDocument", "xl/workbook.xml")),
            "xl/_rels/workbook.xml.rels": _rels(("worksheet", "worksheets/sheet1.xml")),
            "xl/workbook.xml": f'<workbook xmlns="{S}" xmlns:r="{R}"><sheets><sheet name="wordsheet" sheetId="1" r:id="rId1"/>'
            "</sheets></workbook>",
            "xl/worksheets/sheet1.xml": f'<worksheet xmlns="{S}"><sheetData><row r="1"><c r="A1" t="inlineStr"><is><t>{word}</t>'
            f'</is></c><c r="B1" t="str"><f>"a"</f><v>wordformula</v></c></row></sheetData>{margins}</worksheet>',
            **(extra or {}),
        }
    )


def xlsx() -> bytes:
    extra = {
        "xl/comments1.xml": f'<comments xmlns="{S}"><commentList><comment ref="A1"><text><r><t>wordcomment</t></r></text></comment>'
        "</commentList></comments>",
        "xl/threadedComments/threadedComment1.xml": "<ThreadedComments><threadedComment><text>wordthreaded</text></threadedComment>"
        "</ThreadedComments>",
        "xl/drawings/drawing1.xml": f'<d xmlns:a="{A}"><a:p><a:r><a:t>wordbox</a:t></a:r></a:p></d>',
        "xl/charts/chart1.xml": _CHART,
        "docProps/core.xml": _CORE,
    }
    margins = (
        '<headerFooter><oddHeader>&amp;C&amp;"Arial,Bold"wordheader</oddHeader><oddFooter>&amp;Lwordfooter &amp;P</oddFooter>'
    )
    return xlsx_cells("wordcell", extra, f"{margins}</headerFooter>")


XLSX_WORDS = (
    "wordsheet", "wordcell", "wordformula", "wordcomment", "wordthreaded", "wordbox", "wordcharttitle", "wordcategory", "wordheader",
    "wordfooter", "wordtitle", "wordkeyword",
)  # fmt: skip


def pptx() -> bytes:
    def shape(word: str) -> str:
        return f"<p:sp><p:txBody><a:p><a:r><a:t>{word}</a:t></a:r></a:p></p:txBody></p:sp>"

    slide = (
        f'<p:sld xmlns:p="{P}" xmlns:a="{A}"><p:cSld><p:spTree>{shape("wordbody")}<p:grpSp>{shape("wordgroup")}</p:grpSp>'
        "<p:graphicFrame><a:tbl><a:tr><a:tc><a:txBody><a:p><a:r><a:t>wordcell</a:t></a:r></a:p></a:txBody></a:tc></a:tr></a:tbl>"
        '</p:graphicFrame><p:pic><p:nvPicPr><p:cNvPr id="1" name="x" descr="wordpicture"/></p:nvPicPr></p:pic></p:spTree></p:cSld>'
        "</p:sld>"
    )
    return zipped(
        {
            "[Content_Types].xml": "<Types/>",
            "_rels/.rels": _rels(("officeDocument", "ppt/presentation.xml")),
            "ppt/_rels/presentation.xml.rels": _rels(("slide", "slides/slide1.xml")),
            "ppt/presentation.xml": f'<p:presentation xmlns:p="{P}" xmlns:r="{R}"><p:sldIdLst><p:sldId id="256" r:id="rId1"/>'
            "</p:sldIdLst></p:presentation>",
            "ppt/slides/slide1.xml": slide,
            "ppt/slides/_rels/slide1.xml.rels": _rels(
                ("notesSlide", "../notesSlides/notesSlide1.xml"),
                ("comments", "../comments/comment1.xml"),
                ("chart", "../charts/chart1.xml"),
                ("diagramData", "../diagrams/data1.xml"),
            ),
            "ppt/notesSlides/notesSlide1.xml": f'<p:notes xmlns:p="{P}" xmlns:a="{A}">{shape("wordnotes")}</p:notes>',
            "ppt/comments/comment1.xml": f'<p:cmLst xmlns:p="{P}"><p:cm><p:text>wordcomment</p:text></p:cm></p:cmLst>',
            "ppt/charts/chart1.xml": _CHART,
            "ppt/diagrams/data1.xml": f'<d xmlns:a="{A}"><a:p><a:r><a:t>worddiagram</a:t></a:r></a:p></d>',
            "ppt/embeddings/Sheet1.xlsx": xlsx_cells("wordembedded"),
        }
    )


PPTX_WORDS = (
    "wordbody", "wordgroup", "wordcell", "wordpicture", "wordnotes", "wordcomment", "wordcharttitle", "wordcategory", "worddiagram",
    "wordembedded",
)  # fmt: skip
