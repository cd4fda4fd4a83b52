"""What the process that archives does with every byte itself, outside of any child: the canonical hash, and cutting parts.

Most of it happens in C, where no line of Python is counted. So the bytes are counted that are looked at, the memory that is
held, and at the end the processor time of many megabytes, with a limit that only far more than linear work passes.
"""

import os
import resource
import subprocess
import sys
import tracemalloc
from collections import deque
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from archiver.mail.canonical import Canonical, canonical_sha256
from archiver.store.content import MemoryContent, Spooled
from archiver.store.parts import MIN_PART_BYTES, find_cuts
from archiver.store.recipe import cut_message
from tests.unit.growth.steps import grows_faster

LIMIT = 4.0  # for three times the size
START = b"Content-Type: multipart/mixed; boundary=b\n\n" + bytes(MIN_PART_BYTES)
TAIL = b"x" * 60_000
"""A stretch without a blank line."""
DELIMITERS = {
    "nothing after it": b"\n--b",
    "an unfinished header": b"\n--b\nX",
    "carriage returns": b"\n--b\r",
    "an empty header": b"\n--b\n\n",
    "a header": b"\n--b\nX: y\n\n",
    "mail inside": b"\n--b\nContent-Type: message/rfc822\n\n",
    "mail inside mail": b"\n--b" + b"\nContent-Type: message/rfc822\n\n" * 60,
    "mail inside without an end": (b"\n--b\nContent-Type: message/rfc822\n\n" * 40 + TAIL),
    "other boundaries": b"\n--b\nboundary=c\n\n\n--c\n",
    "base64": b"\n--b\nContent-Transfer-Encoding: base64\n\n" + b"QUJD" * 6000 + b"\n",
    "almost base64": b"\n--b\nContent-Transfer-Encoding: base64\n\n" + b"QUJD" * 6000 + b"!\n",
    "dashes": b"\n--",
}


class CountedBytes:
    """A message that knows how much of it was read."""

    def __init__(self, data: bytes) -> None:
        self._data, self.size, self.taken = data, len(data), 0

    def read(self, start: int, end: int) -> bytes:
        piece = self._data[start:end]
        self.taken += len(piece)
        return piece


@pytest.mark.parametrize("name", DELIMITERS)
def test_cutting_looks_at_each_byte_a_few_times(name: str) -> None:
    """And at a short header's length more for each delimiter."""
    unit, taken = DELIMITERS[name], []
    for count in (2_000, 6_000):
        raw = CountedBytes(START + unit * max(5, count // max(1, len(unit) // 40)))
        find_cuts(raw)
        delimiters = raw.read(0, raw.size).count(b"\n--")
        taken.append(raw.taken)
        assert raw.taken < 12 * raw.size + 2100 * delimiters, f"{raw.taken:,} of {raw.size:,} bytes"
    assert taken[1] < LIMIT * taken[0]


@pytest.mark.parametrize("name", DELIMITERS)
def test_cutting_is_linear(name: str) -> None:
    unit = DELIMITERS[name]

    def work(count: int) -> Callable[[], object]:
        return lambda: cut_message(MemoryContent(START + unit * count))

    assert grows_faster(work, max(5, 4_000 // len(unit))) < LIMIT


CANONICAL = {
    "a header without an end": b"X: y\n",
    "fields that are left out": b"X-Mozilla-Status: 1\n",
    "long fields that are left out": b"X-Mozilla-Status: 1\n" + b" folded\n" * 20,
    "almost fields that are left out": b"x-mozilla-",
    "line ends": b"\n",
    "carriage returns": b"\r",
    "both": b"\r\n",
    "quoted From": b"\n>From x",
    "quotes": b">",
    "quotes on lines": b"\n>>>>>>>>",
    "one line": b"x",
}


@pytest.mark.parametrize("name", CANONICAL)
@pytest.mark.parametrize("piece", [1, 7, 4096])
@pytest.mark.parametrize("header", [b"", b"A: b\n\nbody"])
def test_the_canonical_hash_is_linear(name: str, piece: int, header: bytes) -> None:
    unit = CANONICAL[name]

    def work(count: int) -> Callable[[], object]:
        data = header + unit * count
        return lambda: hashed(data[at : at + piece] for at in range(0, len(data), piece))

    assert grows_faster(work, 2_000 // len(unit)) < LIMIT
    data = header + unit * 500
    assert hashed(data[at : at + piece] for at in range(0, len(data), piece)) == canonical_sha256(data)


def hashed(pieces: Iterator[bytes]) -> bytes:
    canonical = Canonical()
    deque(map(canonical.feed, pieces), 0)
    return canonical.digest()


MEGABYTES = 48


@pytest.mark.slow
@pytest.mark.parametrize("name", CANONICAL)
def test_the_canonical_hash_holds_a_header_at_most(name: str) -> None:
    unit = CANONICAL[name]
    megabyte = unit * ((1 << 20) // len(unit))
    assert peak(lambda: hashed(megabyte for _ in range(MEGABYTES))) < 40 << 20  # ten times the longest header


@pytest.mark.slow
@pytest.mark.parametrize("name", DELIMITERS)
def test_cutting_a_large_file_holds_little_of_it(name: str, tmp_path: Path) -> None:
    unit = DELIMITERS[name]
    path = tmp_path / "large.eml"
    with path.open("wb") as file:
        file.write(START)
        for _ in range(MEGABYTES):
            file.write(unit * max(1, (1 << 20) // len(unit)))
    with Spooled(path) as raw:
        assert peak(lambda: cut_message(raw)) < 24 << 20


def peak(work: Callable[[], object]) -> int:
    tracemalloc.start()
    try:
        work()
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


def _limited() -> None:
    resource.setrlimit(resource.RLIMIT_CPU, (20, 20))
    os.nice(5)


_WORK = """
import sys
from pathlib import Path
from archiver.mail.canonical import Canonical, canonical_sha256
from archiver.store.content import MemoryContent, Spooled
from archiver.store.recipe import cut_message
data = Path(sys.argv[1]).read_bytes()
canonical_sha256(data)
canonical = Canonical()
for at in range(0, len(data), 1 << 16):
    canonical.feed(data[at : at + (1 << 16)])
canonical.digest()
cut_message(MemoryContent(data))
with Spooled(Path(sys.argv[1])) as raw:
    cut_message(raw)
"""


@pytest.mark.slow
@pytest.mark.parametrize("unit", [*DELIMITERS.values(), *CANONICAL.values()], ids=[*DELIMITERS, *CANONICAL])
def test_megabytes_take_seconds(unit: bytes, tmp_path: Path) -> None:
    """Linear work takes less than a second; quadratic work would take hours."""
    path = tmp_path / "hostile.eml"
    path.write_bytes(START + unit * ((16 << 20) // len(unit)))
    command = [sys.executable, "-c", _WORK, str(path)]
    done = subprocess.run(command, preexec_fn=_limited, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-2000:] or f"ended by signal {-done.returncode}"
