"""Attachments are read once more when OCR is switched on, or when a better extractor has come; until then nothing is lost."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

from sqlalchemy import text

from archiver.extract import EXTRACTOR_VERSION, Extraction, ExtractionState, TextPage
from archiver.extract.extractor import Extractor
from archiver.indexing.attachments import AttachmentTexts
from archiver.indexing.rereading import are_left, requeue_attachments
from tests.integration.indexing.conftest import IndexWorld
from tests.integration.indexing.test_indexing import id_of, with_file, word_file
from tests.support.pdf_files import pdf_with_scans


class FakeOcr(Extractor):
    """In place of tesseract, which few machines have."""

    def __init__(self, found: Extraction) -> None:
        super().__init__(1)
        self.found = found
        self.asked: list[str] = []

    def extract(
        self,
        data: Any,
        name: str = "",
        declared_type: str = "",
        *,
        seconds: float = math.inf,
        tick: Callable[[], None] = lambda: None,
    ) -> Extraction:
        self.asked.append(name)
        tick()
        return self.found


def requeue(at: IndexWorld, *, with_ocr: bool) -> int:
    with at.engine.begin() as connection:
        left = are_left(connection, with_ocr=with_ocr)
        count = requeue_attachments(connection, with_ocr=with_ocr)
        assert left == bool(count)
        return count


def read(at: IndexWorld, ocr: Extractor | None) -> None:
    scratch: Path = at.folder.parent / "scratch"
    with Extractor(processes=1) as extractor:
        AttachmentTexts(at.engine, at.archive, at.server, extractor, scratch, ocr).run()


MIXED = with_file(1, pdf_with_scans(["zebra", None]), "scan.pdf", "application/pdf")
PLAIN = with_file(2, word_file("the walrus in the file"), "letter.docx", "application/msword")


def test_scans_are_read_when_ocr_is_switched_on(at: IndexWorld) -> None:
    at.put(MIXED, PLAIN)
    at.index()
    read(at, None)
    assert at.value("SELECT search_state FROM messages WHERE id = :id", id=id_of(MIXED)) == "partial"
    assert requeue(at, with_ocr=False) == 0
    assert requeue(at, with_ocr=True) == 1
    assert at.find("zebra") == {id_of(MIXED)}, "what was found before is found while it waits"
    ocr = FakeOcr(Extraction(ExtractionState.OK, "", (TextPage(1, "zebra"), TextPage(2, "narwhal")), "pdf"))
    read(at, ocr)
    assert ocr.asked == ["scan.pdf"]
    assert at.find("narwhal") == {id_of(MIXED)}
    (entry,) = at.documents()[id_of(MIXED)]["pages"]
    assert entry["numbers"] == [1, 2]
    assert at.value("SELECT search_state FROM messages WHERE id = :id", id=id_of(MIXED)) == "full"
    assert requeue(at, with_ocr=True) == 0
    at.assert_agrees()


def test_ocr_that_fails_loses_no_text(at: IndexWorld) -> None:
    at.put(MIXED)
    at.index()
    read(at, None)
    assert requeue(at, with_ocr=True) == 1
    read(at, FakeOcr(Extraction(ExtractionState.TIMEOUT, "took more than 300 seconds")))
    assert at.find("zebra") == {id_of(MIXED)}
    assert at.value("SELECT text_reason FROM attachments") == "took more than 300 seconds"
    assert requeue(at, with_ocr=True) == 0, "it is not tried for ever"


def test_a_picture_in_many_messages_is_a_logo(at: IndexWorld) -> None:
    at.put(*(with_file(number, pdf_with_scans([None]), "logo.pdf", "application/pdf") for number in range(60)))
    at.index()
    read(at, None)
    with at.engine.begin() as connection:
        assert requeue_attachments(connection, with_ocr=True) == 0


def test_what_an_older_extractor_read_is_read_once_more(at: IndexWorld) -> None:
    at.put(PLAIN)
    at.index()
    read(at, None)
    assert requeue(at, with_ocr=False) == 0
    with at.engine.begin() as connection:
        connection.execute(text("UPDATE attachments SET extractor_version = :old"), {"old": EXTRACTOR_VERSION - 1})
    assert requeue(at, with_ocr=False) == 1
    assert at.find("walrus") == {id_of(PLAIN)}
    read(at, None)
    assert at.value("SELECT extractor_version FROM attachments") == EXTRACTOR_VERSION
    assert requeue(at, with_ocr=False) == 0
    at.assert_agrees()
