"""Presentations, slide by slide, straight from their XML: PowerPoint (OOXML) and OpenDocument.

Regular expressions and no XML parser: slides need nothing more, and there are no entities that could be expanded.
"""

import html
import posixpath
import re
import zipfile
from collections.abc import Iterator

from archiver.extract import limits
from archiver.extract.extraction import Page

_RELATION = re.compile(r"<Relationship\b[^<>]*>")
_ATTRIBUTE = re.compile(r"\b(Id|Type|Target)=\"([^\"]*)\"")
_SLIDE_ID = re.compile(r"<p:sldId\b[^<>]*\br:id=\"([^\"]+)\"")
_PARAGRAPH_END = re.compile(r"</a:p>|<a:br\b[^<>]*>")
_RUN = re.compile(r"<a:t(?:\s[^<>]*)?>([^<]*)</a:t>")
_SLIDE_NUMBER = re.compile(r"ppt/slides/slide(\d+)\.xml\Z")
_ODP_PAGE = re.compile(r"<draw:page\b")
_ODP_BREAK = re.compile(r"</text:(?:p|h)>|<text:line-break\b[^<>]*>")
_TAG = re.compile(r"<[^<>]*>")


def read_powerpoint(archive: zipfile.ZipFile) -> Iterator[Page]:
    names = set(archive.namelist())
    for number, slide in enumerate(_slides(archive, names), start=1):
        texts = [_paragraphs(_read(archive, slide))]
        for kind, target in _relations(archive, names, slide).values():
            if kind.endswith(("/notesSlide", "/diagramData", "/comments")) and target in names:
                texts.append(_paragraphs(_read(archive, target)))
        yield Page(number, "\n".join(filter(None, texts)))


def read_impress(archive: zipfile.ZipFile) -> Iterator[Page]:
    _, *pages = _ODP_PAGE.split(_read(archive, "content.xml"))
    for number, page in enumerate(pages, start=1):
        lines = (html.unescape(_TAG.sub("", line)) for line in _ODP_BREAK.split(f"<draw:page{page}"))
        yield Page(number, "\n".join(line.strip() for line in lines if line.strip()))


def _slides(archive: zipfile.ZipFile, names: set[str]) -> list[str]:
    """Their order is that of the presentation, not that of the file names."""
    relations = _relations(archive, names, "ppt/presentation.xml")
    ordered = [
        relations[slide_id][1]
        for slide_id in _SLIDE_ID.findall(_read(archive, "ppt/presentation.xml") if "ppt/presentation.xml" in names else "")
        if slide_id in relations and relations[slide_id][1] in names
    ]
    numbered = {int(found[1]): name for name in names if (found := _SLIDE_NUMBER.match(name))}
    return ordered or [numbered[number] for number in sorted(numbered)]


def _relations(archive: zipfile.ZipFile, names: set[str], part: str) -> dict[str, tuple[str, str]]:
    folder, name = posixpath.split(part)
    path = f"{folder}/_rels/{name}.rels"
    found: dict[str, tuple[str, str]] = {}
    if path in names:
        for relation in _RELATION.findall(_read(archive, path)):
            given = dict(_ATTRIBUTE.findall(relation))
            target = posixpath.normpath(posixpath.join(folder, given.get("Target", ""))).lstrip("/")
            found[given.get("Id", "")] = given.get("Type", ""), target
    return found


def _paragraphs(xml: str) -> str:
    lines = ("".join(_RUN.findall(paragraph)) for paragraph in _PARAGRAPH_END.split(xml))
    return html.unescape("\n".join(line for line in lines if line.strip()))


def _read(archive: zipfile.ZipFile, name: str) -> str:
    with archive.open(name) as part:
        return part.read(limits.DOCUMENT_BYTES).decode("utf-8", "replace")
