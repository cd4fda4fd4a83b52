"""Pictures and scans: what says that it needs OCR, and what `tesseract` is asked for. A script stands in for it on the PATH."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from archiver.extract import ExtractionState, limits
from archiver.extract.extractor import Extractor
from archiver.extract.ocr import installed_languages, is_available
from archiver.extract.reading import extract_file
from tests.support.pdf_files import pdf_with_scans

MIXED = ("zebra on one", None, "zebra on three", None)
PICTURE = b"\x89PNG\r\n\x1a\n" + bytes(limits.OCR_IMAGE_BYTES)
SCRIPT = """#!/bin/sh
if [ "$1" = --list-langs ]; then printf 'List of available languages (2):\\neng\\ndeu\\n'; exit; fi
[ -s "$1" ] || exit 3
if [ -e "$0.slow" ]; then sleep 30; fi
if [ -e "$0.broken" ]; then echo 'no such language' >&2; exit 1; fi
echo "walrus in $4"
"""


@pytest.fixture
def tesseract(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    program = tmp_path / "tesseract"
    program.write_text(SCRIPT)
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    is_available.cache_clear()
    installed_languages.cache_clear()
    yield program
    is_available.cache_clear()
    installed_languages.cache_clear()


def test_without_ocr_scans_say_so() -> None:
    with Extractor(processes=1) as extractor:
        mixed = extractor.extract(pdf_with_scans(MIXED))
        assert (mixed.state, mixed.needs_ocr) == (ExtractionState.OK, True)
        assert mixed.reason.startswith("2 of 4 pages have no text")
        assert [page.number for page in mixed.pages] == [1, 3]
        scan = extractor.extract(pdf_with_scans([None, None]))
        assert (scan.state, scan.needs_ocr) == (ExtractionState.EMPTY, True)
        text = extractor.extract(pdf_with_scans(["zebra", "zebra"]))
        assert (text.state, text.reason, text.needs_ocr) == (ExtractionState.OK, "", False)
        picture = extractor.extract(PICTURE)
        assert (picture.state, picture.needs_ocr) == (ExtractionState.EMPTY, True)
        assert not extractor.extract(PICTURE[:1000]).needs_ocr, "a logo"


@pytest.mark.usefixtures("tesseract")
def test_scanned_pages_keep_their_numbers() -> None:
    found = extract_file(pdf_with_scans(MIXED), "scan.pdf", "", ocr_languages="eng+deu")
    assert (found.state, found.reason, found.needs_ocr) == (ExtractionState.OK, "", False)
    texts = {page.number: page.text for page in found.pages}
    assert texts == {1: "zebra on one", 2: "walrus in eng+deu", 3: "zebra on three", 4: "walrus in eng+deu"}
    assert extract_file(PICTURE, "", "", ocr_languages="eng").text == "walrus in eng"
    assert installed_languages() == ("eng", "deu")


def test_an_error_does_not_lose_the_text_beside_the_pictures(tesseract: Path) -> None:
    Path(f"{tesseract}.broken").touch()
    found = extract_file(pdf_with_scans(MIXED), "scan.pdf", "", ocr_languages="xyz")
    assert (found.state, found.reason) == (ExtractionState.BROKEN, "tesseract: no such language")
    assert [page.number for page in found.pages] == [1, 3]


def test_time_is_limited(tesseract: Path) -> None:
    found = extract_file(pdf_with_scans(MIXED), "scan.pdf", "", ocr_languages="eng", ocr_seconds=-1)
    assert "2 of 2 pages" in found.reason
    assert [page.number for page in found.pages] == [1, 3]
    Path(f"{tesseract}.slow").touch()
    assert extract_file(PICTURE, "", "", ocr_languages="eng", ocr_seconds=1).state is ExtractionState.TIMEOUT
