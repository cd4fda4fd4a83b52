"""Reads PowerPoint presentations (OOXML), slide by slide. Relations are found by regular expressions, so no entity is
expanded."""

import posixpath
import re
import zipfile
from collections.abc import Iterator

from archiver.extract.extraction import TextPage
from archiver.extract.office import drawing_text, read_part

_RELATION = re.compile(r"<Relationship\b[^<>]*>")
_ATTRIBUTE = re.compile(r"\b(Id|Type|Target)=\"([^\"]*)\"")
_SLIDE_ID = re.compile(r"<p:sldId\b[^<>]*\br:id=\"([^\"]+)\"")
_SLIDE_NUMBER = re.compile(r"ppt/slides/slide(\d+)\.xml\Z")


def read_powerpoint(archive: zipfile.ZipFile) -> Iterator[TextPage]:
    names = set(archive.namelist())
    for number, slide in enumerate(_slides(archive, names), start=1):
        texts = [drawing_text(archive, slide)]
        for kind, target in _relations(archive, names, slide).values():
            if kind.endswith(("/notesSlide", "/diagramData", "/comments", "/chart")) and target in names:
                texts.append(drawing_text(archive, target))
        yield TextPage(number, "\n".join(filter(None, texts)))


def _slides(archive: zipfile.ZipFile, names: set[str]) -> list[str]:
    """In the order of the presentation, not of the file names."""
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


def _read(archive: zipfile.ZipFile, name: str) -> str:
    return read_part(archive, name).decode("utf-8", "replace")
