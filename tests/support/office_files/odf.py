"""OpenDocument files with a word in every place where the format allows text, written by hand."""
# ruff: noqa: E501 - markup is easier to read in one line

from __future__ import annotations

from tests.support.office_files.ooxml import DC
from tests.support.office_files.packages import zipped

ODF = "urn:oasis:names:tc:opendocument:xmlns"
_ODF_NAMES = " ".join(
    f'xmlns:{prefix}="{ODF}:{name}:1.0"'
    for prefix, name in (("office", "office"), ("text", "text"), ("table", "table"), ("draw", "drawing"), ("style", "style"),
                         ("presentation", "presentation"), ("svg", "svg-compatible"), ("meta", "meta"))
) + f' xmlns:dc="{DC}"'  # fmt: skip


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
