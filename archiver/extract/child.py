"""What an extracting child answers (archiver.extract.serving): the text of a file, a page of a PDF as a picture."""

from __future__ import annotations

from typing import Any

from archiver.extract import ocr
from archiver.extract.extraction import Extraction, Refused, State
from archiver.extract.pictures import draw_page
from archiver.extract.reading import extract_file
from archiver.extract.serving import Answer, Answers


def _extract(header: dict[str, Any], pieces: list[bytes]) -> Answer:
    try:
        with_ocr = bool(header["ocr"]) and ocr.is_available()
        found = extract_file(pieces[0], str(header["name"]), str(header["type"]), with_ocr=with_ocr)
    except Refused as refused:
        found = Extraction(refused.state, refused.reason)
    except MemoryError:
        found = Extraction(State.TOO_LARGE, "needs more memory than the limit")
    except Exception as error:  # noqa: BLE001 - readers of foreign formats raise anything; the file is broken, we are not
        found = Extraction(State.BROKEN, f"{type(error).__name__}: {error}"[:500])
    pages = [(page.number, page.text, page.file) for page in found.pages]
    return {"state": found.state, "reason": found.reason, "kind": found.kind, "pages": pages}, ()


def _draw(header: dict[str, Any], pieces: list[bytes]) -> Answer:
    try:
        pages, png = draw_page(pieces[0], int(header["page"]))
        return {"state": State.OK, "reason": "", "pages": pages}, (png,)
    except Refused as refused:
        return {"state": refused.state, "reason": refused.reason, "pages": 0}, (b"",)
    except MemoryError:
        return {"state": State.TOO_LARGE, "reason": "needs more memory than the limit", "pages": 0}, (b"",)
    except Exception as error:  # noqa: BLE001 - as above
        return {"state": State.BROKEN, "reason": f"{type(error).__name__}: {error}"[:500], "pages": 0}, (b"",)


ANSWERS: Answers = {"extract": _extract, "draw": _draw}
