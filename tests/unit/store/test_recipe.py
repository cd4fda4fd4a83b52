"""Single instance: whatever a message looks like, putting it together again gives the very same bytes."""

import base64
import random
from pathlib import Path

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from archiver.store import base64_lines
from archiver.store.base64_lines import Lines
from archiver.store.content import MemoryContent, Spooled
from archiver.store.parts import MIN_PART_BYTES, find_cuts
from archiver.store.recipe import Literal, Recipe, cut_message, part_pieces
from tests.support.store_world import mail


def put_together(message: bytes) -> bytes:
    cut = cut_message(MemoryContent(message))
    if cut is None:
        return message
    data = b"".join(cut.pieces())
    assert len(data) == cut.size
    recipe, at = Recipe.decode(data)
    assert recipe.message_length == len(message)
    parts = {sha256: b"".join(content.pieces()) for sha256, content in cut.parts}
    result = b""
    for step in recipe.steps:
        if isinstance(step, Literal):
            result += data[at : at + step.length]
            at += step.length
        else:
            result += b"".join(part_pieces(step, [parts[step.sha256]]))
    return result


def base64_text(data: bytes, line: int, eol: bytes) -> bytes:
    text = base64.b64encode(data)
    return eol.join(text[at : at + line] for at in range(0, len(text), line)) if line else text


def random_bytes(least: int, most: int) -> st.SearchStrategy[bytes]:
    """Large ones cost Hypothesis too much; a seed is enough."""
    return st.builds(lambda seed, size: random.Random(seed).randbytes(size), st.integers(0, 1 << 32), st.integers(least, most))


EOLS = st.sampled_from([b"\r\n", b"\n", b"\r"])
PIECES = st.one_of(
    st.binary(max_size=300),
    st.sampled_from([b"--b", b"--b--", b"--inner", b"--inner--", b"--bb", b"", b"--", b"\0\0", b"From nobody", b">From x"]),
    st.sampled_from(
        [
            b'Content-Type: multipart/mixed; boundary="b"',
            b"Content-Type: multipart/mixed; boundary=inner; charset=x",
            b"Content-Transfer-Encoding: base64",
            b"content-transfer-encoding:BASE64",
            b"Content-Type: message/rfc822",
            b"Content-Transfer-Encoding: quoted-printable",
        ]
    ),
    st.builds(base64_text, random_bytes(12_500, 14_000), st.sampled_from([0, 60, 64, 72, 76, 77]), EOLS),
    st.builds(lambda piece, times: piece * times, st.binary(min_size=1, max_size=80), st.integers(1, 400)),
)


@given(st.lists(st.tuples(PIECES, EOLS), max_size=24))
@example([])
@settings(max_examples=300, deadline=None)
def test_any_message_comes_back_byte_for_byte(lines: list[tuple[bytes, bytes]]) -> None:
    message = b"".join(piece + eol for piece, eol in lines)
    assert put_together(message) == message


@given(
    random_bytes(12_400, 20_000),
    st.sampled_from([4, 60, 64, 72, 76, 996]),
    st.sampled_from([b"\r\n", b"\n"]),
    st.sampled_from([b"", b"\r\n", b"\n", b"\n\n", b" "]),
)
@settings(max_examples=60, deadline=None)
def test_base64_parts_are_decoded_when_that_is_exact(data: bytes, line: int, eol: bytes, tail: bytes) -> None:
    head = b'Content-Type: multipart/mixed; boundary="b"' + eol * 2 + b"--b" + eol
    head += b"Content-Transfer-Encoding: base64" + eol * 2
    message = head + base64_text(data, line, eol) + tail + eol + b"--b--" + eol
    cut = cut_message(MemoryContent(message))
    assert cut is not None
    assert put_together(message) == message
    if tail != b" ":
        assert [b"".join(content.pieces()) for _, content in cut.parts] == [data]


@pytest.mark.parametrize(
    "spoil",
    [
        lambda text: text[:500] + b"!" + text[501:],
        lambda text: text[:500] + b"=" + text[501:],
        lambda text: text.replace(b"\r\n", b"\n", 1),
        lambda text: text[:77] + b" " + text[77:],
        lambda text: text[:-1],
        lambda text: text[:100] + b"\0" + text[101:],
        lambda text: text + b"\r\nQUJD",
    ],
)
def test_base64_that_can_not_be_made_again_is_kept_as_it_is(spoil: object) -> None:
    text = spoil(base64_text(bytes(range(256)) * 70, 76, b"\r\n"))  # type: ignore[operator]
    message = b"Content-Transfer-Encoding: base64\r\n\r\n" + text
    cuts = find_cuts(MemoryContent(message))
    assert [cut.lines for cut in cuts] == [None]
    assert put_together(message) == message


def test_non_canonical_padding_bits_are_kept_as_they_are() -> None:
    text = base64_text(b"x" * 20_000, 76, b"\n")
    assert text.endswith(b"eHg=")
    message = b"Content-Transfer-Encoding: base64\n\n" + text[:-2] + b"h="  # decodes alike, encodes differently
    assert [cut.lines for cut in find_cuts(MemoryContent(message))] == [None]
    assert put_together(message) == message


def test_the_same_attachment_is_one_part_whoever_sends_it() -> None:
    attachment = bytes(range(256)) * 100
    first = cut_message(MemoryContent(mail(1, attachment=attachment)))
    second = cut_message(MemoryContent(mail(2, attachment=attachment, eol="\n")))
    assert first is not None
    assert second is not None
    assert [sha256 for sha256, _ in first.parts] == [sha256 for sha256, _ in second.parts]


def test_small_messages_are_stored_whole() -> None:
    assert cut_message(MemoryContent(b"")) is None
    assert cut_message(MemoryContent(b"x" * (MIN_PART_BYTES - 1))) is None


def test_attachments_in_a_forwarded_message_are_found() -> None:
    inner = mail(1, attachment=bytes(range(256)) * 100, eol="\n")
    outer = b'Content-Type: multipart/mixed; boundary="out"\n\n--out\nContent-Type: message/rfc822\n\n' + inner + b"\n--out--\n"
    cut = cut_message(MemoryContent(outer))
    assert cut is not None
    assert [place.lines for place in cut.cuts] == [Lines(76, "lf")]
    assert put_together(outer) == outer


def test_a_spooled_message_is_cut_as_the_same_in_memory(tmp_path: Path) -> None:
    message = mail(1, attachment=bytes(range(251)) * 40_000)
    path = tmp_path / "spooled"
    path.write_bytes(message)
    with Spooled(path) as raw:
        spooled, held = cut_message(raw), cut_message(MemoryContent(message))
        assert spooled is not None
        assert held is not None
        assert spooled.head == held.head
        assert [b"".join(content.pieces()) for _, content in spooled.parts] == [content.data for _, content in held.parts]  # type: ignore[attr-defined]


@given(st.binary(max_size=4000), st.sampled_from([0, 4, 8, 76]), st.lists(st.integers(1, 50), min_size=1, max_size=5))
def test_encoding_does_not_depend_on_how_the_bytes_arrive(data: bytes, line: int, sizes: list[int]) -> None:
    lines = Lines(line, "crlf")
    pieces: list[bytes] = []
    at = 0
    while at < len(data):
        size = sizes[len(pieces) % len(sizes)]
        pieces.append(data[at : at + size])
        at += size
    text = b"".join(base64_lines.encode(pieces, lines))
    assert text == base64_text(data, line, b"\r\n")
    assert len(text) == base64_lines.encoded_length(len(data), lines)


def test_every_message_of_the_corpus_comes_back(corpus: Path) -> None:
    files = [path for path in (corpus / "public").rglob("*") if path.is_file()]
    assert len(files) > 500
    for path in files:
        message = path.read_bytes()
        assert put_together(message) == message, path
