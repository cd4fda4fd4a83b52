"""No parser of ours takes more than linear time: lines of Python are counted while it reads more and more of what parsers fear.

The functions are found by their signatures, so that a new one is there without being listed: in `archiver.mail` all that take a
text or bytes first; in the other packages that read what comes from elsewhere, those that need nothing else. What the engine of
regular expressions does is looked at by `test_regexes`; what `find` and its like do in C, by the whole messages at the end,
which are read in a process that is killed when it uses far more processor time than any machine needs.
"""

import importlib
import inspect
import os
import pkgutil
import resource
import subprocess
import sys
import warnings
import zipfile
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import nullcontext, suppress
from pathlib import Path
from typing import Any

import pytest

from archiver.mail.budget import DecodeBudget
from archiver.mail.defects import Defects
from archiver.mail.header.fields import Block
from archiver.store.content import MemoryContent
from archiver.store.parts import MIN_PART_BYTES, find_cuts
from connectors.files.detect import FileKind
from connectors.files.mbox import Mbox
from connectors.files.open_file import OpenFile
from connectors.files.survey import survey
from connectors.files.unpacking import Unpacking
from connectors.imap.errors import Broken
from connectors.imap.parse import values
from tests.unit.growth.feared import UNITS, WHOLE_MESSAGES
from tests.unit.growth.steps import grows_faster

LIMIT = 4.0  # for three times the size
FEW = 400
GIVEN: dict[str, Any] = {
    "is_reply": True,
    "declared": "utf-8",
    "encoding": "base64",
    "limit": 10_000,
    "most": 1 << 20,
    "shown": "www.example.org",
    "boundary": b"a",
    "start": 0,
}
GIVEN["known_domains"] = frozenset({"example.org"})
# They get text whose bytes outside ASCII are surrogates.
RAW_FIELDS = {f"archiver.mail.header.{name}" for name in ("addresses", "fields", "headers", "parameters", "route", "words")}
# Not parsers, or given something else than what came by mail.
LEFT_OUT = {
    "archiver.mail.text.marks.unmarked",
    "archiver.mail.parts.scan_parts",
    "archiver.mail.parts.split_multipart",
    "archiver.extract.documents.open_pdf",
    "archiver.extract.documents.read_office",  # these three: libraries, in a process that can be killed
    "archiver.extract.documents.read_pdf",
}


PACKAGES = (
    "archiver.mail",
    "archiver.mail.header",
    "archiver.mail.text",
    "archiver.mail.formats",
    "archiver.extract",
    "archiver.search",
    "archiver.search.query",
    "connectors.files",
    "connectors.imap",
)


def functions(package: str) -> Iterator[tuple[str, Callable[..., Any]]]:
    for info in pkgutil.iter_modules(importlib.import_module(package).__path__, f"{package}."):
        module = importlib.import_module(info.name)
        for name, function in vars(module).items():
            is_ours = inspect.isfunction(inspect.unwrap(function)) and getattr(function, "__module__", "") == info.name
            is_public = not name.startswith("_") and f"{info.name}.{name}" not in LEFT_OUT
            if (
                is_ours
                and is_public
                and _takes_text(function)
                and (package.startswith("archiver.mail") or _needs_no_more(function))
            ):
                yield f"{info.name}.{name}", inspect.unwrap(function)


def _takes_text(function: Callable[..., Any]) -> bool:
    first = next(iter(inspect.signature(function).parameters.values()), None)
    return first is not None and first.annotation in (str, bytes, "str", "bytes")


def _needs_no_more(function: Callable[..., Any]) -> bool:
    return all(one.default is not one.empty for one in list(inspect.signature(function).parameters.values())[1:])


def called(function: Callable[..., Any], text: str) -> Callable[[], Any]:
    first, *rest = inspect.signature(function).parameters.values()
    given: Any = text.encode("utf-8", "surrogateescape")
    if first.annotation in (str, "str"):
        given = given.decode("ascii", "surrogateescape") if function.__module__ in RAW_FIELDS else text
    more = {one.name: _argument(one, text) for one in rest if one.default is one.empty}
    never_raises = function.__module__.startswith("archiver.mail.")

    def call() -> None:
        with nullcontext() if never_raises else suppress(Exception):  # it may refuse what it can't read
            result = function(given, **more)
            deque(result if isinstance(result, Iterator) else (), 0)

    return call


def _argument(parameter: inspect.Parameter, text: str) -> Any:
    if parameter.annotation is Defects:
        return Defects()
    if parameter.annotation is DecodeBudget:
        return DecodeBudget.of(len(text))
    if parameter.annotation is Block:
        return Block([], 0)
    if parameter.name == "tags":
        return text.count("<")
    assert parameter.name in GIVEN, f"what is {parameter}? add it to GIVEN"
    return GIVEN[parameter.name]


FUNCTIONS = {name: function for package in PACKAGES for name, function in functions(package)}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_linear(name: str) -> None:
    function = FUNCTIONS[name]
    for start, unit, end in UNITS:

        def work(count: int, start: str = start, unit: str = unit, end: str = end) -> Callable[[], Any]:
            return called(function, start + unit * count + end)

        assert grows_faster(work, FEW) < LIMIT, (start, unit, end)


def test_the_functions_are_found() -> None:
    for name in (
        "formats.calendar.read_calendar",
        "header.addresses.parse_addresses",
        "message.read_message",
        "formats.tnef.read_tnef",
    ):
        assert f"archiver.mail.{name}" in FUNCTIONS


def test_the_test_finds_quadratic_ones() -> None:
    def quadratic(text: str) -> int:
        return sum(1 for start in range(len(text)) for _ in range(start))

    assert grows_faster(lambda count: called(quadratic, "a" * count), FEW) > LIMIT


@pytest.mark.parametrize("names", [("a",), ("d", "d/a"), ("d~2", "d", "d/a")])
def test_equal_names_in_an_archive(tmp_path: Path, names: tuple[str, ...]) -> None:
    def work(count: int) -> Callable[[], Any]:
        source = tmp_path / f"{count}.zip"
        with zipfile.ZipFile(source, "w") as archive:
            for number in range(count * len(names)):
                with warnings.catch_warnings(action="ignore"):
                    archive.writestr(zipfile.ZipInfo(names[number % len(names)]), b"x")
        target = tmp_path / str(count)
        target.mkdir()
        return lambda: Unpacking(source, target, lambda _: None, 0).run(FileKind.ZIP)

    assert grows_faster(work, 40) < LIMIT
    assert sum(path.is_file() for path in (tmp_path / "120").rglob("*")) == 120 * len(names)


@pytest.mark.parametrize(
    ("start", "unit"),
    [
        ("", "From a Mon Jan  1 00:00:00 2026\n\n"),
        ("From a Mon Jan  1 00:00:00 2026\n", "From x\n"),
        ("", ">From \n"),
        ("", "\n"),
    ],
)
def test_mbox(tmp_path: Path, start: str, unit: str) -> None:
    def read(path: Path) -> None:
        with OpenFile(path) as file:
            mbox = Mbox(file, survey(file))
            deque((mbox.content(span) for span in mbox.spans()), 0)

    def work(count: int) -> Callable[[], Any]:
        path = tmp_path / f"{count}.mbox"
        path.write_text(start + unit * count)
        return lambda: read(path)

    assert grows_faster(work, FEW) < LIMIT


@pytest.mark.parametrize("unit", ["(", ")", "()", '"', '\\"', "a ", "[", "[]", '"a" ', " "])
def test_imap_responses(unit: str) -> None:
    def read(text: bytes) -> None:
        with suppress(Broken):
            values((text,))

    assert grows_faster(lambda count: lambda: read(unit.encode() * count), FEW) < LIMIT


@pytest.mark.parametrize("unit", ["\n--b", "\n--b\n", "\n--b\n\n", "\n--b\nX", "boundary=b\n", "\n--"])
def test_large_parts(unit: str) -> None:
    start = b"Content-Type: multipart/mixed; boundary=b\n\n" + bytes(MIN_PART_BYTES)
    assert grows_faster(lambda count: lambda: find_cuts(MemoryContent(start + unit.encode() * count)), FEW) < LIMIT


def _limited() -> None:
    resource.setrlimit(resource.RLIMIT_CPU, (120, 120))
    resource.setrlimit(resource.RLIMIT_AS, (3 << 30, 3 << 30))
    os.nice(5)


@pytest.mark.slow
@pytest.mark.parametrize("name", WHOLE_MESSAGES)
def test_whole_messages(name: str, tmp_path: Path) -> None:
    """Megabytes of it. Quadratic work would take hours of processor time; two minutes are far more than linear work takes."""
    path = tmp_path / "hostile.eml"
    path.write_bytes(WHOLE_MESSAGES[name]())
    done = subprocess.run(
        [sys.executable, "-m", "tests.fuzz.reading", str(path)],
        preexec_fn=_limited,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-2000:]
