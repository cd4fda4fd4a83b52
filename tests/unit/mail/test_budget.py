"""What one message may decode to, all its containers together."""

import base64
import tracemalloc
import zlib
from collections.abc import Callable

import pytest

from archiver.extract.archives import UnpackBudget as UnpackingBudget
from archiver.extract.archives import open_mail
from archiver.mail import limits
from archiver.mail.budget import DecodeBudget
from archiver.mail.message import Message, read_message, read_texts

MEGABYTE = 1 << 20


def element(tag: int, content: bytes) -> bytes:
    return bytes([tag, 0x84]) + len(content).to_bytes(4, "big") + content


def compressed(entity: bytes) -> bytes:
    """An S/MIME container (RFC 3274) around a MIME entity."""
    data = bytes.fromhex("06092a864886f70d010701") + b"\xa0" + b"\x80" + element(4, zlib.compress(entity, 9))
    return bytes.fromhex("060b2a864886f70d0109100109") + data


def part(content: bytes, kind: bytes = b"application/pkcs7-mime; name=smime.p7z") -> bytes:
    return b"Content-Type: " + kind + b"\nContent-Transfer-Encoding: base64\n\n" + base64.encodebytes(content)


def multipart(*parts: bytes) -> bytes:
    return b"Content-Type: multipart/mixed; boundary=b\n\n" + b"".join(b"--b\n" + one + b"\n" for one in parts) + b"--b--\n"


@pytest.mark.parametrize(
    ("size", "allowed"), [(0, MEGABYTE), (1000, MEGABYTE), (MEGABYTE, 20 * MEGABYTE), (1 << 40, 64 * MEGABYTE)]
)
def test_size_of_the_budget(size: int, allowed: int) -> None:
    assert DecodeBudget.of(size).left == allowed


def test_a_compressed_note_is_read() -> None:
    message = read_message(part(compressed(b"Content-Type: text/plain\n\n" + b"tea at five\n" * 5000)))
    assert message.text.startswith("tea at five")
    assert message.defects == ("no_date",)


def test_compressed_bombs_side_by_side_and_inside_each_other() -> None:
    """24 KB of these took 2.1 GiB."""
    bomb = compressed(b"Content-Type: text/plain\n\n" + bytes(4 * MEGABYTE))
    nested = compressed(multipart(part(bomb), part(compressed(multipart(part(bomb), part(bomb))))))
    raw = multipart(*[part(bomb)] * 2, *[part(nested)] * 2, b"\nwords\n")
    tracemalloc.start()
    message = read_message(raw)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 4 * MEGABYTE + 20 * len(raw)
    assert "decodes_to_too_much" in message.defects
    assert message.text.strip() == "words"
    assert message.attachments[0].name == "smime.p7z"  # what is not opened stays a file


def test_text_that_is_refused_stays_a_file() -> None:
    raw = multipart(part(b"x" * 1000, b"text/plain"))
    message = read_message(raw, DecodeBudget(100))
    assert message.text == ""
    assert [file.content for file in message.attachments] == [b"x" * 1000]
    assert "decodes_to_too_much" in message.defects


def test_mail_in_an_archive_uses_up_the_budget_of_the_archive() -> None:
    raw = part(compressed(b"Content-Type: text/plain\n\n" + b"tea " * 5000))
    budget = UnpackingBudget(bytes_left=100_000)
    message, _ = open_mail(raw, budget)
    assert message.text.startswith("tea")
    assert budget.bytes_left < 100_000 - 20_000
    message, _ = open_mail(raw, UnpackingBudget(bytes_left=1000))
    assert message.text == ""


def test_uuencoded_lines_that_promise_more_than_they_hold() -> None:
    raw = b"Content-Type: text/plain\n\nbegin 644 zeros\n" + b"M\n" * 500_000 + b"end\n"
    assert sum(file.size_bytes for file in read_message(raw).attachments) <= 3 * len(raw)


@pytest.mark.parametrize("read", [read_message, lambda raw: read_texts([raw])[0]], ids=["message", "texts"])
def test_of_a_huge_message_only_the_beginning_is_read(read: Callable[[bytes], Message]) -> None:
    filler = b"--b\nContent-Type: application/octet-stream\n\n" + bytes(limits.MESSAGE_BYTES)
    raw = b"Content-Type: multipart/mixed; boundary=b\n\n--b\n\nbefore\n" + filler + b"\n--b\n\nafter\n--b--\n"
    message = read(raw)
    assert message.text.strip() == "before"
    assert "message_too_large" in message.defects
    assert message.attachments[0].size_bytes < limits.MESSAGE_BYTES
