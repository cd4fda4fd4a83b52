"""Office documents with a word in every place where their format allows text, written by hand."""
# ruff: noqa: E501 - markup is easier to read in one line

from __future__ import annotations

import io
import re
import struct
import zipfile
from collections.abc import Mapping

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
ODF = "urn:oasis:names:tc:opendocument:xmlns"
_ODF_NAMES = " ".join(
    f'xmlns:{prefix}="{ODF}:{name}:1.0"'
    for prefix, name in (("office", "office"), ("text", "text"), ("table", "table"), ("draw", "drawing"), ("style", "style"),
                         ("presentation", "presentation"), ("svg", "svg-compatible"), ("meta", "meta"))
) + f' xmlns:dc="{DC}"'  # fmt: skip


def zipped(files: Mapping[str, str | bytes]) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in files.items():
            archive.writestr(name, content)
    return buffer.getvalue()


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


def _odf(kind: str, body: str) -> bytes:
    styles = (
        f"<office:document-styles {_ODF_NAMES}><office:styles><style:style>hidden</style:style></office:styles><office:master-styles>"
        "<style:master-page><style:header><text:p>wordheader</text:p></style:header><style:footer><text:p>wordfooter</text:p>"
        "</style:footer></style:master-page></office:master-styles></office:document-styles>"
    )
    meta = (
        f"<office:document-meta {_ODF_NAMES}><office:meta><dc:title>wordtitle</dc:title><meta:keyword>wordkeyword</meta:keyword>"
        "</office:meta></office:document-meta>"
    )
    return zipped(
        {
            "mimetype": f"application/vnd.oasis.opendocument.{kind}",
            "content.xml": f"<office:document-content {_ODF_NAMES}><office:body><office:{kind}>{body}</office:{kind}></office:body>"
            "</office:document-content>",
            "styles.xml": styles,
            "meta.xml": meta,
        }
    )


_NOTE = "<office:annotation><dc:creator>Ann</dc:creator><text:p>wordcomment</text:p></office:annotation>"


def odt() -> bytes:
    return _odf(
        "text",
        f"""<text:tracked-changes><text:p>worddeleted</text:p></text:tracked-changes><text:h>wordheading</text:h>
        <text:p>word<text:span>spa</text:span>n<text:s/>wordspace<text:tab/>wordtab<text:line-break/>wordline{_NOTE}</text:p>
        <text:p>wordnoted<text:note><text:note-citation>1</text:note-citation><text:note-body><text:p>wordfootnote</text:p>
        </text:note-body></text:note></text:p>
        <table:table><table:table-row><table:table-cell><text:p><text:span>wordcell</text:span></text:p>
        <text:list><text:list-item><text:p>worditem</text:p></text:list-item></text:list></table:table-cell></table:table-row></table:table>
        <text:p><draw:frame><svg:title>wordpicturetitle</svg:title><svg:desc>wordpicture</svg:desc>
        <draw:text-box><text:p>wordbox</text:p></draw:text-box></draw:frame></text:p>""",
    )


ODT_WORDS = (
    "worddeleted", "wordheading", "wordspan", "wordspace", "wordtab", "wordline", "wordcomment", "wordnoted", "wordfootnote", "wordcell",
    "worditem", "wordpicturetitle", "wordpicture", "wordbox", "wordheader", "wordfooter", "wordtitle", "wordkeyword",
)  # fmt: skip


def ods() -> bytes:
    return _odf(
        "spreadsheet",
        f'<table:table table:name="wordsheet"><table:table-row><table:table-cell>{_NOTE}<text:p>word<text:span>cell</text:span></text:p>'
        "</table:table-cell></table:table-row><table:shapes><draw:frame><draw:text-box><text:p>wordbox</text:p></draw:text-box></draw:frame>"
        "</table:shapes></table:table>",
    )


ODS_WORDS = ("wordsheet", "wordcomment", "wordcell", "wordbox", "wordheader", "wordtitle")


def odp() -> bytes:
    return _odf(
        "presentation",
        f"<draw:page><draw:frame><draw:text-box><text:p>wordbody</text:p></draw:text-box></draw:frame>{_NOTE}"
        "<presentation:notes><text:p>wordnotes</text:p></presentation:notes></draw:page>",
    )


ODP_WORDS = ("wordbody", "wordcomment", "wordnotes", "wordfooter")

RTF = (
    rb"{\rtf1\ansi\ansicpg1252\deff0{\fonttbl{\f0\fswiss\fcharset0 Arial;}{\f1\fnil\fcharset204{\*\fname Arial;}Arial CYR;}"
    rb"{\f2\fnil\fcharset128 MS Gothic;}{\f3\fnil\fcharset238 Arial CE;}}{\stylesheet{\s0 hiddenstyle;}}"
    rb"{\info{\title wordtitle}{\author hiddenauthor}{\keywords wordkeyword}}{\header wordheader\par}{\footer wordfooter\par}"
    rb"\f0 wordbody caf\'e9\par\f1 \'cf\'f0\'e8\'e2\'e5\'f2\par\f2 \'93\'fa\'96\'7b\'8c\'ea\par\f3 \'f8e\'e8\par"
    rb"\f0{\f1 \'cc\'ee\'f1\'ea\'e2\'e0} \'fcber wordgroup\par\uc1\u26085?\u26412?\par "
    rb"wordnoted{\footnote wordfootnote}{\*\atnid x}{\*\annotation wordcomment}\par"
    rb"{\field{\*\fldinst{HYPERLINK hiddenurl}}{\fldrslt{wordlink}}}\par\trowd wordcell\cell wordsecond\cell\row"
    rb"{\shp{\*\shpinst{\sp{\sn hiddenname}{\sv hiddenvalue}}{\shptxt wordbox\par}}}"
    rb"{\object{\*\objdata 0102}{\result wordobject}}{\*\generator hiddenprogram;}\par}"
)
RTF_WORDS = (
    "wordtitle", "wordkeyword", "wordheader", "wordfooter", "wordbody", "café", "Привет", "日本語", "řeč", "Москва", "über", "wordgroup",
    "日本", "wordnoted", "wordfootnote", "wordcomment", "wordlink", "wordcell", "wordsecond", "wordbox", "wordobject",
)  # fmt: skip


# compound files (MS-CFB)

_SECTOR, _FREE, _END, _FAT = 512, 0xFFFFFFFF, 0xFFFFFFFE, 0xFFFFFFFD


def compound(streams: Mapping[str, bytes], inside: Mapping[str, bytes] | None = None) -> bytes:
    """Streams of the root, and those of a storage inside it. All are padded to 4,096 bytes, so that no small sectors are needed."""
    entries: list[tuple[str, int, bytes]] = [("Root Entry", 5, b"")]
    entries += [(name, 2, content.ljust(4096, b"\0")) for name, content in streams.items()]
    storage = len(entries)
    if inside:
        entries.append(("MBD0001", 1, b""))
        entries += [(name, 2, content.ljust(4096, b"\0")) for name, content in inside.items()]
    sectors: list[bytes] = []
    fat: list[int] = []

    def add(content: bytes) -> int:
        first = len(sectors)
        count = -(-len(content) // _SECTOR)
        for number in range(count):
            sectors.append(content[number * _SECTOR : (number + 1) * _SECTOR].ljust(_SECTOR, b"\0"))
            fat.append(first + number + 1 if number + 1 < count else _END)
        return first

    table = b""
    for number, (name, kind, content) in enumerate(entries):
        start = add(content) if content else _END
        in_root = 0 < number <= (storage if inside else len(entries) - 1)
        last = (storage if inside else len(entries) - 1) if in_root else len(entries) - 1
        right = number + 1 if number and number < last else _FREE
        child = 1 if number == 0 else storage + 1 if inside and number == storage else _FREE
        encoded = name.encode("utf-16-le") + b"\0\0"
        table += struct.pack("<64sHBBIII16xI16xIQ", encoded, len(encoded), kind, 1, _FREE, right, child, 0, start, len(content))
    directory = add(table)
    count = -(-(len(fat) + 1) // (_SECTOR // 4 - 1))
    first_fat = len(sectors)
    fat += [_FAT] * count
    packed = b"".join(struct.pack("<I", entry) for entry in fat).ljust(count * _SECTOR, b"\xff")
    header = struct.pack("<8s16xHHHHH6xIIIIIIIII", b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1", 0x3E, 3, 0xFFFE, 9, 6, 0, count, directory, 0,
                         4096, _END, 0, _END, 0)  # fmt: skip
    places = [*range(first_fat, first_fat + count), *[_FREE] * (109 - count)]
    return header + struct.pack("<109I", *places) + b"".join(sectors) + packed


_STORIES = ("wordbody \x13 HYPERLINK hidden \x14wordlink\x15\rwordcell\x07wordsecond\x07\r", "wordfootnote\r", "wordheader\r", "",
            "wordcomment\r", "wordendnote\r", "wordbox\r", "wordheaderbox\r")  # fmt: skip
DOC_WORDS = ("wordbody", "wordlink", "wordcell", "wordsecond", "wordfootnote", "wordheader", "wordcomment", "wordendnote", "wordbox",
             "wordheaderbox", "Привет")  # fmt: skip


def doc() -> bytes:
    """Word 97: the first half of the text in eight bits, then a piece in sixteen."""
    texts = [*_STORIES[:-1], f"{_STORIES[-1]}Привет\r"]
    whole = "".join(texts)
    cut = whole.index("Привет")
    narrow, wide = whole[:cut].encode("cp1252"), whole[cut:].encode("utf-16-le")
    start = 0x400
    places = struct.pack("<III", 0, cut, len(whole))
    places += struct.pack("<HIH", 0, (start * 2) | 0x40000000, 0) + struct.pack("<HIH", 0, start + len(narrow), 0)
    clx = b"\x01\x02\x00ab\x02" + struct.pack("<I", len(places)) + places
    head = bytearray(start)
    struct.pack_into("<HHHHHH", head, 0, 0xA5EC, 193, 0, 0x409, 0, 0x0200)
    struct.pack_into("<8I", head, 0x4C, *map(len, texts))
    struct.pack_into("<II", head, 0x01A2, 0, len(clx))
    return compound({"WordDocument": bytes(head) + narrow + wide, "1Table": clx})


def doc_95() -> bytes:
    text = "wordbody wordlink\rPříliš\r".encode("cp1250")
    head = bytearray(0x300)
    struct.pack_into("<HHHHHH", head, 0, 0xA5DC, 104, 0, 0x405, 0, 0)
    struct.pack_into("<II", head, 0x18, 0x300, 0x300 + len(text))
    return compound({"WordDocument": bytes(head) + text})


def _record(kind: int, content: bytes = b"") -> bytes:
    return struct.pack("<HH", kind, len(content)) + content


def _wide(text: str, width: str = "H") -> bytes:
    return struct.pack(f"<{width}B", len(text), 1) + text.encode("utf-16-le")


def biff8() -> bytes:
    strings = ("wordshared", "wordlong" * 3, "Привет")
    first = struct.pack("<II", 3, 3) + _wide(strings[0]) + struct.pack("<HB", len(strings[1]), 0) + strings[1][:10].encode()
    rest = b"\x01" + strings[1][10:].encode("utf-16-le") + _wide(strings[2])  # runs on, wider than it began
    globals_ = _record(0x809, struct.pack("<HHHH", 0x0600, 0x0005, 0, 0)) + _record(0x42, struct.pack("<H", 1200))
    globals_ += _record(0x85, struct.pack("<IH", 0, 0) + _wide("wordsheet", "B")) + _record(0xFC, first) + _record(0x3C, rest)
    cells = b"".join(_record(0xFD, struct.pack("<HHHI", row, 0, 0, row)) for row in range(3))
    cells += _record(0x203, struct.pack("<HHHd", 3, 0, 0, 47.5)) + _record(
        0x27E, struct.pack("<HHHI", 3, 1, 0, (4711 << 2) | 2)
    )
    cells += _record(0x06, struct.pack("<HHH", 4, 0, 0) + b"\0\0\0\0\0\0\xff\xff" + bytes(8)) + _record(
        0x207, _wide("wordformula")
    )
    cells += _record(0x14, _wide("&Cwordheader")) + _record(0x15, _wide("wordfooter"))
    cells += (
        _record(0x1B6, bytes(10) + struct.pack("<HHI", len("wordbox"), 0, 0))
        + _record(0x3C, b"\0wordbox")
        + _record(0x3C, bytes(16))
    )
    return globals_ + _record(0x0A) + _record(0x809, struct.pack("<HHHH", 0x0600, 0x0010, 0, 0)) + cells + _record(0x0A)


XLS_WORDS = (
    "wordsheet",
    "wordshared",
    "wordlongwordlongwordlong",
    "Привет",
    "wordformula",
    "wordheader",
    "wordfooter",
    "wordbox",
    "4711",
)


def biff5() -> bytes:
    globals_ = _record(0x809, struct.pack("<HHHH", 0x0500, 0x0005, 0, 0)) + _record(0x42, struct.pack("<H", 1251))
    globals_ += _record(0x85, struct.pack("<IHB", 0, 0, 9) + b"wordsheet") + _record(0x0A)
    cells = _record(0x204, struct.pack("<HHHH", 0, 0, 0, 6) + "Привет".encode("cp1251"))
    cells += _record(0x1C, struct.pack("<HHH", 0, 0, 11) + b"wordcomment") + _record(0x14, b"\x0awordheader")
    return globals_ + _record(0x809, struct.pack("<HHHH", 0x0500, 0x0010, 0, 0)) + cells + _record(0x0A)


def biff4() -> bytes:
    cells = _record(0x204, struct.pack("<HHHH", 0, 0, 0, 8) + b"wordcell") + _record(
        0x203, struct.pack("<HHHd", 1, 0, 0, 4711.0)
    )
    return _record(0x409, struct.pack("<HHH", 0, 0x10, 0)) + cells + _record(0x0A)


def biff2() -> bytes:
    return (
        _record(0x09, struct.pack("<HH", 2, 0x10))
        + _record(0x04, struct.pack("<HH3sB", 0, 0, b"", 8) + b"wordcell")
        + _record(0x0A)
    )


def ppt() -> bytes:
    def atom(kind: int, content: bytes) -> bytes:
        return struct.pack("<HHI", 0, kind, len(content)) + content

    def container(kind: int, content: bytes) -> bytes:
        return struct.pack("<HHI", 0xF, kind, len(content)) + content

    slide = container(
        1006, container(1036, atom(4000, "wordbody Привет\rwordline".encode("utf-16-le")) + atom(4008, b"wordnarrow"))
    )
    comment = container(12000, atom(4026, "Ann".encode("utf-16-le")) + atom(4026, "wordcomment".encode("utf-16-le")))
    tags = container(5000, container(5002, atom(4026, "___PPT10".encode("utf-16-le")) + atom(5003, comment)))
    notes = container(1008, atom(4008, b"wordnotes"))
    return compound({"PowerPoint Document": slide + tags + notes, "Current User": b"x"})


PPT_WORDS = ("wordbody", "Привет", "wordline", "wordnarrow", "wordcomment", "wordnotes")
