"""Messages as PDF files: what they show, and what hostile mail can't do."""

from __future__ import annotations

import base64
import io
import struct
import zipfile
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pypdfium2
import pytest

from archiver.exports.pdf.picture_size import picture_size
from archiver.exports.selection import PackageOptions, Selection
from archiver.exports.verifying import verify_export
from archiver.extract.pool import ChildFailed, Children
from connectors.base import RawMessage
from tests.integration.exports.conftest import ExportWorld, manifest_of

pytest.importorskip("typst")
ABOUT = {
    "id": "0190-an-id",
    "sha256": "ab" * 32,
    "copies": [{"mailbox": "ann@example.org", "folder": "INBOX", "flags": [], "labels": []}],
}


@pytest.fixture(scope="module")
def children() -> Iterator[Children]:
    with Children("archiver.exports.pdf.child", 1, 60.0) as made:
        yield made


def render(children: Children, raw: bytes) -> bytes:
    return children.ask("render", [raw], about=ABOUT, pictures=True)[1][0]


def text_of(pdf: bytes) -> str:
    document = pypdfium2.PdfDocument(pdf)
    pages = [page.get_textpage().get_text_bounded() for page in document]
    document.close()
    return "\n".join(pages).replace("\r", "").replace("\u200b", "").replace("\ufffe", "")


def png(width: int, height: int) -> bytes:
    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    rows = b"".join(b"\0" + b"\x20\x80\xc0" * width for _ in range(height))
    head = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head) + chunk(b"IDAT", zlib.compress(rows)) + chunk(b"IEND", b"")


def with_picture(picture: bytes, kind: str = "image/png") -> bytes:
    encoded = base64.encodebytes(picture)
    return (
        b'Subject: A picture\nMIME-Version: 1.0\nContent-Type: multipart/related; boundary="b"\n\n--b\n'
        b"Content-Type: text/html\n\n"
        b"<p>Before</p><img src=cid:p1><img src='http://127.0.0.1:9/tracker.png'><p>After</p>\n--b\n"
        b"Content-Type: " + kind.encode() + b"\nContent-Transfer-Encoding: base64\nContent-ID: <p1>\n"
        b'Content-Disposition: inline; filename="p.png"\n\n' + encoded + b"\n--b--\n"
    )


def test_header_text_and_attachments_are_shown(children: Children) -> None:
    raw = (
        "From: Änne <ann@example.org>\nTo: bob@example.org\nSubject: =?utf-8?q?Gr=C3=BC=C3=9Fe?=\n"
        "Date: Mon, 6 Jan 2020 10:00:00 +0100\nMessage-ID: <m1@example.org>\nMIME-Version: 1.0\n"
        'Content-Type: multipart/mixed; boundary="b"\n\n--b\nContent-Type: text/plain; charset=utf-8\n\nErste Zeile\n'
        "    eingerückt\n"
        "Привет שלום\n--b\nContent-Type: application/pdf\n"
        'Content-Disposition: attachment; filename="Rechnung.pdf"\n\n%PDF\n--b--\n'
    ).encode()
    pdf = render(children, raw)
    found = text_of(pdf)
    for part in ("Grüße", "ann@example.org", "2020-01-06 09:00:00 UTC", "m1@example.org", "Erste Zeile", "eingerückt"):
        assert part in found
    for part in ("Привет", "Attachments", "Rechnung.pdf", "ab" * 32, "ann@example.org INBOX", "1 / 1"):
        assert part in found
    assert render(children, raw) == pdf, "the same message gives the same bytes"


@pytest.mark.parametrize(
    "hostile",
    [
        '#panic("x")',
        '#read("/etc/passwd")',
        '#import "@preview/cetz:0.3.0"',
        "$ x $ *bold* _it_ `raw` @ref <label> = Heading",
        '"); #panic(); ("',
        "\\u{1F600} \\ // comment /* ]] }} ))",
        '{"lines": ["x"]}',
        "\u202e\u2066 right to left",
    ],
)
def test_mail_is_text_and_never_code(children: Children, hostile: str) -> None:
    raw = f"Subject: {hostile}\nFrom: {hostile} <a@b.org>\nContent-Type: text/plain; charset=utf-8\n\n{hostile}\n".encode()
    found = "".join(text_of(render(children, raw)).split())
    word = "".join(char for char in hostile if char.isascii() and not char.isspace())
    assert word in found
    assert "root:" not in found


def test_inline_pictures_are_shown_and_remote_ones_are_not_fetched(children: Children) -> None:
    pdf = render(children, with_picture(png(200, 100)))
    document = pypdfium2.PdfDocument(pdf)
    objects = [one for page in document for one in page.get_objects(max_depth=4) if one.type == 3]
    assert len(objects) == 1
    document.close()
    assert "Before" in text_of(pdf)
    assert "After" in text_of(pdf)


@pytest.mark.parametrize(
    "picture",
    [
        png(200, 100)[:60],
        b"\x89PNG\r\n\x1a\n" + b"\0\0\0\rIHDR" + struct.pack(">II", 60_000, 60_000) + b"\0" * 50,
        b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR" + struct.pack(">II", 4_000, 4_000) + b"\x08\x06\0\0\0" + b"\xff" * 500,
        b"\xff\xd8" + b"\xff\xc0\0\x11\x08" + struct.pack(">HH", 900, 900) + b"junk",
        b"<svg xmlns='http://www.w3.org/2000/svg'><image href='file:///etc/passwd'/></svg>",
    ],
)
def test_a_picture_that_is_none_does_not_stop_the_text(children: Children, picture: bytes) -> None:
    assert "Before" in text_of(render(children, with_picture(picture)))


def test_long_words_and_long_texts_end(children: Children) -> None:
    word = b"Subject: x\n\n" + b"x" * 200_000
    document = pypdfium2.PdfDocument(render(children, word))
    assert 10 < len(document) < 100
    document.close()
    lines = b"Subject: x\n\n" + b"a line\n" * 300_000
    found = render(children, lines)
    document = pypdfium2.PdfDocument(found)
    assert len(document) < 400
    document.close()
    assert "The text continues in the original message." in text_of(found)


def test_the_child_reaches_neither_network_nor_files(children: Children) -> None:
    with children.talk() as talk:
        told, _ = talk.ask("confinement")
    assert told, "as every child that reads untrusted mail"
    with pytest.raises(ChildFailed):
        children.ask("render", [b"x"], about={}, pictures=True)


def test_a_package_of_pdf_files(world: ExportWorld, monkeypatch: pytest.MonkeyPatch) -> None:
    """What can't be shown is named; everything else is in the package, which is checked as any other."""
    world.store((RawMessage("large", b"Subject: too large\n\n" + b"x" * 2000, folder="Large"),))
    monkeypatch.setattr("archiver.exports.converting._MESSAGE_BYTES", 1900)
    export_id = world.export(Selection(mailbox_id=world.one("SELECT id FROM mailboxes"), folder="Large"), PackageOptions("pdf"))
    first = world.export(
        Selection(message_ids=(world.one("SELECT id FROM messages WHERE size_bytes < 1900 LIMIT 1"),)), PackageOptions("pdf")
    )
    world.finish()
    assert (world.state(export_id), world.state(first)) == ("done", "done")
    _, line = manifest_of(world.volumes(export_id))
    assert (line["kind"], "no PDF was made of it: it has more than" in line["error"]) == ("missing", True)
    volumes = world.volumes(first)
    check = verify_export(volumes, world.key())
    assert (check.problems, check.messages, check.missing) == ([], 1, 0)
    _, listed, file = manifest_of(volumes)
    assert (listed["kind"], listed["shown_in"], file["kind"]) == ("listed", file["file"], "file")
    with zipfile.ZipFile(volumes[0]) as zipped:
        assert zipped.read(file["file"]).startswith(b"%PDF")
    changed(volumes[0], file["file"])
    assert "content was changed" in verify_export(volumes, world.key()).problems[0]


def changed(volume: Path, name: str) -> None:
    with zipfile.ZipFile(volume) as old:
        content: dict[Any, bytes] = {info: old.read(info) for info in old.infolist()}
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as new:
        for info, data in content.items():
            new.writestr(info, data + b" " if info.filename == name else data)
    volume.write_bytes(out.getvalue())


@pytest.mark.parametrize(
    ("data", "kind", "size"),
    [
        (png(3, 4), "image/png", (3, 4)),
        (b"GIF89a" + struct.pack("<HH", 5, 6), "image/gif", (5, 6)),
        (b"\xff\xd8\xff\xe0\0\x04ab\xff\xc2\0\x11\x08" + struct.pack(">HH", 7, 8), "image/jpeg", (8, 7)),
        (b"\xff\xd8" + b"\xff\xe0\0\0" * 3, "image/jpeg", None),
        (b"GIF8", "image/gif", None),
        (b"\x89PNG\r\n\x1a\n", "image/png", None),
        (b"<svg/>", "image/svg+xml", None),
    ],
)
def test_the_size_of_a_picture(data: bytes, kind: str, size: tuple[int, int] | None) -> None:
    assert picture_size(data, kind) == size
