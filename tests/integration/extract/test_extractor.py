"""The pool: limits that hold, children that die with their parent, and callers that do not notice."""

import io
import signal
import struct
import subprocess
import sys
import textwrap
import threading
import zipfile
import zlib
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest

from archiver.extract import Extraction, ExtractionState, Picture, limits
from archiver.extract.extractor import Extractor
from tests.browser.mails import one_page_pdf
from tests.support.waiting import DEADLINE_SECONDS, eventually


def deflated(content: bytes) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED, compresslevel=1) as archive:
        archive.writestr("a.txt", content)
    return buffer.getvalue()


def bomb(levels: int, copies: int, size: int) -> bytes:
    """A zip of zips of zips."""
    content = deflated(b"\0" * size)
    for _ in range(levels):
        buffer = io.BytesIO()
        with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
            for number in range(copies):
                archive.writestr(f"{number}.zip", content)
        content = buffer.getvalue()
    return content


def office_bomb() -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED, compresslevel=1) as archive:
        archive.writestr("[Content_Types].xml", "<Types/>")
        with archive.open("word/document.xml", "w", force_zip64=True) as part:
            for _ in range(limits.DOCUMENT_BYTES // (16 << 20) + 2):
                part.write(b" " * (16 << 20))
    return buffer.getvalue()


ENTITIES = "".join(f'<!ENTITY e{n} "{f"&e{n - 1};" * 10 if n else "zebra"}">' for n in range(12))


def entity_bomb() -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("[Content_Types].xml", "<Types/>")
        archive.writestr(
            "word/document.xml",
            f'<?xml version="1.0"?><!DOCTYPE d [{ENTITIES}]><w:document xmlns:w="http://schemas.openxmlformats.org/wordprocessingml/'
            '2006/main"><w:body><w:p><w:r><w:t>&e11;</w:t></w:r></w:p></w:body></w:document>',
        )
    return buffer.getvalue()


def pdf_bomb() -> bytes:
    """A page tree that contains itself, and a page with more than enough operators."""
    return (
        b"%PDF-1.4\n1 0 obj << /Type /Catalog /Pages 2 0 R >> endobj\n"
        b"2 0 obj << /Type /Pages /Kids [2 0 R 2 0 R 3 0 R] /Count 1000000 >> endobj\n"
        b"3 0 obj << /Type /Page /Parent 2 0 R /Contents 4 0 R >> endobj\n"
        b"4 0 obj << /Length 10000000 >> stream\n" + b"q " * 500_000 + b"\nendstream endobj\ntrailer << /Root 1 0 R >>"
    )


def nested_mail(levels: int) -> bytes:
    return b"From: a@example.org\nSubject: deep\nContent-Type: message/rfc822\n\n" * levels + b"Subject: last\n\nzebra\n"


BOMBS: dict[str, tuple[Callable[[], bytes], set[ExtractionState]]] = {
    "zip": (lambda: deflated(b"\0" * (limits.ARCHIVE_BYTES + 1)), {ExtractionState.TOO_LARGE}),
    "zip of zips": (lambda: bomb(3, 16, 8 << 20), {ExtractionState.TOO_LARGE}),
    "office": (office_bomb, {ExtractionState.TOO_LARGE}),
    "entities": (entity_bomb, {ExtractionState.OK, ExtractionState.EMPTY, ExtractionState.BROKEN, ExtractionState.TOO_LARGE}),
    "pdf": (pdf_bomb, {ExtractionState.EMPTY, ExtractionState.BROKEN, ExtractionState.TOO_LARGE, ExtractionState.TIMEOUT}),
    "mail in mail": (lambda: nested_mail(50), {ExtractionState.OK}),
}


@pytest.mark.parametrize("name", BOMBS)
def test_bombs_stay_inside_the_limits(name: str) -> None:
    make, states = BOMBS[name]
    with Extractor(processes=1, seconds=DEADLINE_SECONDS) as extractor:
        extraction = extractor.extract(make())
        assert extraction.state in states, extraction.reason
        assert len(extraction.text) <= limits.TEXT_CHARS
        assert extractor.extract(b"zebra lives on").text == "zebra lives on"


def test_text_beyond_the_limit_is_cut_and_said() -> None:
    with Extractor(processes=1) as extractor:
        extraction = extractor.extract(b"zebra " * (limits.TEXT_CHARS // 5))
    assert extraction.state is ExtractionState.OK
    assert len(extraction.text) == limits.TEXT_CHARS
    assert "limit" in extraction.reason


def children() -> list[psutil.Process]:
    return [child for child in psutil.Process().children() if "archiver.extract.child" in child.cmdline()]


def test_a_late_child_is_killed_and_replaced() -> None:
    with Extractor(processes=1, seconds=DEADLINE_SECONDS) as extractor:
        assert extractor.extract(b"zebra").state is ExtractionState.OK
        (child,) = children()
        child.suspend()
        extractor.children.seconds = 0.5
        assert extractor.extract(b"zebra").state is ExtractionState.TIMEOUT
        extractor.children.seconds = DEADLINE_SECONDS
        assert extractor.extract(b"zebra").state is ExtractionState.OK
        assert not child.is_running()


def test_a_crash_is_survived() -> None:
    with Extractor(processes=1) as extractor:
        assert extractor.extract(b"zebra").state is ExtractionState.OK
        (child,) = children()
        child.suspend()
        results: list[Extraction] = []
        caller = threading.Thread(target=lambda: results.append(extractor.extract(b"zebra " * 100_000)))
        caller.start()
        child.send_signal(signal.SIGSEGV)
        child.resume()
        caller.join(DEADLINE_SECONDS)
        assert [result.state for result in results] in ([ExtractionState.BROKEN], [ExtractionState.OK])
        assert extractor.extract(b"zebra").state is ExtractionState.OK
        assert children() != [child]


def test_memory_is_limited() -> None:
    code = textwrap.dedent("""
        import resource
        from archiver.extract import serving
        serving.limit_memory(serving._open_sizes())
        try:
            block = bytearray(2 << 30)
        except MemoryError:
            print("refused")
    """)
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert result.stdout.strip() == "refused"


def test_many_threads_share_a_few_children() -> None:
    texts = [f"zebra number {n}" for n in range(40)]
    found: dict[str, str] = {}
    with Extractor(processes=2) as extractor:
        threads = [
            threading.Thread(target=lambda text=text: found.update({text: extractor.extract(text.encode()).text}))
            for text in texts
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(DEADLINE_SECONDS)
        assert len(children()) <= 2
    assert found == {text: text for text in texts}
    assert children() == []


def test_children_die_with_their_parent() -> None:
    code = textwrap.dedent("""
        import os, psutil, time
        from archiver.extract.extractor import Extractor
        extractor = Extractor(processes=1)
        extractor.extract(b"zebra")
        print(psutil.Process().children()[0].pid, flush=True)
        time.sleep(600)
    """)
    parent = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True)
    assert parent.stdout is not None
    child = int(parent.stdout.readline())
    assert psutil.pid_exists(child)
    parent.kill()
    parent.wait()
    parent.stdout.close()
    eventually(lambda: has_ended(child), what="the end of the child with its parent")


def has_ended(pid: int) -> bool:
    try:
        return psutil.Process(pid).status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True


def test_secrets_do_not_reach_the_child(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STORAGE_ENCRYPTION_KEY", "1:secret")
    with Extractor(processes=1) as extractor:
        extractor.extract(b"zebra")
        (child,) = children()
        assert "STORAGE_ENCRYPTION_KEY" not in child.environ()


def test_a_closed_extractor_refuses(tmp_path: Path) -> None:
    path = tmp_path / "a"
    path.write_bytes(b"zebra")
    extractor = Extractor(processes=1)
    assert extractor.extract(path).text == "zebra"
    extractor.close()
    with pytest.raises(OSError, match="closed"):
        extractor.extract(path)


def test_a_page_is_drawn_as_a_picture() -> None:
    with Extractor(processes=1) as extractor:
        data = one_page_pdf("Marsupial invoice")
        assert extractor.draw(data, 0) == Picture(ExtractionState.OK, "", pages=1)
        picture = extractor.draw(data, 1)
        assert (picture.state, picture.pages, picture.png[:8]) == (ExtractionState.OK, 1, b"\x89PNG\r\n\x1a\n")
        width, height = struct.unpack(">II", picture.png[16:24])
        assert (width, height) == (limits.PICTURE_WIDTH, 1605)  # 612 by 792 points
        rows = zlib.decompress(picture.png[41 : 41 + int.from_bytes(picture.png[33:37], "big")])
        assert len(set(rows)) > 10, "there is something on it"
        assert extractor.draw(data, 2) == Picture(ExtractionState.OK, "", pages=1)
        assert extractor.draw(b"%PDF-1.4 and nothing else", 1).state is ExtractionState.BROKEN
        assert extractor.extract(b"still there", "a.txt").text == "still there"
