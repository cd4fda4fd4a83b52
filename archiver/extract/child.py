"""The requests that an extraction process answers (archiver.extract.serving): the text of a file, a PDF page as an image."""

from __future__ import annotations

from typing import Any

from archiver.extract import ocr
from archiver.extract.extraction import Extraction, ExtractionRefused, ExtractionState
from archiver.extract.pictures import draw_page
from archiver.extract.reading import extract_file
from archiver.extract.serving import Answer, Answers

_OCR_SHARE = 0.8  # share of the time for the whole file; what was recognised by then is returned instead of lost


def _extract(header: dict[str, Any], pieces: list[bytes]) -> Answer:
    try:
        languages = str(header["languages"]) if ocr.is_available() else ""
        seconds = float(header["seconds"]) * _OCR_SHARE
        found = extract_file(pieces[0], str(header["name"]), str(header["type"]), ocr_languages=languages, ocr_seconds=seconds)
    except ExtractionRefused as refused:
        found = Extraction(refused.state, refused.reason)
    except MemoryError:
        found = Extraction(ExtractionState.TOO_LARGE, "needs more memory than the limit")
    except Exception as error:  # noqa: BLE001 - readers of foreign formats raise anything; the file is broken, we are not
        found = Extraction(ExtractionState.BROKEN, f"{type(error).__name__}: {error}"[:500])
    pages = [(page.number, page.text, page.file) for page in found.pages]
    values = {"state": found.state, "reason": found.reason, "kind": found.kind, "pages": pages, "needs_ocr": found.needs_ocr}
    return values, ()


def _draw(header: dict[str, Any], pieces: list[bytes]) -> Answer:
    try:
        pages, png = draw_page(pieces[0], int(header["page"]), int(header["width"]))
        return {"state": ExtractionState.OK, "reason": "", "pages": pages}, (png,)
    except ExtractionRefused as refused:
        return {"state": refused.state, "reason": refused.reason, "pages": 0}, (b"",)
    except MemoryError:
        return {"state": ExtractionState.TOO_LARGE, "reason": "needs more memory than the limit", "pages": 0}, (b"",)
    except Exception as error:  # noqa: BLE001 - as above
        return {"state": ExtractionState.BROKEN, "reason": f"{type(error).__name__}: {error}"[:500], "pages": 0}, (b"",)


ANSWERS: Answers = {"extract": _extract, "draw": _draw}
