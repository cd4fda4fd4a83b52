"""What fuzzing found, read again in a process with limits; and that the fuzzer itself works."""

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.fuzz.chance import GivenChance, RandomChance
from tests.fuzz.grammar import Grammar
from tests.fuzz.limited import Reader
from tests.fuzz.mutations import mutated

FOUND = sorted((Path(__file__).parents[2] / "fuzz" / "found").glob("*.eml"))
CORPUS = sorted((Path(__file__).parents[2] / "corpus").glob("*.eml"))


@pytest.fixture(scope="module")
def reader() -> Iterator[Reader]:
    made = Reader()
    yield made
    made.close()


@pytest.mark.parametrize("path", FOUND, ids=lambda path: path.stem)
def test_what_was_found_is_read(path: Path, reader: Reader) -> None:
    assert reader.complaint(path.read_bytes()) == ""


def test_a_hundred_messages_of_the_grammar(reader: Reader) -> None:
    for seed in range(100):
        assert reader.complaint(Grammar(RandomChance(seed)).message()) == "", f"seed {seed}"


def test_mutated_mail(reader: Reader) -> None:
    seeds = [path.read_bytes() for path in CORPUS]
    for seed in range(50):
        assert reader.complaint(mutated(RandomChance(seed), seeds)) == "", f"seed {seed}"


def test_the_grammar_reaches_all_that_it_should() -> None:
    made = b"".join(Grammar(RandomChance(seed)).message() for seed in range(300)).lower()
    wanted = (
        b"multipart/",
        b"message/rfc822",
        b"pkcs7",
        b"ms-tnef",
        b"text/calendar",
        b"text/html",
        b"base64",
        b"quoted-printable",
    )
    assert [piece for piece in wanted if piece not in made] == []


def test_the_bytes_of_a_fuzzer_steer_the_grammar() -> None:
    assert Grammar(GivenChance(b"")).message() == Grammar(GivenChance(b"\0" * 50)).message()
    assert len({Grammar(GivenChance(bytes([n]) * 200)).message() for n in range(50)}) > 20


def test_complaints_name_what_is_wrong() -> None:
    """An exception, an endless loop, a full memory and a crash are all noticed."""
    for code, expected in (
        ("raise ValueError('on purpose')", "on purpose"),
        ("bytearray(8 << 30)", "MemoryError"),
        ("import ctypes; ctypes.string_at(1)", "SIGSEGV"),
    ):
        program = f"import sys, tests.fuzz.reading as r\ndef bad(raw):\n {code}\nr.read_all = bad\nsys.argv = ['']\nr.main()"
        hostile = Reader((sys.executable, "-c", program))
        assert expected in hostile.complaint(b"mail")
        hostile.close()
