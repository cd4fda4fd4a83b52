"""A scan in a mail, read by a real tesseract: switched on later, it makes the words of each page findable."""

from __future__ import annotations

import shutil

import pytest

from archiver.extract.extractor import Extractor
from tests.integration.indexing.conftest import IndexWorld
from tests.integration.indexing.test_indexing import id_of, with_file
from tests.integration.indexing.test_rereading import read, requeue
from tests.support.pdf_files import scanned

pytestmark = pytest.mark.skipif(shutil.which("tesseract") is None, reason="tesseract is not installed (scripts/test-packages)")

SCAN = with_file(1, scanned(["The heron contract", "ends in September"]), "scan.pdf", "application/pdf")


def test_a_scan_is_found_by_its_words_and_pages_once_ocr_is_on(at: IndexWorld) -> None:
    at.put(SCAN)
    at.index()
    read(at, None)
    assert at.find("heron") == set()
    assert at.value("SELECT search_state FROM messages") == "partial"
    assert requeue(at, with_ocr=True) == 1
    with Extractor(1, ocr_languages="eng", seconds=120) as ocr:
        read(at, ocr)
    assert at.find("heron") == at.find("September") == {id_of(SCAN)}
    (entry,) = at.documents()[id_of(SCAN)]["pages"]
    assert entry["numbers"] == [1, 2]
    assert at.value("SELECT search_state FROM messages") == "full"
    assert requeue(at, with_ocr=True) == 0
    at.assert_agrees()
