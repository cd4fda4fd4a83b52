"""Makes PDF files in a child (archiver.extract.serving), which has no network and none of our files."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

import orjson
import typst

from archiver.exports.pdf.document import document_of
from archiver.extract.serving import Answer, Answers

_FOLDER = Path(__file__).parent
_FONTS = "/usr/share/fonts"


@cache
def _compiler() -> typst.Compiler:
    """Its root is the folder of the template, which reads no file and imports no package."""
    fonts = typst.Fonts(include_system_fonts=False, font_paths=[_FONTS] if Path(_FONTS).is_dir() else [])
    return typst.Compiler(root=_FOLDER, font_paths=fonts, ignore_system_fonts=True)


@cache
def _template() -> bytes:
    return (_FOLDER / "message.typ").read_bytes()


def _render(header: dict[str, Any], pieces: list[bytes]) -> Answer:
    document = document_of(pieces[0], header["about"], has_pictures=header["pictures"])
    return {}, (_compile(document),)


def _compile(document: dict[str, Any]) -> bytes:
    try:
        found = _compiler().compile(_template(), format="pdf", sys_inputs={"data": orjson.dumps(document).decode()})
    except typst.TypstError:
        if not document["pictures"]:
            raise
        notes = [*document["notes"], "The pictures of this message could not be shown."]
        return _compile({**document, "pictures": [], "notes": notes})
    assert isinstance(found, bytes)
    return found


ANSWERS: Answers = {"render": _render}
